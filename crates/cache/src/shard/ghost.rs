//! Keys that were dropped recently.
//!
//! S3-FIFO admits a new item to a small queue. An item that returns soon after it was dropped from
//! there goes to the main queue directly. An item that was dropped from the main queue starts in
//! the small queue again, but its return is counted for the sizes of the queues (see
//! [`super::balance`]). The shard therefore records half as many dropped keys as it holds items
//! (the paper's 0.9, and twice as many, hit less on Zipf 0.99 in simulations). A record is 15 bits
//! of the key's hash and its queue, in buckets that overwrite their oldest: one look-up in 4,000 to
//! 16,000 matches a wrong key, whose only effect is a place in the wrong queue.

use std::sync::Arc;

use crate::lines;
use crate::memory::Supply;

/// Dropped keys recorded per bucket.
const WAYS: usize = 8;
/// Largest number of items per bucket; above it the number of buckets is doubled.
const ITEMS_MAX: usize = 2 * WAYS;
/// Least number of items per bucket; below it the number of buckets is halved.
const ITEMS_MIN: usize = WAYS / 2;
/// Number of items in the shard per dropped key that is recorded.
const ITEMS_PER_KEY: usize = 2;
/// Flag of keys dropped from the main queue.
const WAS_MAIN: u16 = 1 << 15;

/// Recently dropped keys of a shard, recorded in 1 to 2 bytes per item of the shard.
#[derive(Debug)]
pub(super) struct Ghost {
    /// Recorded bits of dropped keys by bucket, from newest to oldest; 0 for none.
    buckets: Vec<[u16; WAYS]>,
    supply: Arc<Supply>,
}

impl Ghost {
    pub(super) fn new(supply: Arc<Supply>) -> Self {
        Self { buckets: Vec::new(), supply }
    }

    /// Returns a copy of the recorded keys, for a copy of the cache.
    pub(super) fn copy(&self, supply: &Arc<Supply>) -> Self {
        // With the capacity of the original, which determines its next growth and counts as held.
        let mut buckets = Vec::with_capacity(self.buckets.capacity());
        buckets.extend_from_slice(&self.buckets);
        supply.resized(0, buckets.capacity() * size_of::<[u16; WAYS]>());
        Self { buckets, supply: Arc::clone(supply) }
    }

    /// Records the hash of a dropped key and its queue. `items` is the number of items in the
    /// shard.
    pub(super) fn remember(&mut self, hash: u64, was_main: bool, items: usize) {
        self.fit(items);
        let (at, ways) = (self.bucket(hash), self.ways(items));
        let bucket = &mut self.buckets[at];
        bucket.copy_within(..WAYS - 1, 1);
        bucket[0] = print(hash) | if was_main { WAS_MAIN } else { 0 };
        bucket[ways..].fill(0);
    }

    /// Prefetches the memory that [`Self::remember`] and [`Self::recall`] will access.
    pub(super) fn prefetch(&self, hash: u64) {
        if !self.buckets.is_empty() {
            lines::element(&self.buckets, self.bucket(hash));
        }
    }

    /// Returns whether a recorded key was dropped from the main queue, and removes it; none if it
    /// is not recorded.
    pub(super) fn recall(&mut self, hash: u64) -> Option<bool> {
        if self.buckets.is_empty() {
            return None;
        }
        let at = self.bucket(hash);
        let bucket = &mut self.buckets[at];
        let way = bucket.iter().position(|&known| known & !WAS_MAIN == print(hash))?;
        let was_main = bucket[way] & WAS_MAIN != 0;
        bucket.copy_within(way + 1.., way);
        bucket[WAYS - 1] = 0;
        Some(was_main)
    }

    /// Keys that a bucket keeps: their number follows that of the items between two doublings, too.
    fn ways(&self, items: usize) -> usize {
        (items / (ITEMS_PER_KEY * self.buckets.len())).clamp(1, WAYS)
    }

    /// Doubles or halves the buckets with the number of items. Doubling copies each bucket: each
    /// key is then in the bucket it belongs to, and its other copy is overwritten eventually.
    fn fit(&mut self, items: usize) {
        let before = self.buckets.capacity();
        let buckets = self.buckets.len();
        if buckets == 0 {
            self.buckets = vec![[0; WAYS]; 1];
        } else if items > buckets * ITEMS_MAX {
            let copy = self.buckets.clone();
            self.buckets.reserve_exact(buckets);
            self.buckets.extend(copy);
        } else if buckets > 1 && items < buckets * ITEMS_MIN {
            self.buckets.truncate(buckets / 2);
            self.buckets.shrink_to_fit();
        }
        if self.buckets.capacity() != before {
            let bytes = size_of::<[u16; WAYS]>();
            self.supply.resized(before * bytes, self.buckets.capacity() * bytes);
        }
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash >> 16) as usize & (self.buckets.len() - 1)
    }
}

/// Returns the bits of a dropped key's hash that are recorded.
fn print(hash: u64) -> u16 {
    (hash as u16 & !WAS_MAIN).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn dropped_key_is_recalled_once_and_overwritten_by_newer_ones() {
        let mut ghost = Ghost::new(Supply::new(Arc::new(Heap)));
        assert_eq!(ghost.recall(hash(1)), None);
        for was_main in [false, true] {
            ghost.remember(hash(1), was_main, ITEMS_MAX);
            assert_eq!([ghost.recall(hash(1)), ghost.recall(hash(1))], [Some(was_main), None]);
        }
        ghost.remember(hash(2), false, ITEMS_MAX);
        (0..WAYS as u64).for_each(|number| ghost.remember(hash(100 + number), true, ITEMS_MAX));
        assert_eq!(ghost.recall(hash(2)), None);
    }

    #[test]
    fn half_as_many_dropped_keys_as_items_are_recorded() {
        for items in [1000_usize, 1400, 2000, 2800] {
            let mut ghost = Ghost::new(Supply::new(Arc::new(Heap)));
            (0..20_000).for_each(|number| ghost.remember(hash(number), false, items));
            let recalled = (0..20_000).filter(|&number| ghost.recall(hash(number)).is_some()).count();
            assert!((items * 2 / 5..=items / 2 + 8).contains(&recalled), "{recalled} for {items} items");
        }
    }

    #[test]
    fn buckets_of_dropped_keys_follow_the_number_of_items_and_keep_keys() {
        let supply = Supply::new(Arc::new(Heap));
        let mut ghost = Ghost::new(Arc::clone(&supply));
        (0..4000).for_each(|number| ghost.remember(hash(number), false, number as usize + 1));
        let recalled = (3000..4000).filter(|&number| ghost.recall(hash(number)).is_some()).count();
        assert!(recalled > 800, "{recalled} of the last 1000");
        assert!(supply.held() <= 2 * 4000, "{} bytes", supply.held());
        (0..100).for_each(|number| ghost.remember(hash(number), false, 8));
        assert!(supply.held() <= 64, "{} bytes", supply.held());
    }
}
