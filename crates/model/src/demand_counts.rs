//! Counts of what tenants ask of a backend, from which demand vectors are derived.

use crate::{Legs, Unit};

/// A tenant's reads and writes of a backend since the start: what they took, and what they would
/// take at any hit ratio. The difference of two gives the demand of the time between.
///
/// A read that the cache answered, a fetched key, a read that joined such a fetch, and a write are
/// a request each. Reads that failed or were refused are none. Bytes are those of key and value.
/// The hits are counted by the cache, in partitions that are metered; those of a look-aside
/// listener are among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemandCounts {
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads that a fetch answered.
    pub misses: u64,
    /// Reads that joined a fetch in flight, and took no units.
    pub joined: u64,
    /// Writes that were accepted.
    pub writes: u64,
    /// Units that all reads would take without a cache.
    pub read_units_if_miss: u64,
    /// Units of the writes.
    pub write_units: u64,
    /// Bytes of all reads.
    pub read_bytes: u64,
    /// Bytes of `misses`.
    pub fetched_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

impl DemandCounts {
    /// Number of reads and writes.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.hits + self.misses + self.joined + self.writes
    }

    /// Bytes of network if every read were a hit.
    #[must_use]
    pub fn network_if_hit(&self, legs: Legs) -> u64 {
        self.read_bytes + legs.count() * self.written_bytes
    }

    /// Bytes of network if every read were a miss.
    #[must_use]
    pub fn network_if_miss(&self, legs: Legs) -> u64 {
        legs.count() * (self.read_bytes + self.written_bytes)
    }

    /// Bytes of network that were used.
    #[must_use]
    pub fn network(&self, legs: Legs) -> u64 {
        self.network_if_hit(legs) + (legs.count() - 1) * self.fetched_bytes
    }

    /// Returns these counts with the hits of a partition, which would take so many units, and their
    /// bytes.
    #[must_use]
    pub fn with_hits(self, hits: u64, units: u64, bytes: u64) -> Self {
        Self {
            hits: self.hits + hits,
            read_units_if_miss: self.read_units_if_miss + units,
            read_bytes: self.read_bytes + bytes,
            ..self
        }
    }

    /// Counts a fetched key of so many bytes with its value, and the reads that waited for it, at
    /// least one.
    pub fn count_fetched(&mut self, unit: Unit, bytes: usize, waiters: usize) {
        let (bytes, waiters) = (bytes as u64, waiters as u64);
        self.misses += 1;
        self.joined += waiters - 1;
        self.read_units_if_miss += waiters * unit.of(bytes);
        self.read_bytes += waiters * bytes;
        self.fetched_bytes += bytes;
    }

    /// Counts a write of so many bytes of key and value.
    pub fn count_write(&mut self, unit: Unit, bytes: u64) {
        self.writes += 1;
        self.write_units += unit.of(bytes);
        self.written_bytes += bytes;
    }
}
