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
    ChangedKeys, OverallTrust, PeerAction, PeerMessage, PeerOptions, PeerStanding, Peers, SharedBackends,
    SharedChange, SharedValues,
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
    /// All shared backends together.
    all_shared: SharedBackends,
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
        let all: Vec<_> = shared.iter().flatten().cloned().collect();
        let options = PeerOptions::new(setup.node.clone(), setup.nodes.clone());
        let now = clock.now();
        let incarnation = u64::try_from(clock.unix(now).as_millis()).unwrap_or(u64::MAX);
        let peers = Peers::new(options, incarnation, now, all.clone());
        Arc::new(Self {
            setup,
            clock,
            peers: Mutex::new(peers),
            shared,
            all_shared: SharedBackends::new(&all),
            wake: Notify::new(),
            counters: BusCounters::default(),
        })
    }

    /// Returns the trust in the cached values of a backend, if other nodes cache them, too.
    pub(crate) fn shared(&self, backend: BackendId) -> Option<&Arc<SharedValues>> {
        self.shared.get(backend.index())?.as_ref()
    }

    /// Returns the trust in the values of all shared backends together.
    pub(crate) fn shared_trust(&self) -> SharedTrust {
        let OverallTrust { doubts_values, refuses_changes } = self.all_shared.trust(self.clock.now());
        SharedTrust { doubts_values, refuses_changes }
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
