//! The keys that are read most, of a sample of the reads.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal and El Abbadi, ICDT 2005): a fixed number of
//! counters, of which a new key takes over the smallest. A key with more than a `1 / counters` part
//! of all reads always has one, and its count is too high by at most the smallest count.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Instant, PartitionId, SeededState};

/// Time after which a count weighs half. Chosen: the window of requests by default.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Counters of all partitions together, and the fewest and most of each.
const COUNTERS_TOTAL: usize = 8_192;
const COUNTERS_MIN: usize = 8;
const COUNTERS_MAX: usize = 64;
/// Hashes that are compared at once.
const CHUNK: usize = 8;
/// Longest key that is counted, bytes: the longest that the cache has by default.
const KEY_BYTES_MAX: usize = 250;

/// The keys of each partition that are read most. Threads may share it; each partition has a lock
/// of its own.
///
/// Memory: 64 keys a partition, with more than 128 partitions 8,192 divided by their number, at
/// least 8; a key has up to 250 bytes, some of them left by a longer one, and 48 more.
#[derive(Debug)]
pub struct HotKeys {
    partitions: Box<[Mutex<Counters>]>,
    counters_max: usize,
    /// Finds a counter; clients cannot predict it.
    hash: SeededState,
}

/// A key that is read often, and its part of the reads of its partition.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The key without the prefix that selects its partition.
    pub key: Box<[u8]>,
    /// Part of the reads that are of this key, 0 to 1, those of earlier minutes at half their
    /// weight each.
    pub share: f64,
    /// The share that may be another key's, which was counted before: at most `share`.
    pub error: f64,
}

impl HotKeys {
    /// Creates the counts of `partitions` partitions. Clients that cannot predict `seed` cannot
    /// make look-ups of counters slow.
    #[must_use]
    pub fn new(partitions: usize, seed: u64) -> Self {
        let counters_max = (COUNTERS_TOTAL / partitions.max(1)).clamp(COUNTERS_MIN, COUNTERS_MAX);
        let partitions = (0..partitions).map(|_| Mutex::default()).collect();
        Self { partitions, counters_max, hash: SeededState::new(seed) }
    }

    /// Counts a sampled read of a key. An unknown partition and a key of more than 250 bytes are
    /// ignored. O(counters of the partition).
    pub fn note(&self, partition: PartitionId, key: &[u8]) {
        if let Some(counters) = self.partitions.get(partition.index()).filter(|_| key.len() <= KEY_BYTES_MAX)
        {
            lock(counters).count(self.hash.hash_bytes(key) as u32, key, self.counters_max);
        }
    }

    /// Halves all counts once a minute. To be called every second or so.
    pub fn fade(&self, now: Instant) {
        self.partitions.iter().for_each(|counters| lock(counters).fade(now));
    }

    /// Returns at most `max` keys of a partition, the one that is read most first, and the number
    /// of sampled reads that their shares are of; nothing for an unknown partition.
    #[must_use]
    pub fn top(&self, partition: PartitionId, max: usize) -> (Vec<HotKey>, u64) {
        self.partitions.get(partition.index()).map_or_else(Default::default, |of| lock(of).top(max))
    }
}

fn lock(counters: &Mutex<Counters>) -> MutexGuard<'_, Counters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counters of one partition.
#[derive(Debug, Default)]
struct Counters {
    /// The hash of each counter's key, beside each other so that a search reads little memory.
    hashes: Vec<u32>,
    counters: Vec<Counter>,
    /// Number of all reads.
    reads: u64,
    /// No counter has fewer reads.
    least_reads: u64,
    /// The position from which a counter with so few is searched.
    next: usize,
    halved_at: Instant,
}

#[derive(Debug)]
struct Counter {
    reads: u64,
    /// The part of `reads` that was taken over with the counter.
    error: u64,
    key: Vec<u8>,
}

impl Counters {
    fn count(&mut self, hash: u32, key: &[u8], counters_max: usize) {
        self.reads += 1;
        if let Some(at) = self.find(hash, key) {
            self.counters[at].reads += 1;
            return;
        }
        if self.counters.len() < counters_max {
            self.hashes.push(hash);
            self.counters.push(Counter { reads: 1, error: 0, key: key.to_vec() });
            return;
        }
        let at = self.least();
        self.hashes[at] = hash;
        let counter = &mut self.counters[at];
        counter.error = counter.reads;
        counter.reads += 1;
        counter.key.clear();
        counter.key.reserve_exact(key.len());
        counter.key.extend_from_slice(key);
    }

    /// Returns the position of the counter of a key.
    fn find(&self, hash: u32, key: &[u8]) -> Option<usize> {
        let has = |at: &usize| self.hashes[*at] == hash && self.counters[*at].key == key;
        let (chunks, rest) = self.hashes.as_chunks::<CHUNK>();
        let found = chunks.iter().enumerate().find_map(|(number, hashes)| {
            // All of a chunk at once: most have none.
            let any = hashes.iter().fold(false, |any, &other| any | (other == hash));
            let first = number * CHUNK;
            if any { (first..first + CHUNK).find(has) } else { None }
        });
        found.or_else(|| (self.hashes.len() - rest.len()..self.hashes.len()).find(has))
    }

