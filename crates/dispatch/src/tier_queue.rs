//! The common queue of a tier (all replicas of a backend), in which attempts wait for any replica.

use sherwood_model::{Instant, SeededState};

use crate::request_table::RequestTable;
use crate::{Options, ReplicaQueue};

/// The attempts that wait for any replica, and the replicas that work for each request.
///
/// A call in flight keeps a worker busy here and one at its replica.
#[derive(Clone, Debug)]
pub(crate) struct TierQueue {
    pub(crate) queue: ReplicaQueue,
    /// The replicas that have started calls for each request, so that further copies avoid them.
    pub(crate) requests: RequestTable,
    /// True if a replica has gone down since the last check, so that attempts may wait for replicas
    /// that cannot answer.
    pub(crate) lost_replica: bool,
}

impl TierQueue {
    /// Returns an empty queue for a tier of this many replicas.
    pub(crate) fn new(options: &Options, replicas: usize, hash: SeededState) -> Self {
        Self {
            queue: ReplicaQueue::new(options.tier_queue(replicas)),
            requests: RequestTable::new(hash),
            lost_replica: false,
        }
    }

    /// Returns the time at which the next record of a request's replicas expires, so that waiting
    /// attempts may start at one more replica; none if no attempt waits.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.requests.next_timeout().filter(|_| self.queue.queued() > 0)
    }
}
