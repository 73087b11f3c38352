//! Iteration over a partition's items, a few at a time, during concurrent changes.
//!
//! An iterator would have to hold locks or copy; a cursor holds nothing between calls. A cursor
//! must not depend on the arrangement of items, or growth could make it skip some. It identifies a
//! range of hashes by shard, index segment and tag, all of which are derived from the key. The
//! index keeps its entries in that order, however segments grow and records move.

use sherwood_model::PartitionId;

use crate::access::Access;
use crate::engine::Cache;
use crate::item::Item;
use crate::shard::Range;

/// Entries visited per acquisition of a shard's lock.
const PER_LOCK: usize = 32;

/// Bits of a scan's cursor that hold the range of hashes; the bits above hold the shard.
const RANGE_BITS: u32 = Range::BITS;

impl Cache {
    /// Visits some items of a partition that `access` sees and returns the cursor to continue at,
    /// or 0 at the end. Begin with 0.
    ///
    /// An item that exists from the first call to the last is visited at least once, whatever else
    /// is stored, removed or moved meanwhile; an item that exists only part of the time may or may
    /// not be visited, and one that is removed and stored again may be visited twice. Counts no hit
    /// and leaves the recency unchanged.
    ///
    /// Visits `entries_max` entries (at least 1) of any partition, and those whose hashes agree
    /// with the last one's in 16 bits or more; 32 index segments, empty or not, count as one entry.
    /// A call may therefore visit no item and yet not be the last. A shard is locked for at most 32
    /// entries at a time; `visit` runs under the lock, should be short and must not call the cache.
    /// Cursors are below 2⁴⁸; an arbitrary number is accepted and starts at some position.
    pub fn scan(
        &self,
        partition: PartitionId,
        cursor: u64,
        access: &Access,
        entries_max: usize,
        mut visit: impl FnMut(&[u8], Item<'_>),
    ) -> u64 {
        self.scan_any(Some(partition), cursor, access, entries_max, |_, key, item| visit(key, item))
    }

    /// Like [`Self::scan`] for the items of all partitions; `visit` also receives the partition.
    pub fn scan_all(
        &self,
        cursor: u64,
        access: &Access,
        entries_max: usize,
        visit: impl FnMut(PartitionId, &[u8], Item<'_>),
    ) -> u64 {
        self.scan_any(None, cursor, access, entries_max, visit)
    }

    /// Visits items of `wanted`, or of any partition.
    fn scan_any(
        &self,
        wanted: Option<PartitionId>,
        cursor: u64,
        access: &Access,
        entries_max: usize,
        mut visit: impl FnMut(PartitionId, &[u8], Item<'_>),
    ) -> u64 {
        let mut at = Spot::of(cursor);
        let mut left = entries_max.max(1);
        while left > 0 {
            if at.shard >= self.shards.len() {
                return 0;
            }
            let (looked_at, next) = self.scan_shard(wanted, at, access, left.min(PER_LOCK), &mut visit);
            // A range may exceed the limit, and an arbitrary cursor may have no entries after it.
            left -= looked_at.clamp(1, left);
            at = match next {
                Some(range) => Spot { range, ..at },
                None => Spot { shard: at.shard + 1, range: 0 },
            };
        }
        if at.shard < self.shards.len() { at.cursor() } else { 0 }
    }

    /// Returns a cursor that begins a scan at a random hash, chosen by `draw`, to select a random
    /// item: each item is the first with a probability proportional to the gap between its hash and
    /// the one before, which is equal for all on average. O(1).
    #[must_use]
    pub fn scan_from(&self, draw: u64) -> u64 {
        let shard = (draw >> RANGE_BITS) as usize % self.shards.len();
        let ranges = self.shards[shard].lock(&self.ledger).ranges();
        Spot { shard, range: draw as Range % ranges }.cursor()
    }

    /// Visits up to `entries_max` entries of one shard; returns their number and the range to
    /// continue at, if any.
    fn scan_shard(
        &self,
        wanted: Option<PartitionId>,
        from: Spot,
        access: &Access,
        entries_max: usize,
        visit: &mut impl FnMut(PartitionId, &[u8], Item<'_>),
    ) -> (usize, Option<Range>) {
        let shard = self.shards[from.shard].lock(&self.ledger);
        shard.walk_by_hash(from.range, entries_max, |at| {
            let record = shard.record(at);
            let partition = record.partition();
            let is_wanted = wanted.is_none_or(|wanted| wanted == partition);
            if is_wanted && self.visibility(&record, access).is_seen() {
                visit(partition, record.key(), record.item());
            }
        })
    }
}

/// Position of a scan: a range of hashes of a shard. The first position is the cursor 0, which is
/// never returned to continue at.
#[derive(Clone, Copy, Debug)]
struct Spot {
    shard: usize,
    range: Range,
}

impl Spot {
    fn of(cursor: u64) -> Self {
        Self { shard: (cursor >> RANGE_BITS) as usize, range: cursor as Range }
    }

    fn cursor(self) -> u64 {
        (self.shard as u64) << RANGE_BITS | u64::from(self.range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sherwood_model::{BackendId, Instant, SeededState, TenantId};

    use super::*;
    use crate::{NewItem, Options, Partition};

    const A: PartitionId = PartitionId(0);
    const B: PartitionId = PartitionId(1);

    fn cache() -> Cache {
        let partition = |backend| Partition::new(TenantId(0), BackendId(backend), 8 << 20);
        let options = Options { total_bytes: 16 << 20, shards: 4, ..Options::default() };
        Cache::new(options, &[partition(0), partition(1)], SeededState::new(1)).unwrap()
    }

    fn at(millis: u64) -> Access {
        Access::at(Instant::from_millis(millis))
    }

    fn put(cache: &Cache, partition: PartitionId, key: u32) {
        cache.set(partition, &key.to_be_bytes(), NewItem::bytes(b"v"), &at(0)).unwrap();
    }

    /// Keys visited by a whole scan, with `between` run after each call.
    fn seen(
        cache: &Cache,
        partition: PartitionId,
        entries: usize,
        mut between: impl FnMut(&Cache),
    ) -> Vec<u32> {
        let mut keys = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = cache.scan(partition, cursor, &at(0), entries, |key, _| {
                keys.push(u32::from_be_bytes(key.try_into().unwrap()));
            });
            assert!(cursor < 1 << 48);
            if cursor == 0 {
                keys.sort_unstable();
                return keys;
            }
            between(cache);
        }
    }

    #[test]
    fn unchanged_partition_is_scanned_completely_and_once() {
        let cache = cache();
        assert!(seen(&cache, A, 10, |_| ()).is_empty());
        for key in 0..2000 {
            put(&cache, if key % 2 == 0 { A } else { B }, key);
        }
        let even: Vec<u32> = (0..2000).step_by(2).collect();
        for entries in [0, 7, 100, usize::MAX] {
            assert_eq!(seen(&cache, A, entries, |_| ()), even, "{entries} entries a call");
        }
    }

    #[test]
    fn scan_all_visits_items_of_all_partitions() {
        let cache = cache();
        for key in 0..2000 {
            put(&cache, if key % 3 == 0 { A } else { B }, key);
        }
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            cursor = cache.scan_all(cursor, &at(0), 100, |partition, key, _| {
                seen.push((u32::from_be_bytes(key.try_into().unwrap()), partition));
            });
            if cursor == 0 {
                break;
            }
        }
        seen.sort_unstable();
        let all: Vec<_> = (0..2000).map(|key| (key, if key % 3 == 0 { A } else { B })).collect();
        assert_eq!(seen, all);
    }

    #[test]
    fn dead_item_is_not_visited_by_a_scan() {
        let cache = cache();
        put(&cache, A, 1);
        let dying = NewItem { expires: Some(Instant::from_millis(5)), ..NewItem::bytes(b"v") };
        cache.set(A, &2_u32.to_be_bytes(), dying, &at(0)).unwrap();
        let count = |millis| {
            let mut count = 0;
            cache.scan(A, 0, &at(millis), usize::MAX, |_, _| count += 1);
            count
        };
        assert_eq!((count(4), count(5)), (2, 1));
    }

    #[test]
    fn scan_accepts_an_arbitrary_cursor() {
        let cache = cache();
        put(&cache, A, 1);
        for cursor in [1, u64::from(Range::MAX), 3 << RANGE_BITS, 4 << RANGE_BITS, u64::MAX] {
            assert!(cache.scan(A, cursor, &at(0), 1, |_, _| ()) < 1 << 48);
        }
    }

    #[test]
    fn scan_from_starts_at_different_items() {
        let cache = cache();
        for key in 0..1000 {
            put(&cache, A, key);
        }
        let first = |draw: u64| {
            let mut first = None;
            let cursor = cache.scan_from(draw.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            cache.scan(A, cursor, &at(0), usize::MAX, |key, _| {
                first.get_or_insert_with(|| key.to_vec());
            });
            first
        };
        let mut firsts: Vec<_> = (0..200).filter_map(first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 100, "{} of 200 draws began at different items", firsts.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Items that stay are visited although others come and go in such numbers that index and
        /// pages grow, and the background work moves items and returns memory.
        #[test]
        fn items_that_stay_are_scanned_during_concurrent_changes(entries in 1..200_usize, removed in 500..3000_u32, grown in 0..60_u32, seed: u32) {
            let cache = cache();
            for key in 0..3000 {
                put(&cache, A, key);
            }
            let stays = |key: u32| key.wrapping_mul(2_654_435_761).wrapping_add(seed) % 3000 >= removed;
            let mut gone = (0..3000).filter(|key| !stays(*key));
            let mut fresh = 10_000;
            let keys = seen(&cache, A, entries, |cache| {
                for key in gone.by_ref().take(entries) {
                    cache.remove(A, &key.to_be_bytes(), &at(0));
                }
                for _ in 0..grown {
                    put(cache, B, fresh);
                    fresh += 1;
                }
                cache.step(Instant::ZERO, 100);
            });
            for key in (0..3000).filter(|key| stays(*key)) {
                prop_assert!(keys.binary_search(&key).is_ok(), "{key} was there throughout and not seen");
            }
        }
    }
}
