//! Replicas that have not applied all writes: reads are sent where the writes they need are.

use std::hash::Hash;
use std::sync::Arc;

use sherwood_model::{Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::AttemptState;
use crate::slab::Id;
use crate::{CancelReason, Failure, FailureKind};

/// The reason why a replica is not read.
const REASON: &str = "the replica may have older values than others";

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Sets the sequence number of the latest write that a replica has applied, with all earlier
    /// ones; none if it is not to be read, as its values may be older than that says. Reads that
    /// depend on a later write ([`Demand::after`]) are not sent to the replica. If it is not read
    /// any more, its calls fail, and what waits in its queue is sent to others: linear in the
    /// attempts.
    ///
    /// [`Demand::after`]: sherwood_model::Demand::after
    pub fn set_applied(&mut self, now: Instant, replica: ReplicaId, applied: Option<u64>) {
        self.advance(now);
        let Some(known) = self.replicas.get_mut(replica.index()) else { return };
        let was_read = std::mem::replace(&mut known.applied, applied).is_some();
        if was_read && applied.is_none() {
            self.last_down = Arc::from(REASON);
            self.fail_calls_of(now, replica);
            self.tier.iter_mut().for_each(|tier| tier.lost_replica = true);
        }
        self.settle(now);
    }

    fn fail_calls_of(&mut self, now: Instant, replica: ReplicaId) {
        let started: Vec<Id> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.replica == Some(replica) && attempt.state != AttemptState::Queued)
            .map(|(id, _)| id)
            .collect();
        for id in started {
            let Some(fetch_id) = self.attempts.get(id).map(|attempt| attempt.fetch) else { continue };
            let fetch = self.fetches.get(fetch_id).expect(STORED);
            let failure = Failure::new(FailureKind::Overloaded, REASON);
            if fetch.lease.is_some() {
                self.close_lease(now, fetch_id, Some(fetch.error(failure)));
                continue;
            }
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
}
