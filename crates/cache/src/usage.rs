//! Usage and counters of partitions.
//!
//! Counters are kept per shard and partition and written only under that shard's lock, so a writer
//! needs no atomic read-modify-write and a reader no lock. The counters of `get`s are kept per
//! stripe of the lock, since a `get` holds only one stripe.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_model::PartitionId;

use crate::shard::Visibility;

/// Usage of a partition (or of all). Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Largest number of bytes that the partition may hold: its budget, or the total under
    /// `Shared`.
    pub budget_bytes: u64,
    /// Charges of the partition's items, including dead ones that are not reclaimed yet.
    pub used_bytes: u64,
    /// Number of the partition's items, including dead ones that are not reclaimed yet.
    pub items: u64,
    /// `get`s that found an item that is not stale.
    pub hits: u64,
    /// `get`s that found no item or a stale one.
    pub misses: u64,
    /// Values stored, new or over an older one.
    pub stores: u64,
    /// Live items evicted for space.
    pub evictions: u64,
    /// Items removed because they had expired or been flushed.
    pub expired: u64,
}

/// A shard's part of a partition's counters, except those of `get`s, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    pub(crate) items: Count,
    pub(crate) stores: Count,
    pub(crate) evictions: Count,
    pub(crate) expired: Count,
}

impl Counters {
    /// Returns a copy of the counters, for a copy of the cache.
    pub(crate) fn copy(&self) -> Self {
        let Self { items, stores, evictions, expired } = self;
        Self {
            items: items.copy(),
            stores: stores.copy(),
            evictions: evictions.copy(),
            expired: expired.copy(),
        }
    }

    /// Adds this shard's counts of a partition to `usage`.
    pub(crate) fn add_to(&self, usage: &mut Usage) {
        let Self { items, stores, evictions, expired } = self;
        usage.items += items.get();
        usage.stores += stores.get();
        usage.evictions += evictions.get();
        usage.expired += expired.get();
    }
}

/// Counters of `get`s by partition, of one stripe of one shard's lock. They follow the stripe's
/// lock, which the same readers write: those of the first partitions are on the same cache line or
/// its neighbour.
#[derive(Debug)]
pub(crate) struct Gets {
    first: [Outcomes; FIRST],
    others: Box<[EightPartitions]>,
}

/// Number of partitions whose counters directly follow the stripe's lock: with its 16 bytes they
/// fill a pair of cache lines, which processors fetch together.
const FIRST: usize = 6;

#[derive(Debug, Default)]
#[repr(align(128))]
struct EightPartitions([Outcomes; 8]);

/// Counts of a partition's `get`s that found an item that is not stale, and of all others.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) hits: Count,
    pub(crate) misses: Count,
}

impl Outcomes {
    /// Counts a `get` that saw an item with this visibility.
    #[inline(always)]
    pub(crate) fn count(&self, visibility: Visibility) {
        // A stale item is fetched again, so it counts as a miss.
        let outcome = if visibility == Visibility::Stale { &self.misses } else { &self.hits };
        outcome.increment();
    }
}

impl Gets {
    pub(crate) fn new(partitions: usize) -> Self {
        let others = partitions.saturating_sub(FIRST).div_ceil(8);
        Self { first: Default::default(), others: (0..others).map(|_| EightPartitions::default()).collect() }
    }

    /// Returns a copy of the counters of `get`s, for a copy of the cache.
    pub(crate) fn copy(&self) -> Self {
        let outcomes = |of: &Outcomes| Outcomes { hits: of.hits.copy(), misses: of.misses.copy() };
        Self {
            first: self.first.each_ref().map(outcomes),
            others: self
                .others
                .iter()
                .map(|eight| EightPartitions(eight.0.each_ref().map(outcomes)))
                .collect(),
        }
    }

    #[inline]
    pub(crate) fn of(&self, partition: PartitionId) -> &Outcomes {
        let index = partition.index();
        match self.first.get(index) {
            Some(outcomes) => outcomes,
            None => &self.others[(index - FIRST) / 8].0[(index - FIRST) % 8],
        }
    }
}

/// A number with one writer at a time (the holder of the shard's lock or of the stripe) and any
/// number of readers.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn copy(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }

    #[inline]
    pub(crate) fn increment(&self) {
        self.0.store(self.get() + 1, Relaxed);
    }

    pub(crate) fn decrement(&self) {
        self.0.store(self.get() - 1, Relaxed);
    }
}
