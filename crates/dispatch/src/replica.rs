//! The dispatcher's record of one replica.

use sherwood_model::ReplicaId;
use smallvec::SmallVec;

use crate::health::Health;
use crate::rules::ReplicaLoad;
use crate::{Holders, Options, ReplicaQueue, ReplicaStats};

/// A server of the backend: its health and its queue.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) health: Health,
    pub(crate) queue: ReplicaQueue,
    /// Number of times that the replica went down.
    pub(crate) downs: u64,
    /// The partitions that the replica holds, each with the sequence number of the latest write
    /// that it has applied, with all earlier ones; none while it is not to be read.
    pub(crate) partitions: SmallVec<[(u32, Option<u64>); 1]>,
}

impl Replica {
    pub(crate) fn new(id: ReplicaId, options: &Options) -> Self {
        let queue = ReplicaQueue::new(options.replica_queue());
        Self { id, health: Health::new(), queue, downs: 0, partitions: SmallVec::new() }
    }

    /// Returns true if the replica holds keys with these holders, out of this many replicas.
    pub(crate) fn holds(&self, holders: Holders, replicas: usize) -> bool {
        match holders {
            Holders::Partition(partition) => self.partitions.iter().any(|(of, _)| *of == partition),
            placed => placed.include(self.id, replicas),
        }
    }

    /// Returns true if the replica is up and may be read for keys with these holders.
    pub(crate) fn is_usable(&self, holders: Holders) -> bool {
        self.health.is_up() && self.has_applied(holders, 0)
    }

    /// Returns true if the replica may be read for keys with these holders and has applied the
    /// write with this sequence number.
    pub(crate) fn has_applied(&self, holders: Holders, sequence: u64) -> bool {
        let Holders::Partition(partition) = holders else { return true };
        let applied = self.partitions.iter().find(|(of, _)| *of == partition);
        applied.is_some_and(|(_, applied)| *applied >= Some(sequence))
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
