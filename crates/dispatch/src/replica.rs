//! The dispatcher's record of one replica.

use sherwood_model::ReplicaId;

use crate::health::Health;
use crate::rules::ReplicaLoad;
use crate::{Options, ReplicaQueue, ReplicaStats};

/// A server of the backend: its health and its queue.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) health: Health,
    pub(crate) queue: ReplicaQueue,
    /// Number of times that the replica went down.
    pub(crate) downs: u64,
    /// Sequence number of the latest write that the replica has applied, with all earlier ones;
    /// none while it is not to be read.
    pub(crate) applied: Option<u64>,
}

impl Replica {
    pub(crate) fn new(id: ReplicaId, options: &Options) -> Self {
        let queue = ReplicaQueue::new(options.replica_queue());
        Self { id, health: Health::new(), queue, downs: 0, applied: Some(0) }
    }

    /// Returns true if the replica is up and may be read.
    pub(crate) fn is_usable(&self) -> bool {
        self.health.is_up() && self.applied.is_some()
    }

    /// Returns true if the replica may be read and has applied the write with this sequence number.
    pub(crate) fn has_applied(&self, sequence: u64) -> bool {
        self.applied >= Some(sequence)
    }

    pub(crate) fn load(&self) -> ReplicaLoad {
        ReplicaLoad {
            replica: self.id,
            in_flight_calls: self.queue.in_flight(),
            queued_calls: self.queue.queued(),
            estimate: None,
        }
    }

    pub(crate) fn stats(&self) -> ReplicaStats {
        ReplicaStats {
            replica: self.id,
            up: self.health.is_up(),
            downs: self.downs,
            in_flight_calls: self.queue.in_flight(),
            queued_calls: self.queue.queued(),
            deferred_calls: self.queue.deferred(),
            dropped_latencies: self.queue.dropped_latencies(),
        }
    }
}
