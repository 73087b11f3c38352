//! The node's place in a cluster: changes of shared backends, to and from the other nodes,
//! statistics of all, and rates of tenants.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the machine of the peers behind a lock, for backends, listeners and the bus |
//! | `apply` | changes of other nodes, made in this node's cache |
//! | `counters` | messages on the bus, counted |
//! | `rates` | rates of tenants, lent between nodes |
//! | `statistics` | requests and caches of all nodes, for decisions |

mod apply;
mod counters;
mod rates;
mod statistics;

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use sherwood_config::ClusterSetup;
use sherwood_listener::SharedTrust;
use sherwood_model::{BackendId, Instant, SeededState};
use sherwood_path::{
    ChangedKeys, PeerAction, PeerMessage, PeerOptions, PeerStanding, Peers, SharedChange, SharedValues,
    WithoutBus,
};
use sherwood_process::clock::Clock;
use sherwood_process::entropy::Entropy;
use tokio::sync::Notify;

use crate::setup::BackendSetup;

pub(crate) use apply::{apply, drop_all};
pub(crate) use counters::{BusCounters, BusCounts, Direction};
pub(crate) use rates::{ClusterRates, RateContents, RateMessage};
pub(crate) use statistics::{Published, Statistics};

/// A change of a shared backend, with its keys' bytes.
pub(crate) type Change = SharedChange<Bytes>;

/// The node's place in a cluster.
pub(crate) struct Cluster {
    pub(crate) setup: ClusterSetup,
    clock: Clock,
    peers: Mutex<Peers<Change>>,
    /// Trust in the cached values of each backend that is shared, by id.
    shared: Vec<Option<Arc<SharedValues>>>,
    /// The shared backend whose values are the first that may not be trusted.
    first_doubted: Option<Arc<SharedValues>>,
    /// A shared backend whose changes are refused if those of any are.
    bounded: Option<Arc<SharedValues>>,
    /// Wakes the bus, since something is to be sent.
    wake: Notify,
    pub(crate) counters: BusCounters,
}

impl Cluster {
    /// Creates the place of a node that starts now.
    pub(crate) fn new(
        setup: ClusterSetup,
        backends: &[BackendSetup],
        clock: Clock,
        entropy: &Entropy,
    ) -> Arc<Self> {
        let values = |backend: &BackendSetup| {
            let terms = backend.shared?;
            Some(Arc::new(SharedValues::new(terms, SeededState::new(entropy.draw()))))
        };
        let shared: Vec<_> = backends.iter().map(values).collect();
        let is_bounded = |values: &Arc<SharedValues>| values.terms().without_bus == WithoutBus::Bounded;
        let options = PeerOptions::new(setup.node.clone(), setup.nodes.clone());
        let now = clock.now();
        let incarnation = u64::try_from(clock.unix(now).as_millis()).unwrap_or(u64::MAX);
        let peers = Peers::new(options, incarnation, now, shared.iter().flatten().cloned().collect());
        Arc::new(Self {
            setup,
            clock,
            peers: Mutex::new(peers),
            first_doubted: shared.iter().flatten().min_by_key(|values| values.terms().stale).cloned(),
            bounded: shared.iter().flatten().find(|values| is_bounded(values)).cloned(),
            shared,
            wake: Notify::new(),
            counters: BusCounters::default(),
        })
    }

    /// Returns the trust in the cached values of a backend, if other nodes cache them, too.
    pub(crate) fn shared(&self, backend: BackendId) -> Option<&Arc<SharedValues>> {
        self.shared.get(backend.index())?.as_ref()
    }

    /// Returns what holds for all shared backends together.
    pub(crate) fn shared_trust(&self) -> SharedTrust {
        let Some(first) = &self.first_doubted else { return SharedTrust::default() };
        let now = self.clock.now();
        let refuses = |shared: &Arc<SharedValues>| shared.writes_from(now).is_some();
        SharedTrust {
            doubts_values: first.doubted(now).is_some(),
            refuses_changes: self.bounded.as_ref().is_some_and(refuses),
        }
    }

    /// The backends whose values other nodes cache, too.
    pub(crate) fn shared_backends(&self) -> impl Iterator<Item = BackendId> + '_ {
        let all = self.shared.iter().enumerate().filter(|(_, shared)| shared.is_some());
        all.map(|(index, _)| BackendId::from_index(index))
    }

    /// Announces a change to the other nodes, if the backend is shared. Called when the store has
    /// the change, before its client is told.
    pub(crate) fn announce(&self, backend: BackendId, keys: ChangedKeys<Bytes>) {
        let keys = keys.bounded();
        if self.shared(backend).is_some() && keys != ChangedKeys::None {
            self.lock().announce(SharedChange { backend, keys });
            self.wake.notify_one();
        }
    }

    /// Takes a message of another node. Returns the changes to make in the cache before the next
    /// message is taken.
    pub(crate) fn receive(&self, from: &str, message: &PeerMessage<Change>) -> Vec<Change> {
        let mut peers = self.lock();
        peers.handle_message(self.clock.now(), from, message).to_vec()
    }

    /// Has writes of shared backends refused from now on, since the process ends.
    pub(crate) fn end_writes(&self) {
        self.lock().end_writes(self.clock.now());
    }

    /// Ends the announcements of this process.
    pub(crate) fn leave(&self) {
        self.lock().leave(self.clock.now());
        self.wake.notify_one();
    }

    /// Replaces the names of all nodes.
    pub(crate) fn set_nodes(&self, nodes: Vec<String>) {
        self.lock().set_nodes(self.clock.now(), nodes);
        self.wake.notify_one();
    }

    /// Returns the next action for the bus, none until the next input. Sends the beat that is due
    /// first.
    pub(crate) fn next_action(&self) -> Option<PeerAction<Change>> {
        let mut peers = self.lock();
        peers.handle_timeout(self.clock.now());
        peers.poll_action()
    }

    /// Returns when something is due.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.lock().next_timeout()
    }

    /// Waits until something is to be sent.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Returns the other nodes, and the number of this process.
    pub(crate) fn standings(&self) -> (Vec<PeerStanding>, u64) {
        let peers = self.lock();
        (peers.standings(self.clock.now()), peers.incarnation())
    }

    /// Returns the number of this process.
    pub(crate) fn incarnation(&self) -> u64 {
        self.lock().incarnation()
    }

    fn lock(&self) -> MutexGuard<'_, Peers<Change>> {
        self.peers.lock().expect("no panics while held")
    }
}
