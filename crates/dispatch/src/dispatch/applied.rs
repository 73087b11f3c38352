//! Replicas that have not applied all writes of a partition, which are read where the writes that
//! they depend on are.

use std::hash::Hash;
use std::sync::Arc;

use sherwood_model::{Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::{Attempt, AttemptState};
use crate::slab::Id;
use crate::{AttemptId, CancelReason, Failure, FailureKind, Holders};

/// The reason why a replica is not read.
const REASON: &str = "the replica may have older values than others";

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Sets the sequence number of the latest write of a partition that a replica, which holds the
    /// partition from now on, has applied, with all earlier ones; none if it is not to be read, as
    /// its values may be older than that says. Reads with [`Holders::Partition`] that depend on a
    /// later write ([`Demand::after`]) are not sent to the replica. If it is not read any more, the
    /// partition's calls there fail, and what waits in its queue is sent to others: linear in the
    /// attempts.
    ///
    /// [`Demand::after`]: sherwood_model::Demand::after
    pub fn set_applied(&mut self, now: Instant, partition: u32, replica: ReplicaId, applied: Option<u64>) {
        self.advance(now);
        let Some(known) = self.replicas.get_mut(replica.index()) else { return };
        let was_read = match known.partitions.iter_mut().find(|(of, _)| *of == partition) {
            Some((_, held)) => std::mem::replace(held, applied).is_some(),
            None => {
                known.partitions.push((partition, applied));
                // Calls from before it left the partition may be under way.
                true
            }
        };
        if was_read && applied.is_none() {
            self.end_reads(now, partition, replica);
        }
        self.settle(now);
    }

    /// Sends no more reads of a partition to a replica, which will not hold it any more. Its calls,
    /// and those that wait in its queue, may still end.
    pub fn remove_holder(&mut self, now: Instant, partition: u32, replica: ReplicaId) {
        self.advance(now);
        if let Some(known) = self.replicas.get_mut(replica.index()) {
            known.partitions.retain(|(of, _)| *of != partition);
        }
        self.tier.iter_mut().for_each(|tier| tier.lost_replica = true);
        self.settle(now);
    }

    /// Ends the reads of a partition at a replica, in its queue or begun.
    fn end_reads(&mut self, now: Instant, partition: u32, replica: ReplicaId) {
        self.last_down = Arc::from(REASON);
        let of_partition = |attempt: &Attempt<K>| {
            let fetch = self.fetches.get(attempt.fetch).expect(STORED);
            attempt.replica == Some(replica) && fetch.holders == Holders::Partition(partition)
        };
        let ended = self.attempts.iter().filter(|(_, attempt)| of_partition(attempt));
        let (queued, started): (Vec<_>, Vec<_>) = ended
            .map(|(id, attempt)| (id, attempt.state))
            .partition(|(_, state)| *state == AttemptState::Queued);
        started.into_iter().for_each(|(id, _)| self.fail_call(now, id, replica));
        for (id, _) in queued {
            let still_waits = self.attempts.get(id).is_some_and(|one| one.state == AttemptState::Queued);
            if still_waits && self.replicas[replica.index()].queue.cancel(AttemptId(id)) {
                self.move_or_end(now, id);
            }
        }
        self.tier.iter_mut().for_each(|tier| tier.lost_replica = true);
    }

    fn fail_call(&mut self, now: Instant, id: Id, replica: ReplicaId) {
        let Some(fetch_id) = self.attempts.get(id).map(|attempt| attempt.fetch) else { return };
        let fetch = self.fetches.get(fetch_id).expect(STORED);
        let failure = Failure::new(FailureKind::Overloaded, REASON);
        let is_over = fetch.open == 0;
        self.cancel(now, id, CancelReason::Outdated);
        if is_over {
            self.close(now, fetch_id);
        } else if !self.is_continued(now, fetch_id, replica, &failure) {
            let error = self.fetches.get(fetch_id).expect(STORED).error(failure);
            self.end(now, fetch_id, &error);
        }
    }
}
