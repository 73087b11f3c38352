//! Flushes in constant time.
//!
//! CAS values are ascending, so "everything stored until now" is one number per partition: items
//! with a smaller CAS are dead. A flush at a later time is stored as pending, and converted into
//! that number by the first operation at or after its time.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, PoisonError};

use sherwood_model::{Instant, PartitionId};

/// The flushes of all partitions.
#[derive(Debug)]
pub(crate) struct Flushes {
    marks: Box<[Mark]>,
    /// Held to change a partition's `floor` or `pending`; flushes are rare, reads of these are not.
    moving: Mutex<()>,
}

#[derive(Debug)]
struct Mark {
    /// CAS below which a flush has invalidated the partition's items.
    floor: AtomicU64,
    /// Time of the pending flush, in nanoseconds; `NEVER` for none.
    pending: AtomicU64,
}

impl Flushes {
    pub(crate) fn new(partitions: usize) -> Self {
        let mark = |_| Mark { floor: AtomicU64::new(0), pending: AtomicU64::new(NEVER) };
        Self { marks: (0..partitions).map(mark).collect(), moving: Mutex::new(()) }
    }

    /// Returns a copy of the flushes, for a copy of the cache.
    pub(crate) fn copy(&mut self) -> Self {
        let mark = |mark: &mut Mark| Mark {
            floor: AtomicU64::new(*mark.floor.get_mut()),
            pending: AtomicU64::new(*mark.pending.get_mut()),
        };
        Self { marks: self.marks.iter_mut().map(mark).collect(), moving: Mutex::new(()) }
    }

    /// The CAS below which items of `partition` are dead at `now`. `ticks` is the counter of CAS
    /// values.
    #[inline]
    pub(crate) fn floor(&self, partition: PartitionId, now: Instant, ticks: &AtomicU64) -> u64 {
        self.settle(partition, now, ticks);
        self.marks[partition.index()].floor.load(Relaxed)
    }

    /// Applies the flush of `partition` if it is due.
    #[inline]
    pub(crate) fn settle(&self, partition: PartitionId, now: Instant, ticks: &AtomicU64) {
        let mark = &self.marks[partition.index()];
        if mark.is_due(now) {
            self.move_on(mark, now, ticks);
        }
    }

    #[cold]
    fn move_on(&self, mark: &Mark, now: Instant, ticks: &AtomicU64) {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        mark.settle(now, ticks);
    }

    /// Invalidates what `partition` has stored by the time `at`; replaces a pending flush.
    pub(crate) fn set(&self, partition: PartitionId, at: Instant, now: Instant, ticks: &AtomicU64) {
        let mark = &self.marks[partition.index()];
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        mark.settle(now, ticks);
        mark.pending.store(at.as_nanos(), Relaxed);
        mark.settle(now, ticks);
    }

    /// Time of the next flush of any partition after `now`, or `NEVER`.
    pub(crate) fn next(&self, now: Instant, ticks: &AtomicU64) -> Instant {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        self.marks.iter().for_each(|mark| mark.settle(now, ticks));
        let pending = self.marks.iter().map(|mark| mark.pending.load(Relaxed)).min();
        Instant::from_nanos(pending.unwrap_or(NEVER))
    }
}

impl Mark {
    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        let pending = self.pending.load(Acquire);
        pending != NEVER && pending <= now.as_nanos()
    }

    /// Converts a due flush into its CAS floor, then clears it as pending.
    fn settle(&self, now: Instant, ticks: &AtomicU64) {
        if self.is_due(now) {
            self.floor.store(ticks.load(Relaxed), Relaxed);
            self.pending.store(NEVER, Release);
        }
    }
}

const NEVER: u64 = Instant::NEVER.as_nanos();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_in_the_future_invalidates_items_stored_until_then() {
        let (flushes, ticks) = (Flushes::new(1), AtomicU64::new(5));
        let at = |millis| flushes.floor(PartitionId(0), Instant::from_millis(millis), &ticks);
        flushes.set(PartitionId(0), Instant::from_millis(10), Instant::ZERO, &ticks);
        assert_eq!(at(9), 0);
        ticks.store(7, Relaxed);
        assert_eq!(at(10), 7);
        ticks.store(9, Relaxed);
        assert_eq!(at(20), 7);
    }

    #[test]
    fn new_flush_replaces_the_pending_flush() {
        let (flushes, ticks) = (Flushes::new(2), AtomicU64::new(5));
        flushes.set(PartitionId(1), Instant::from_millis(10), Instant::ZERO, &ticks);
        assert_eq!(flushes.next(Instant::ZERO, &ticks), Instant::from_millis(10));
        flushes.set(PartitionId(1), Instant::ZERO, Instant::ZERO, &ticks);
        assert_eq!(flushes.next(Instant::ZERO, &ticks), Instant::NEVER);
        ticks.store(9, Relaxed);
        assert_eq!(flushes.floor(PartitionId(1), Instant::from_millis(50), &ticks), 5);
        assert_eq!(flushes.floor(PartitionId(0), Instant::NEVER, &ticks), 0);
    }
}
