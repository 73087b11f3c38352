//! Reads of several keys of a partition at less than the cost of single reads.
//!
//! A request reads tens of keys. Single reads with prefetching hash each key twice (to prefetch its
//! memory and to find it) and lock for each key. Under strict LRU, where every hit changes the
//! recency queue and takes the lock exclusively, consecutive keys of one shard are read here under
//! one lock, up to a bound on the bytes of their values. The results equal those of [`Cache::get`]
//! called for one key after another.

use sherwood_model::PartitionId;

use crate::access::Access;
use crate::engine::Cache;
use crate::item::{Item, Value};
use crate::options::Eviction;
use crate::prefetch::PREFETCH_KEYS_MAX;
use crate::shard::{Handle, Lookup, NO_HANDLE, Visibility};

/// Bytes of values after which a lock is released before the next key is read: the caller may copy
/// values under the lock while other threads wait. Chosen: one or two microseconds of copying.
const SEEN_BYTES_A_HOLD: usize = 16 << 10;

impl Cache {
    /// Reads the items of `keys` in order, each like [`Self::get`], with their memory prefetched.
    /// `see` receives each key's position and its item, or none.
    ///
    /// At most [`PREFETCH_KEYS_MAX`] keys are read under one acquisition of a lock, and none after
    /// 16 KiB of values.
    pub fn get_each<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        keys: &[K],
        access: &Access,
        mut see: impl FnMut(usize, Option<Item<'_>>),
    ) {
        let mut first = 0;
        for keys in keys.chunks(PREFETCH_KEYS_MAX) {
            let mut see = |position: usize, item: Option<Item<'_>>| see(first + position, item);
            match self.options.eviction {
                Eviction::Lru if keys.len() > 1 => self.get_chunk(partition, keys, access, &mut see),
                // A single key is read as by `get`, whose misses take no tick of the ages that
                // deadline classes are compared by.
                Eviction::Lru | Eviction::S3Fifo => {
                    if keys.len() > 1 {
                        self.prefetch(keys.iter().map(|key| (partition, key.as_ref())));
                    }
                    for (position, key) in keys.iter().enumerate() {
                        let found =
                            self.get(partition, key.as_ref(), access, |item| see(position, Some(item)));
                        if found.is_none() {
                            see(position, None);
                        }
                    }
                }
            }
            first += keys.len();
        }
    }

    /// Reads at most [`PREFETCH_KEYS_MAX`] keys under strict LRU.
    fn get_chunk<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        keys: &[K],
        access: &Access,
        see: &mut impl FnMut(usize, Option<Item<'_>>),
    ) {
        let mut hashes = [0; PREFETCH_KEYS_MAX];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.lookup(partition, key.as_ref()).hash;
        }
        if self.shards.len() > 1 && keys.len() > 1 {
            // Runs of one shard are short, so all memory is prefetched first, sorted by shard.
            let mut by_shard = hashes;
            self.prefetch_hashes(&mut by_shard[..keys.len()]);
        }
        let hashes = &hashes[..keys.len()];
        let mut first = 0;
        for alike in hashes.chunk_by(|&a, &b| self.shard_of(a) == self.shard_of(b)) {
            let end = first + alike.len();
            while first < end {
                let alike = (&keys[first..end], &hashes[first..end]);
                first += self.get_alike(partition, alike, access, |at, item| see(first + at, item));
            }
        }
    }

    /// Reads keys of one shard, given with their hashes, under strict LRU and one acquisition of
    /// its lock; returns how many were read.
    fn get_alike<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        (keys, hashes): (&[K], &[u64]),
        access: &Access,
        mut see: impl FnMut(usize, Option<Item<'_>>),
    ) -> usize {
        let mut shard = self.shards[self.shard_of(hashes[0])].lock(&self.ledger);
        let mut ahead = [NO_HANDLE; PREFETCH_KEYS_MAX];
        shard.prefetch_ahead(hashes, &mut ahead);
        let flush_floor = self.flushes.floor(partition, access.now, &self.ticks);
        let grace = || self.grace(partition);
        // One tick per key; those of misses stay unused.
        let first_tick = self.use_ticks(keys.len() as u64);
        // True while the index is unchanged.
        let mut is_known = true;
        let mut seen_bytes = 0;
        for (position, (key, &hash)) in keys.iter().zip(hashes).enumerate() {
            let lookup = Lookup { partition, key: key.as_ref(), hash };
            self.note_get(&lookup);
            let found: Option<Handle> = match is_known {
                true => shard.find_ahead(&lookup, ahead[position]),
                false => shard.find(&lookup),
            };
            let found = found.map(|at| (at, shard.record(at).visibility(access, flush_floor, grace)));
            if matches!(found, Some((_, Visibility::Dead))) {
                is_known = false;
            }
            let tick = first_tick + position as u64;
            self.end_get(&mut shard, partition, found, (access, || tick), |item| {
                if let Some(Item { value: Value::Bytes(bytes), .. }) = item {
                    seen_bytes += bytes.len();
                }
                see(position, item);
            });
            if seen_bytes >= SEEN_BYTES_A_HOLD {
                return position + 1;
            }
        }
        keys.len()
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::Instant;

    use super::*;
    use crate::item::NewItem;
    use crate::tests::{A, cache};

    const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    /// Returns the number of [`KEYS`], each with `value`, that are read under one acquisition of
    /// the lock; checks that all are read once and in order.
    fn read_at_once(value: Value<'_>) -> usize {
        let cache = cache(&[1 << 20], 1);
        let access = Access::at(Instant::ZERO);
        for key in KEYS {
            let item = NewItem { value, ..NewItem::bytes(b"") };
            cache.set(A, key.as_bytes(), item, &access).expect("it fits");
        }
        let mut seen = Vec::new();
        cache.get_each(A, &KEYS, &access, |position, item| {
            assert_eq!(item.map(|item| item.value), Some(value));
            seen.push(position);
        });
        assert_eq!(seen, (0..KEYS.len()).collect::<Vec<_>>());
        assert_eq!(cache.usage(A).hits, KEYS.len() as u64);
        let hashes = KEYS.map(|key| cache.lookup(A, key.as_bytes()).hash);
        cache.get_alike(A, (&KEYS, &hashes), &access, |_, _| ())
    }

    #[test]
    fn bytes_read_under_one_lock_are_bounded() {
        assert_eq!(read_at_once(Value::Bytes(&[1; 100])), 8);
        assert_eq!(read_at_once(Value::Bytes(&[1; SEEN_BYTES_A_HOLD / 4])), 4);
        assert_eq!(read_at_once(Value::Bytes(&[1; 2 * SEEN_BYTES_A_HOLD])), 1);
        // A declared value is not copied.
        assert_eq!(read_at_once(Value::Declared(100_000)), 8);
    }
}
