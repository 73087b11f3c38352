//! A batch that waits for the refills of its missed keys.

use std::time::Duration;

use super::batch::{AnsweredBatch, FinishedBatch, MissedKey, REFILL_TIMEOUT};
use crate::{Instant, PartitionId};

/// A batch that waits for the refills of its missed keys.
#[derive(Debug)]
pub(super) struct OpenBatch {
    batch: AnsweredBatch,
    /// The missed keys, refilled or not.
    missed: Vec<MissedKey>,
    /// Number of those that were not refilled yet.
    left: usize,
    /// The last refill, or else the last missed key with the time of the answer.
    last: (Instant, PartitionId),
}

impl OpenBatch {
    pub(super) fn new(batch: AnsweredBatch) -> Self {
        Self { batch, missed: Vec::new(), left: 0, last: (batch.answered, PartitionId(0)) }
    }

    pub(super) fn add(&mut self, key: MissedKey) {
        self.missed.push(key);
        self.left += 1;
        self.last.1 = key.partition;
    }

    /// Notes the refill of a key at `now`, and returns the time that its miss has cost.
    pub(super) fn refill(&mut self, now: Instant, key: MissedKey) -> Duration {
        self.left -= 1;
        self.last = (now.max(self.last.0), key.partition);
        now.since(self.batch.answered)
    }

    pub(super) fn client(&self) -> u64 {
        self.batch.client
    }

    /// Returns the missed keys, those that were refilled included.
    pub(super) fn missed(&self) -> &[MissedKey] {
        &self.missed
    }

    /// Returns the time from which on it waits no longer.
    pub(super) fn expires(&self) -> Instant {
        self.batch.answered + REFILL_TIMEOUT
    }

    /// Returns true if no key is left to be refilled.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    pub(super) fn finish(&self) -> FinishedBatch {
        let (at, blocking) = self.last;
        FinishedBatch { blocking, latency: at.since(self.batch.began), at, class: self.batch.class }
    }
}
