//! What a partition holds and what happened in it.
//!
//! Counters are kept per shard and partition and written only under that shard's lock, so a writer needs no atomic
//! read-modify-write and a reader no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A partition (or all of them) at a glance. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What it may hold: its budget, or the total where all share.
    pub budget_bytes: u64,
    /// Charges of the items it holds, dead ones that were not reclaimed yet included.
    pub used_bytes: u64,
    /// Items it holds, dead ones that were not reclaimed yet included.
    pub items: u64,
    /// `get`s that found a live item.
    pub hits: u64,
    /// `get`s that did not.
    pub misses: u64,
    /// Values stored, over an older one or not.
    pub stores: u64,
    /// Live items dropped for want of space.
    pub evictions: u64,
    /// Items dropped because their time had come or a flush had killed them, whoever noticed.
    pub expired: u64,
}

/// One shard's share of a partition's counters, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    pub(crate) items: Count,
    pub(crate) hits: Count,
    pub(crate) misses: Count,
    pub(crate) stores: Count,
    pub(crate) evictions: Count,
    pub(crate) expired: Count,
}

impl Counters {
    /// Adds this share to `usage`.
    pub(crate) fn add_to(&self, usage: &mut Usage) {
        let Self { items, hits, misses, stores, evictions, expired } = self;
        usage.items += items.get();
        usage.hits += hits.get();
        usage.misses += misses.get();
        usage.stores += stores.get();
        usage.evictions += evictions.get();
        usage.expired += expired.get();
    }
}

/// A number with one writer at a time (the holder of the shard's lock) and any number of readers.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn increment(&self) {
        self.0.store(self.get() + 1, Relaxed);
    }

    pub(crate) fn decrement(&self) {
        self.0.store(self.get() - 1, Relaxed);
    }
}
