//! The queue of a tier, in which attempts wait for any replica.

use sherwood_model::{Instant, SeededState};

use crate::request_table::RequestTable;
use crate::{Options, ReplicaQueue};

/// The attempts that wait without a replica, and the replicas that work for each request.
///
/// A call in flight keeps a worker busy here and one at its replica.
#[derive(Clone, Debug)]
pub(crate) struct TierQueue {
    pub(crate) queue: ReplicaQueue,
    /// Replicas that have started calls for a request, so that a copy of it keeps off them.
    pub(crate) requests: RequestTable,
    /// True if a replica has gone down, so that attempts may wait in vain.
    pub(crate) lost_replica: bool,
}

impl TierQueue {
    /// Returns the empty queue of a tier of this many replicas.
    pub(crate) fn new(options: &Options, replicas: usize, hash: SeededState) -> Self {
        Self {
            queue: ReplicaQueue::new(options.tier_queue(replicas)),
            requests: RequestTable::new(hash),
            lost_replica: false,
        }
    }

    /// Returns the time from which attempts that wait may start at one more replica, because it is
    /// no longer taken to work for their request; none if no attempt waits.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.requests.next_timeout().filter(|_| self.queue.queued() > 0)
    }
}
