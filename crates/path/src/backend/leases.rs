//! Leases: slots of replicas that clients hold.

use std::hash::Hash;
use std::time::Duration;

use sherwood_dispatch::{FetchError, LeaseAction, LeaseId};
use sherwood_model::{Demand, Instant};

use super::Backend;
use super::fill::AnswerCache;

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Asks for a slot of a replica, which a client holds for example as long as its connection is
    /// open; see [`Dispatch::lease`](sherwood_dispatch::Dispatch::lease).
    ///
    /// # Errors
    /// If the maximum number of leases is reached, the balancer picks no replica, or all replicas
    /// are down.
    pub fn lease(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        demand: &Demand,
        lasts: Duration,
        entropy: u64,
    ) -> Result<LeaseId, FetchError> {
        self.advance(now, cache);
        let leased = self.dispatch.lease(now, demand, lasts, entropy);
        self.keep_answers(now, cache);
        leased
    }

    /// Ends a lease that waits or holds a slot. Returns false if it had ended already.
    pub fn end_lease(&mut self, now: Instant, cache: &impl AnswerCache<V>, lease: LeaseId) -> bool {
        self.advance(now, cache);
        let was_held = self.dispatch.end_lease(now, lease);
        self.keep_answers(now, cache);
        was_held
    }

    /// Takes in that a call over the slot of a lease has ended; see [`Dispatch::note_leased_call`].
    ///
    /// [`Dispatch::note_leased_call`]: sherwood_dispatch::Dispatch::note_leased_call
    pub fn note_leased_call(&mut self, now: Instant, lease: LeaseId, took: Duration, is_answer: bool) {
        self.dispatch.note_leased_call(now, lease, took, is_answer);
    }

    /// Returns the next notification about a lease, or none until the next input.
    pub fn poll_lease(&mut self) -> Option<LeaseAction> {
        self.dispatch.poll_lease()
    }
}
