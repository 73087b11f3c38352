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

pub use self::batch::{AnsweredBatch, FinishedBatch, MissedKey, REFILL_TIMEOUT, Refill};
use self::open::OpenBatch;
use self::waiting::{Added, Waiting};
use crate::Instant;
use std::collections::BTreeMap;

/// Most missed keys of a partition that wait for their refill.
const PARTITION_MAX: usize = 1 << 16;
/// Most missed keys of all partitions that wait for their refill; some 300 bytes each, 40 MB.
const TOTAL_MAX: usize = 1 << 17;

/// Numbers of missed keys since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissCounts {
    /// Keys that were refilled.
    pub refilled: u64,
    /// Keys that were not refilled within [`REFILL_TIMEOUT`].
    pub unfilled: u64,
    /// Keys that were not watched because too many were.
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

    /// Adds a batch whose keys `missed` were answered as misses; it waits for their refills, but
    /// not for those of a key that too many batches wait for. If the partition of one has too many,
    /// or no key is left, the batch is not watched and counts as no request. O(keys × log keys).
    pub fn answered(&mut self, batch: AnsweredBatch, missed: &[MissedKey]) {
        let number = self.next;
        let mut open = OpenBatch::new(batch);
        for &key in missed {
            if self.waiting.of(key).last() == Some(&number) {
                // One write refills a key that was missed twice.
                continue;
            }
            match self.waiting.add(key, number) {
                Added::Waits => open.add(key),
                Added::KeyFull => self.counts.unwatched += 1,
                Added::PartitionFull => {
                    self.counts.unwatched += missed.len() as u64;
                    for &key in open.missed() {
                        self.waiting.remove(key, number);
                    }
                    return;
                }
            }
        }
        if !open.is_over() {
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
        let waiting = self.waiting.of(key).iter().rev();
        let mut recent =
            waiting.filter(|number| self.open.get(number).is_some_and(|open| now < open.expires()));
        let is_own = |number: &&u64| self.open.get(number).is_some_and(|open| open.client() == client);
        let number = *recent.clone().find(is_own).or(recent.next())?;
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
        if now < open.expires() {
            return None;
        }
        let open = self.open.remove(&number)?;
        let left = open.missed().iter().filter(|&&key| self.waiting.remove(key, number)).count();
        self.counts.unfilled += left as u64;
        // A window that is shorter than the wait counts it, too.
        Some(FinishedBatch { at: open.expires(), ..open.finish() })
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
