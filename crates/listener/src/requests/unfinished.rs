//! A batch that its connection has not answered yet.

use std::time::Duration;

use sherwood_model::batches::{AnsweredBatch, MissedKey};
use sherwood_model::{Instant, PartitionId, RequestEnd};

use super::turn::{KEYS_MAX, Keys};
use super::{BatchCounting, KeyCounts};
use crate::backends::FetchResult;

/// The batch of a client, from the turn that first waits for a backend or misses a key to the turn
/// that answers its last command.
#[derive(Debug)]
pub(crate) struct UnfinishedBatch {
    began: Instant,
    /// The ends of its fetches.
    end: RequestEnd,
    /// The partition of the last fetch.
    fetched: Option<PartitionId>,
    /// True if it has written through to a store.
    has_written: bool,
    missed: Vec<MissedKey>,
    unwatched: u64,
}

impl UnfinishedBatch {
    /// Creates a batch whose first byte was read at `began`.
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            began,
            end: RequestEnd::default(),
            fetched: None,
            has_written: false,
            missed: Vec::new(),
            unwatched: 0,
        }
    }

    /// Notes that a command writes through to a store.
    pub(crate) fn note_write(&mut self) {
        self.has_written = true;
    }

    /// Notes the `results` of a fetch that took `took` until `now`, with the partition of each.
    /// `last` is the partition whose keys came last.
    pub(crate) fn note_fetched<'r>(
        &mut self,
        counting: &BatchCounting,
        (now, took): (Instant, Duration),
        last: Option<PartitionId>,
        results: impl Iterator<Item = (PartitionId, &'r FetchResult)>,
    ) {
        let latency = now.since(self.began);
        if let Some(last) = last {
            self.fetched = Some(last);
            self.end.add(counting.query_end(last, latency, false));
        }
        let mut keys = KeyCounts::default();
        for (partition, result) in results {
            keys.add(partition, 1);
            if result.is_err() {
                self.end.add(counting.query_end(partition, latency, true));
            }
        }
        counting.record_fetched(&keys, took);
    }

    /// Adds the keys that a turn has missed and not written.
    pub(crate) fn add(&mut self, keys: &mut Keys) {
        self.unwatched += keys.unwatched;
        self.missed.append(&mut keys.missed);
        keys.forget_written(&mut self.missed);
        if self.unwatched > 0 || self.missed.len() > KEYS_MAX {
            // Too many: the batch is never watched.
            self.unwatched += self.missed.len() as u64;
            self.missed = Vec::new();
        }
    }

    /// Counts the batch, whose last answer was written at `now` to the connection numbered
    /// `client`, or has it wait for the refill of what it missed.
    pub(crate) fn finish(self, counting: &BatchCounting, now: Instant, client: u64) {
        let Self { began, end, fetched, has_written, missed, unwatched } = self;
        if has_written {
            return;
        }
        if !missed.is_empty() || unwatched > 0 {
            let batch = AnsweredBatch { client, began, answered: now, class: counting.class };
            counting.batches.answered(batch, &missed, unwatched);
        } else if let Some(partition) = fetched.filter(|_| counting.counts()) {
            let request = end.finish(now.since(began));
            counting.batches.requests.count(now, partition, counting.class, request, 1);
        }
    }
}
