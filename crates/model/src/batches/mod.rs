//! Requests made of the batches of plain cache clients.
//!
//! A *batch* is what a client asks for before it waits: the keys of one multi-get, or the commands
//! of one pipeline that are read together. Where the cache fetches what it misses, a batch is over
//! when it is answered. Where the application fetches (look-aside), the cost of a miss is the time
//! from its answer to the write that *refills* the key, so a batch with misses stays open until
//! they are refilled, for at most 10 s.
//!
//! | file | contents |
//! |---|---|
//! | `batch` | batches and missed keys, as they come and go |
//! | `open` | one batch that waits for refills |
//! | `waiting` | the missed keys and the batches that wait for them |

mod batch;
mod open;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::batch::{AnsweredBatch, FinishedBatch, MissedKey, Refill};
use self::open::OpenBatch;
use self::waiting::Waiting;
use crate::Instant;

/// Time after which a missed key is no longer expected to be refilled. Chosen: longer than the
/// timeouts of most queries.
pub const REFILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Most missed keys of a partition that wait for their refill.
const PARTITION_MAX: usize = 1 << 16;
/// Most missed keys of all partitions that wait for their refill; some 200 bytes each, 26 MB.
const TOTAL_MAX: usize = 1 << 17;

/// Numbers of missed keys since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissCounts {
    /// Keys that were refilled.
    pub refilled: u64,
    /// Keys that were not refilled within [`REFILL_TIMEOUT`].
    pub unfilled: u64,
    /// Keys that were not watched because too many were: their batches count as no request.
    pub unwatched: u64,
}

/// The batches that wait for the refill of missed keys.
///
/// Bounded: at most 65,536 missed keys of a partition and 131,072 of all, divided evenly among the
/// partitions, and 16 of one key.
#[derive(Debug)]
pub struct Batches {
    /// Open batches by number, which ascends with time.
    open: BTreeMap<u64, OpenBatch>,
    waiting: Waiting,
    next: u64,
    counts: MissCounts,
}

impl Batches {
    /// Creates an empty set for `partitions` partitions, at least 1.
    #[must_use]
    pub fn new(partitions: usize) -> Self {
        let each_max = PARTITION_MAX.min(TOTAL_MAX / partitions.max(1)).max(1);
        Self::with_bound(partitions, each_max)
    }

    fn with_bound(partitions: usize, each_max: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            waiting: Waiting::new(partitions, each_max),
            next: 0,
            counts: MissCounts::default(),
        }
    }

    /// Adds a batch whose keys `missed` were answered as misses; it waits for their refills. If one
    /// of them cannot be watched, neither is the batch. O(keys × log keys).
    pub fn answered(&mut self, batch: AnsweredBatch, missed: &[MissedKey]) {
        let number = self.next;
        let mut open = OpenBatch::new(batch);
        for &key in missed {
            if self.waiting.of(key).last() == Some(&number) {
                // One write refills a key that was missed twice.
                continue;
            }
            if !self.waiting.add(key, number) {
                self.counts.unwatched += missed.len() as u64;
                open.left().for_each(|&key| self.waiting.remove(key, number));
                return;
            }
            open.add(key);
        }
        if !missed.is_empty() {
            self.next += 1;
            self.open.insert(number, open);
        }
    }

    /// Counts missed keys whose batch has too many to be watched.
    pub fn note_unwatched(&mut self, keys: u64) {
        self.counts.unwatched += keys;
    }

    /// Ends the wait of one batch for `key`, which `client` writes at `now`: its own latest batch,
    /// or else the latest of another client, since some clients write on another connection. None
    /// if no batch waits for the key.
    pub fn refilled(&mut self, now: Instant, client: u64, key: MissedKey) -> Option<Refill> {
        let waiting = self.waiting.of(key);
        let is_own = |number: &&u64| self.open.get(*number).is_some_and(|open| open.client() == client);
        let number = *waiting.iter().rev().find(is_own).or(waiting.last())?;
        self.waiting.remove(key, number);
        self.counts.refilled += 1;
        let open = self.open.get_mut(&number)?;
        let cost = open.refill(now, key);
        let finished = open.is_over().then(|| open.finish());
        if finished.is_some() {
            self.open.remove(&number);
        }
        Some(Refill { cost, finished })
    }

    /// Returns a batch that has waited for [`REFILL_TIMEOUT`] by `now`, without its keys that were
    /// not refilled; call until none is left.
    pub fn next_expired(&mut self, now: Instant) -> Option<FinishedBatch> {
        let (&number, open) = self.open.first_key_value()?;
        if now < open.answered() + REFILL_TIMEOUT {
            return None;
        }
        let open = self.open.remove(&number)?;
        for &key in open.left() {
            self.waiting.remove(key, number);
            self.counts.unfilled += 1;
        }
        Some(open.finish())
    }

    /// Returns the number of missed keys that wait for their refill.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the numbers of missed keys since the start.
    #[must_use]
    pub fn counts(&self) -> MissCounts {
        self.counts
    }
}
