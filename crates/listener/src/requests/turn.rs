//! The keys that a client's turn has missed or written.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sherwood_model::PartitionId;
use sherwood_model::batches::MissedKey;

use super::BatchCounting;

/// Most missed keys of a batch that are kept, and most written ones of a turn.
pub(super) const KEYS_MAX: usize = 4096;

/// The keys that the present turn of a thread's client has missed or written, on cache lines of
/// their own.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct TurnKeys {
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
    /// Keys that were written while some waited for a refill.
    pub(super) written: Vec<MissedKey>,
}

impl Keys {
    /// Returns true if keys were answered as misses.
    pub(crate) fn has_missed(&self) -> bool {
        !self.missed.is_empty() || self.unwatched > 0
    }
}

impl TurnKeys {
    /// Notes a key that was answered as a miss, if batches are counted.
    pub(crate) fn note_missed(&self, counting: Option<&BatchCounting>, partition: PartitionId, name: &[u8]) {
        let Some(counting) = counting.filter(|counting| counting.counts()) else { return };
        let mut keys = self.lock();
        match keys.missed.len() < KEYS_MAX {
            true => keys.missed.push(counting.batches.key(partition, name)),
            false => keys.unwatched += 1,
        }
        self.any.store(true, Relaxed);
    }

    /// Notes a key that the client has written, if any key waits for its refill.
    #[inline]
    pub(crate) fn note_written(&self, counting: Option<&BatchCounting>, partition: PartitionId, name: &[u8]) {
        if let Some(counting) = counting
            && counting.batches.waiting.load(Relaxed) > 0
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

    /// Returns true if the turn has missed or written keys.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Takes the keys, at the end of the turn.
    pub(crate) fn take(&self) -> Keys {
        self.any.store(false, Relaxed);
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
