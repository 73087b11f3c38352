//! The keys that a client's turn has missed or written.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sherwood_model::PartitionId;
use sherwood_model::batches::MissedKey;

use super::BatchCounting;

/// Most missed keys of a batch that are kept, and most written ones of a turn.
pub(super) const KEYS_MAX: usize = 1024;

/// The keys that the present turn of a thread's client has missed or written, on cache lines of
/// their own.
#[repr(align(128))]
pub(crate) struct TurnKeys {
    /// The counting of the listener's batches; none if they do not count.
    counting: Option<BatchCounting>,
    /// True if there are any. Written by the thread alone.
    any: AtomicBool,
    keys: Mutex<Keys>,
}

/// Keys of a turn.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Keys that were answered as misses.
    pub(super) missed: Vec<MissedKey>,
    /// Number of missed keys beyond those.
    pub(super) unwatched: u64,
    /// Keys that were written after a miss of the turn, or while some waited for a refill.
    pub(super) written: Vec<MissedKey>,
    /// True if batches are counted; none before the first miss.
    counts: Option<bool>,
}

impl Keys {
    /// Removes keys of `missed` that the turn has written: the application did not compute them
    /// after it had the answer.
    pub(super) fn forget_written(&mut self, missed: &mut Vec<MissedKey>) {
        if !self.written.is_empty() {
            self.written.sort_unstable();
            missed.retain(|key| self.written.binary_search(key).is_err());
        }
    }

    /// Returns true if keys were answered as misses.
    pub(crate) fn has_missed(&self) -> bool {
        !self.missed.is_empty() || self.unwatched > 0
    }
}

impl TurnKeys {
    /// Creates the keys of a thread that has no turn yet.
    pub(crate) fn new(counting: Option<BatchCounting>) -> Self {
        Self { counting, any: AtomicBool::new(false), keys: Mutex::default() }
    }

    /// Notes a key that was answered as a miss, if batches are counted.
    pub(crate) fn note_missed(&self, partition: PartitionId, name: &[u8]) {
        let Some(counting) = &self.counting else { return };
        let mut keys = self.lock();
        self.any.store(true, Relaxed);
        match keys.missed.len() < KEYS_MAX {
            _ if !*keys.counts.get_or_insert_with(|| counting.counts()) => {}
            true => keys.missed.push(counting.batches.key(partition, name)),
            false => keys.unwatched += 1,
        }
    }

    /// Notes a key that the client has written, if any key waits for its refill or the turn has
    /// missed some.
    #[inline]
    pub(crate) fn note_written(&self, partition: PartitionId, name: &[u8]) {
        if let Some(counting) = &self.counting
            && (counting.batches.waiting.0.load(Relaxed) > 0 || self.any())
        {
            self.note_refill(counting, partition, name);
        }
    }

    #[cold]
    fn note_refill(&self, counting: &BatchCounting, partition: PartitionId, name: &[u8]) {
        let mut keys = self.lock();
        if keys.written.len() < KEYS_MAX {
            keys.written.push(counting.batches.key(partition, name));
            self.any.store(true, Relaxed);
        }
    }

    /// Returns true if the turn has missed keys.
    pub(crate) fn have_missed(&self) -> bool {
        self.any() && self.lock().has_missed()
    }

    /// Returns true if the turn has missed or written keys.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Calls `end` with the keys, at the end of the turn, and forgets them.
    pub(crate) fn end(&self, end: impl FnOnce(&mut Keys)) {
        self.any.store(false, Relaxed);
        let mut keys = self.lock();
        end(&mut keys);
        let Keys { missed, unwatched, written, counts } = &mut *keys;
        (*unwatched, *counts) = (0, None);
        missed.clear();
        written.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
