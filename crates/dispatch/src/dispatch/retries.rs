//! Retries of fetches whose attempts have failed.
//!
//! A retry goes to another replica at once, or, if the backend throttled the attempt, to any
//! replica after a wait: replicas of a throttled backend share its rate.

use std::hash::Hash;
use std::time::Duration;

use sherwood_model::{Instant, ReplicaId};

use super::{Dispatch, STORED};
use crate::fetch::Later;
use crate::slab::Id;
use crate::{AttemptKind, Failure, FailureKind};

/// Wait before the first retry of a throttled fetch; it doubles with every further one. Clients of
/// services that throttle begin with 25 to 100 ms.
const THROTTLED_WAIT: Duration = Duration::from_millis(50);

/// Largest number of times that the wait doubles.
const DOUBLINGS_MAX: u32 = 10;

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Returns true if a fetch whose attempt at `failed` has failed goes on: with its other
    /// attempts, or with a retry where that is safe, affordable and possible.
    pub(super) fn is_continued(
        &mut self,
        now: Instant,
        id: Id,
        failed: ReplicaId,
        failure: &Failure,
    ) -> bool {
        let fetch = self.fetches.get_mut(id).expect(STORED);
        fetch.note_failure(failed, failure.clone());
        if !fetch.live.is_empty() {
            return true;
        }
        if !failure.kind.is_safe_to_retry()
            || fetch.retries >= self.options.retry.per_call_max
            || !self.budget.can_take()
        {
            return false;
        }
        match failure.kind {
            FailureKind::Throttled => self.plan_retry(now, id),
            _ => self.retry_elsewhere(now, id, failed),
        }
    }

    /// Retries a fetch at a replica other than `failed`; false if there is none.
    fn retry_elsewhere(&mut self, now: Instant, id: Id, failed: ReplicaId) -> bool {
        if self.offer(id, Some(failed)).is_err() {
            return false;
        }
        let picks = self.pick(now, id, 1);
        let Some(replica) = picks.as_slice().first() else { return false };
        self.fetches.get_mut(id).expect(STORED).avoids = Some(failed);
        self.note_retry(id);
        self.place(now, id, *replica, AttemptKind::Retry);
        true
    }

    /// Plans the retry of a fetch that was throttled; false if its timeout would be over then. What
    /// was planned for it is given up: it would be throttled as well.
    fn plan_retry(&mut self, now: Instant, id: Id) -> bool {
        let fetch = self.fetches.get(id).expect(STORED);
        let wait = THROTTLED_WAIT * (1 << fetch.retries.min(DOUBLINGS_MAX));
        let at = self.draws.jittered(now, wait);
        if at >= fetch.expires_at {
            return false;
        }
        self.fetches.get_mut(id).expect(STORED).avoids = None;
        self.note_retry(id);
        self.plan(id, at, Later::Retry);
        true
    }

    /// Makes the planned retry of a fetch that was throttled. Ends the fetch with that failure if
    /// no replica takes it.
    pub(super) fn retry_throttled(&mut self, now: Instant, id: Id) {
        let picked = match self.offer(id, None) {
            Ok(()) => self.pick(now, id, 1).first().copied(),
            Err(_) => None,
        };
        match picked {
            Some(replica) => self.place(now, id, replica, AttemptKind::Retry),
            None => {
                let failed = self.fetches.get(id).expect(STORED).failed();
                self.end(now, id, &failed.expect("a retry follows a failure"));
            }
        }
    }

    fn note_retry(&mut self, id: Id) {
        self.budget.take();
        self.counters.retries += 1;
        let fetch = self.fetches.get_mut(id).expect(STORED);
        fetch.retries += 1;
        // No attempt that answers for the old list is left.
        fetch.keys.retain(|key| self.keys.get(*key).is_some());
    }
}