    /// Returns the position of a counter with the fewest reads. O(1) amortized: counts only grow
    /// between two fadings, and each counter is passed once for each number of reads.
    fn least(&mut self) -> usize {
        let len = self.counters.len();
        let at_least = (0..len).map(|step| (self.next + step) % len);
        let found = at_least.clone().find(|&at| self.counters[at].reads <= self.least_reads);
        let at = found.or_else(|| at_least.min_by_key(|&at| self.counters[at].reads)).unwrap_or(0);
        self.least_reads = self.counters[at].reads;
        self.next = (at + 1) % len.max(1);
        at
    }

    fn fade(&mut self, now: Instant) {
        let halvings = now.since(self.halved_at).as_nanos() / HALF_LIFE.as_nanos();
        if halvings == 0 {
            return;
        }
        self.halved_at = now;
        let half = |count: u64| count.checked_shr(halvings.min(64) as u32).unwrap_or(0);
        self.reads = half(self.reads);
        (self.least_reads, self.next) = (0, 0);
        for counter in &mut self.counters {
            counter.reads = half(counter.reads);
            counter.error = half(counter.error);
        }
        let mut counters = self.counters.iter();
        self.hashes.retain(|_| counters.next().is_some_and(|counter| counter.reads > 0));
        self.counters.retain(|counter| counter.reads > 0);
    }

    fn top(&self, max: usize) -> (Vec<HotKey>, u64) {
        let mut sorted: Vec<&Counter> = self.counters.iter().collect();
        sorted.sort_by(|a, b| b.reads.cmp(&a.reads).then_with(|| a.key.cmp(&b.key)));
        let share = |reads: u64| reads as f64 / self.reads.max(1) as f64;
        let key = |counter: &Counter| HotKey {
            key: counter.key.as_slice().into(),
            share: share(counter.reads),
            error: share(counter.error),
        };
        (sorted.into_iter().take(max).map(key).collect(), self.reads)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PARTITION: PartitionId = PartitionId(0);

    fn top(keys: &HotKeys) -> Vec<HotKey> {
        keys.top(PARTITION, usize::MAX).0
    }

    proptest! {
        #[test]
        fn frequent_keys_are_found_and_counts_are_within_their_error(reads in prop::collection::vec(0u8..30, 1..600)) {
            let keys = HotKeys::new(8_192 / 16, 7);
            let mut exact: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for read in &reads {
                let key = format!("key:{read}").into_bytes();
                keys.note(PARTITION, &key);
                *exact.entry(key).or_default() += 1;
            }
            let (found, total) = keys.top(PARTITION, usize::MAX);
            prop_assert_eq!(total, reads.len() as u64);
            prop_assert!(found.len() <= 16);
            for HotKey { key, share, error } in &found {
                let real = exact[key.as_ref()] as f64 / total as f64;
                prop_assert!(*share >= real - 1e-9 && *share - *error <= real + 1e-9, "{} {} {}", share, error, real);
            }
            for (key, count) in exact {
                let is_found = found.iter().any(|hot| *hot.key == *key);
                prop_assert!(is_found || count * 16 <= total, "{} of {}", count, total);
            }
        }
    }

    #[test]
    fn keys_are_sorted_by_reads_within_their_partition() {
        let keys = HotKeys::new(2, 7);
        for key in ["b", "a", "b", "c", "b", "a"] {
            keys.note(PARTITION, key.as_bytes());
        }
        keys.note(PartitionId(1), b"x");
        let found: Vec<_> = top(&keys).into_iter().map(|hot| (hot.key[0], hot.share, hot.error)).collect();
        assert_eq!(found, [(b'b', 0.5, 0.0), (b'a', 2.0 / 6.0, 0.0), (b'c', 1.0 / 6.0, 0.0)]);
        assert_eq!(keys.top(PARTITION, 1).0.len(), 1);
        assert_eq!(keys.top(PartitionId(1), 9).0[0].key.as_ref(), b"x");
    }

    #[test]
    fn reads_of_a_minute_ago_weigh_half_and_vanish_in_time() {
        let keys = HotKeys::new(1, 7);
        (0..8).for_each(|_| keys.note(PARTITION, b"old"));
        keys.fade(Instant::from_secs(60));
        (0..4).for_each(|_| keys.note(PARTITION, b"new"));
        assert_eq!(keys.top(PARTITION, 9).1, 8);
        assert_eq!(top(&keys).iter().map(|hot| hot.share).collect::<Vec<_>>(), [0.5, 0.5]);
        keys.fade(Instant::from_secs(119));
        assert_eq!(keys.top(PARTITION, 9).1, 8, "once a minute");
        keys.fade(Instant::from_secs(7_000));
        assert_eq!(keys.top(PARTITION, 9), (Vec::new(), 0));
    }

    #[test]
    fn memory_is_bounded_and_what_cannot_be_counted_is_ignored() {
        let keys = HotKeys::new(1, 7);
        (0..1_000_u32).for_each(|key| keys.note(PARTITION, &key.to_le_bytes()));
        assert_eq!(top(&keys).len(), COUNTERS_MAX);
        keys.note(PARTITION, &[b'k'; KEY_BYTES_MAX + 1]);
        keys.note(PartitionId(1), b"unknown");
        assert_eq!(keys.top(PARTITION, 9).1, 1_000);
        assert_eq!(keys.top(PartitionId(1), 9), (Vec::new(), 0));
        assert_eq!([HotKeys::new(4_096, 7).counters_max, HotKeys::new(0, 7).counters_max], [8, 64]);
    }
}
