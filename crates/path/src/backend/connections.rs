//! Connections of clients, each over slots of several replicas.

use std::hash::Hash;
use std::time::Duration;

use sherwood_dispatch::{ConnectionAction, ConnectionId, FetchError, LeaseId};
use sherwood_model::{Demand, Instant};

use super::Backend;
use super::fill::AnswerCache;

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Opens a connection of a client; see
    /// [`Dispatch::connect`](sherwood_dispatch::Dispatch::connect).
    ///
    /// # Errors
    /// If no slot can be waited for: the maximum number of leases is reached, the balancer picks no
    /// replica, or all replicas are down.
    pub fn connect(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        demand: &Demand,
        lasts: Duration,
        entropy: u64,
    ) -> Result<ConnectionId, FetchError> {
        self.advance(now, cache);
        let connection = self.dispatch.connect(now, demand, lasts, entropy);
        self.keep_answers(now, cache);
        connection
    }

    /// Asks for a call over a connection; see [`Dispatch::ask`](sherwood_dispatch::Dispatch::ask).
    pub fn ask(&mut self, now: Instant, cache: &impl AnswerCache<V>, connection: ConnectionId, call: u64) {
        self.advance(now, cache);
        self.dispatch.ask(now, connection, call);
        self.keep_answers(now, cache);
    }

    /// Takes in that a call over the slot of a lease has ended, and returns true if its answer is
    /// to be passed on; see [`Dispatch::end_call`](sherwood_dispatch::Dispatch::end_call).
    pub fn end_call(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        lease: LeaseId,
        is_answer: bool,
    ) -> bool {
        self.advance(now, cache);
        let is_awaited = self.dispatch.end_call(now, lease, is_answer);
        self.keep_answers(now, cache);
        is_awaited
    }

    /// Ends a connection and its leases.
    pub fn disconnect(&mut self, now: Instant, cache: &impl AnswerCache<V>, connection: ConnectionId) {
        self.advance(now, cache);
        self.dispatch.disconnect(now, connection);
        self.keep_answers(now, cache);
    }

    /// Returns the next step for a connection, or none until the next input.
    pub fn poll_connection(&mut self) -> Option<ConnectionAction> {
        self.dispatch.poll_connection()
    }
}
