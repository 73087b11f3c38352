//! A batch that waits for the refills of its missed keys.

use std::time::Duration;

use super::batch::{AnsweredBatch, FinishedBatch, MissedKey};
use crate::{Instant, PartitionId};

/// A batch that waits for the refills of its missed keys.
#[derive(Debug)]
pub(super) struct OpenBatch {
    batch: AnsweredBatch,
    /// Missed keys that were not refilled yet.
    left: Vec<MissedKey>,
    /// The last refill, or else the last missed key with the time of the answer.
    last: (Instant, PartitionId),
}

impl OpenBatch {
    pub(super) fn new(batch: AnsweredBatch) -> Self {
        Self { batch, left: Vec::new(), last: (batch.answered, PartitionId(0)) }
    }

    pub(super) fn add(&mut self, key: MissedKey) {
        self.left.push(key);
        self.last.1 = key.partition;
    }

    /// Notes the refill of a key at `now`, and returns the time that its miss has cost.
    pub(super) fn refill(&mut self, now: Instant, key: MissedKey) -> Duration {
        if let Some(place) = self.left.iter().position(|left| *left == key) {
            self.left.swap_remove(place);
        }
        self.last = (now.max(self.last.0), key.partition);
        now.since(self.batch.answered)
    }

    pub(super) fn client(&self) -> u64 {
        self.batch.client
    }

    pub(super) fn answered(&self) -> Instant {
        self.batch.answered
    }

    pub(super) fn left(&self) -> impl Iterator<Item = &MissedKey> {
        self.left.iter()
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn finish(&self) -> FinishedBatch {
        let (at, blocking) = self.last;
        FinishedBatch { blocking, latency: at.since(self.batch.began), at }
    }
}
