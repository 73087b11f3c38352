//! Keys that were here a while ago.
//!
//! S3-FIFO lets a new item prove itself in a small queue. One that comes back soon after it was
//! dropped from there has proved itself late, and goes to the main queue at once. One that was
//! dropped from the main queue starts anew, but that it comes back tells how long the queues should
//! be (see [`super::balance`]). So the shard remembers half as many dropped keys as it holds items
//! (the paper's 0.9, and twice as many, kept less of Zipf 0.99 in simulations). Only 15 bits of a
//! key's hash are kept and where it was, in buckets that forget their oldest: one look-up in 4,000
//! to 16,000 is mistaken for a key of before, which costs nothing but a place in the wrong queue.

use std::sync::Arc;

use crate::memory::Supply;
use crate::prefetch;

/// Keys a bucket has room for.
const WAYS: usize = 8;
/// Items for each bucket from which on there are twice as many buckets.
const ITEMS_MAX: usize = 2 * WAYS;
/// Items for each bucket below which half of the buckets go.
const ITEMS_MIN: usize = WAYS / 2;
/// Items for each key that is remembered.
const ITEMS_PER_KEY: usize = 2;
/// Tells those dropped from the main queue.
const WAS_MAIN: u16 = 1 << 15;

/// A memory of keys, 1 to 2 bytes for each item of the shard.
#[derive(Debug)]
pub(super) struct Ghost {
    /// From the newest to the oldest; 0 for none.
    buckets: Vec<[u16; WAYS]>,
    supply: Arc<Supply>,
}

impl Ghost {
    pub(super) fn new(supply: Arc<Supply>) -> Self {
        Self { buckets: Vec::new(), supply }
    }

    /// The same, of a copy of the cache.
    pub(super) fn copy(&self, supply: &Arc<Supply>) -> Self {
        // As large as the original, which decides when it grows next and counts as held.
        let mut buckets = Vec::with_capacity(self.buckets.capacity());
        buckets.extend_from_slice(&self.buckets);
        supply.resized(0, buckets.capacity() * size_of::<[u16; WAYS]>());
        Self { buckets, supply: Arc::clone(supply) }
    }

    /// Remembers the key with this hash and the queue that it was dropped from. `items` says how
    /// many the shard holds.
    pub(super) fn remember(&mut self, hash: u64, was_main: bool, items: usize) {
        self.fit(items);
        let (at, ways) = (self.bucket(hash), self.ways(items));
        let bucket = &mut self.buckets[at];
        bucket.copy_within(..WAYS - 1, 1);
        bucket[0] = print(hash) | if was_main { WAS_MAIN } else { 0 };
        bucket[ways..].fill(0);
    }

    /// Asks for the memory that [`Self::remember`] and [`Self::recall`] will touch.
    pub(super) fn prefetch(&self, hash: u64) {
        if !self.buckets.is_empty() {
            prefetch::element(&self.buckets, self.bucket(hash));
        }
    }

    /// Whether the key with this hash, if it is remembered, was dropped from the main queue;
    /// forgets it.
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

    /// Keys that a bucket remembers: their number follows that of the items also between two
    /// doublings.
    fn ways(&self, items: usize) -> usize {
        (items / (ITEMS_PER_KEY * self.buckets.len())).clamp(1, WAYS)
    }

    /// Doubles or halves with the number of items. Doubling copies each bucket: a key is then in
    /// the one of the two that it belongs to, and the other forgets it in time.
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

/// The bits of a hash that are kept.
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
    fn a_key_is_recalled_once_and_forgotten_after_enough_others() {
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
    fn it_remembers_half_as_many_keys_as_there_are_items() {
        for items in [1000_usize, 1400, 2000, 2800] {
            let mut ghost = Ghost::new(Supply::new(Arc::new(Heap)));
            (0..20_000).for_each(|number| ghost.remember(hash(number), false, items));
            let recalled = (0..20_000).filter(|&number| ghost.recall(hash(number)).is_some()).count();
            assert!((items * 2 / 5..=items / 2 + 8).contains(&recalled), "{recalled} for {items} items");
        }
    }

    #[test]
    fn it_grows_and_shrinks_with_the_items_and_keeps_what_it_knew() {
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
