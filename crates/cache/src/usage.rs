//! Usage and counters of partitions.
//!
//! Counters are kept per shard and partition and written only under that shard's lock, so a writer
//! needs no atomic read-modify-write and a reader no lock. The counters of `get`s are kept per
//! stripe of the lock, since a `get` holds only one stripe.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
    /// Bytes of key and value of the items in `hits`; 0 unless the partition is
    /// [metered](crate::Partition::metered).
    pub hit_bytes: u64,
    /// Units of the backend's reads that those items would have taken; 0 unless it is metered.
    pub hit_units: u64,
    /// Values stored, new or over an older one.
    pub stores: u64,
    /// Live items evicted for space.
    pub evictions: u64,
    /// Items removed or overwritten after they had expired or been flushed.
    pub expired: u64,
}

/// Usage of one deadline class of a partition. Counts are since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassUsage {
    /// Upper bound of the class's deadlines; the last class holds longer ones, too. None in a
    /// partition with one class.
    pub upto: Option<Duration>,
    /// The class's multiplier; those of a partition sum to the number of its classes.
    pub multiplier: f64,
    /// Number of items, including dead ones that are not reclaimed yet.
    pub items: u64,
    /// Charges of these items.
    pub bytes: u64,
    /// `get`s that found an item that is not stale: by the class of the access, or without one by
    /// that of the item.
    pub hits: u64,
    /// `get`s that found no item or a stale one: by the class of the access; without one, those
    /// that found no item count in the last class.
    pub misses: u64,
    /// Missed deadlines that the cache was told of; 0 in a partition with one class.
    pub deadline_missed: u64,
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
    /// The other partitions, from the front; from the back queue sets, if they are counted, and
    /// then the sizes of hits of each partition, if any is metered.
    others: Box<[EightOutcomes]>,
}

/// Number of partitions whose counters directly follow the stripe's lock: with its 16 bytes they
/// fill a pair of cache lines, which processors fetch together.
const FIRST: usize = 6;

#[derive(Debug, Default)]
#[repr(align(128))]
struct EightOutcomes([Outcomes; 8]);

/// Counts of a partition's `get`s that found an item that is not stale, and of all others.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) hits: Count,
    pub(crate) misses: Count,
}

impl Outcomes {
    /// Counts a `get` that saw an item with this visibility, or none.
    #[inline(always)]
    pub(crate) fn count(&self, seen: Option<Visibility>) {
        // A stale item is fetched again, so it counts as a miss.
        let outcome = if seen == Some(Visibility::Fresh) { &self.hits } else { &self.misses };
        outcome.increment();
    }
}

impl Gets {
    /// Returns counters for this many partitions, and for `sets` queue sets and sizes of hits.
    pub(crate) fn new(partitions: usize, sets: usize) -> Self {
        let others = partitions.saturating_sub(FIRST).div_ceil(8) + sets.div_ceil(8);
        Self { first: Default::default(), others: (0..others).map(|_| EightOutcomes::default()).collect() }
    }

    /// Returns a copy of the counters of `get`s, for a copy of the cache.
    pub(crate) fn copy(&self) -> Self {
        let outcomes = |of: &Outcomes| Outcomes { hits: of.hits.copy(), misses: of.misses.copy() };
        Self {
            first: self.first.each_ref().map(outcomes),
            others: self.others.iter().map(|eight| EightOutcomes(eight.0.each_ref().map(outcomes))).collect(),
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

    /// Counts the size of a hit. `place` follows those of the queue sets.
    pub(crate) fn count_size(&self, place: usize, bytes: u64, units: u64) {
        let Outcomes { hits: sum_of_bytes, misses: sum_of_units } = self.of_set(place);
        sum_of_bytes.add(bytes);
        sum_of_units.add(units);
    }

    /// Returns the sums of the bytes and the units of hits that were counted at `place`.
    pub(crate) fn sizes(&self, place: usize) -> (u64, u64) {
        let Outcomes { hits: sum_of_bytes, misses: sum_of_units } = self.of_set(place);
        (sum_of_bytes.get(), sum_of_units.get())
    }

    /// Counters of a queue set.
    pub(crate) fn of_set(&self, set: usize) -> &Outcomes {
        &self.others[self.others.len() - 1 - set / 8].0[set % 8]
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

    pub(crate) fn copy(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }

    #[inline]
    pub(crate) fn increment(&self) {
        self.0.store(self.get() + 1, Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get() + more, Relaxed);
    }

    pub(crate) fn decrement(&self) {
        self.0.store(self.get() - 1, Relaxed);
    }
}
