//! What a partition holds and what happened in it.
//!
//! Counters are kept per shard and partition and written only under that shard's lock, so a writer
//! needs no atomic read-modify-write and a reader no lock. What a `get` counts is kept per stripe
//! of the lock, too: it holds no more than that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_model::PartitionId;

use crate::shard::Sight;

/// A partition (or all of them) at a glance. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What it may hold: its budget, or the total where all share.
    pub budget_bytes: u64,
    /// Charges of the items it holds, dead ones that were not reclaimed yet included.
    pub used_bytes: u64,
    /// Items it holds, dead ones that were not reclaimed yet included.
    pub items: u64,
    /// `get`s that found an item, and not a stale one.
    pub hits: u64,
    /// `get`s that found none or a stale one, whoever asked.
    pub misses: u64,
    /// Values stored, over an older one or not.
    pub stores: u64,
    /// Live items dropped for want of space.
    pub evictions: u64,
    /// Items dropped because their time had come or a flush had killed them, whoever noticed.
    pub expired: u64,
}

/// One shard's share of a partition's counters but those of `get`s, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    pub(crate) items: Count,
    pub(crate) stores: Count,
    pub(crate) evictions: Count,
    pub(crate) expired: Count,
}

impl Counters {
    /// The same, of a copy of the cache.
    pub(crate) fn copy(&self) -> Self {
        let Self { items, stores, evictions, expired } = self;
        Self {
            items: items.copy(),
            stores: stores.copy(),
            evictions: evictions.copy(),
            expired: expired.copy(),
        }
    }

    /// Adds this share to `usage`.
    pub(crate) fn add_to(&self, usage: &mut Usage) {
        let Self { items, stores, evictions, expired } = self;
        usage.items += items.get();
        usage.stores += stores.get();
        usage.evictions += evictions.get();
        usage.expired += expired.get();
    }
}

/// What the `get`s of one stripe of one shard have come to, by partition. It lies behind the
/// stripe's lock, which the same readers write: those of the first partitions on the same line or
/// its neighbour.
#[derive(Debug)]
pub(crate) struct Gets {
    first: [Outcomes; FIRST],
    others: Box<[EightPartitions]>,
}

/// So many that a lock of 16 bytes and they fill a pair of cache lines, which processors fetch
/// together.
const FIRST: usize = 6;

#[derive(Debug, Default)]
#[repr(align(128))]
struct EightPartitions([Outcomes; 8]);

/// How many `get`s of a partition found an item that is not stale, and how many did not.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) hits: Count,
    pub(crate) misses: Count,
}

impl Outcomes {
    /// Counts a `get` that saw an item, so.
    #[inline(always)]
    pub(crate) fn count(&self, sight: Sight) {
        // Whoever gets a stale one fetches another.
        let outcome = if sight == Sight::Stale { &self.misses } else { &self.hits };
        outcome.increment();
    }
}

impl Gets {
    pub(crate) fn new(partitions: usize) -> Self {
        let others = partitions.saturating_sub(FIRST).div_ceil(8);
        Self { first: Default::default(), others: (0..others).map(|_| EightPartitions::default()).collect() }
    }

    /// The same, of a copy of the cache.
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

/// A number with one writer at a time (the holder of the shard's lock, or of the stripe) and any
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
