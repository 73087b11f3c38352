//! Reading several keys of a partition, one after another, at less than the price of each.
//!
//! A request asks for tens of keys at a time, and reading them one by one hashes each twice (once to ask for its memory, once
//! to find it) and takes a lock for each. Under strict LRU, where every hit is a change and takes the lock whole, keys of
//! one shard that follow each other are read here under one lock, until as much was seen as may be copied under one. What comes
//! of it is what [`Cache::get`] brings for one after another.

use sherwood_model::PartitionId;

use crate::access::Access;
use crate::engine::Cache;
use crate::item::{Item, NewItem, Refused, Value};
use crate::options::Eviction;
use crate::prefetch::PREFETCH_KEYS_MAX;
use crate::shard::{Handle, Lookup, NO_HANDLE, Noted};

/// Bytes of values after which a lock is let go of before the next key is read: whoever sees a value may copy it under the lock, and
/// others wait. Chosen: a microsecond or two of copying.
const SEEN_BYTES_A_HOLD: usize = 16 << 10;

impl Cache {
    /// Reads the items of `keys` in turn, each as [`Self::get`] does, with the memory that the look-ups read asked for ahead. `see`
    /// is given a key's position and its item, or none, in the order of the keys.
    ///
    /// At most [`PREFETCH_KEYS_MAX`] keys are read under one hold of a lock, and none after 16 KiB of values were seen under it.
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
                Eviction::Lru => self.get_chunk(partition, keys, access, &mut see),
                Eviction::S3Fifo => {
                    self.prefetch(keys.iter().map(|key| (partition, key.as_ref())));
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
        self.by_shard(partition, keys, |first, keys, hashes| {
            self.get_alike(partition, (keys, hashes), access, |position, item| see(first + position, item))
        });
    }

    /// Calls `hold` with what is left of each run of keys of one shard, with the position of the first and their hashes, until it has
    /// said of all that they are done. At most [`PREFETCH_KEYS_MAX`] keys.
    fn by_shard<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        keys: &[K],
        mut hold: impl FnMut(usize, &[K], &[u64]) -> usize,
    ) {
        let mut hashes = [0; PREFETCH_KEYS_MAX];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.lookup(partition, key.as_ref()).hash;
        }
        if self.shards.len() > 1 && keys.len() > 1 {
            // Runs of one shard are short, so what all will read is asked for first, in an order of its own.
            let mut by_shard = hashes;
            self.prefetch_hashes(&mut by_shard[..keys.len()]);
        }
        let hashes = &hashes[..keys.len()];
        let mut first = 0;
        for alike in hashes.chunk_by(|&a, &b| self.shard_of(a) == self.shard_of(b)) {
            let end = first + alike.len();
            while first < end {
                first += hold(first, &keys[first..end], &hashes[first..end]);
            }
        }
    }

    /// Reads keys of one shard, with their hashes, under strict LRU and one hold of its lock; returns how many.
    fn get_alike<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        (keys, hashes): (&[K], &[u64]),
        access: &Access,
        mut see: impl FnMut(usize, Option<Item<'_>>),
    ) -> usize {
        let mut shard = self.shards[self.shard_of(hashes[0])].lock(&self.ledger);
        let mut ahead = [NO_HANDLE; PREFETCH_KEYS_MAX];
        shard.look_ahead(hashes, &mut ahead);
        let flush_floor = self.flushes.floor(partition, access.now, &self.ticks);
        // One each; those of misses are nobody's.
        let first_tick = self.use_ticks(keys.len() as u64);
        // Whether the index is as it was.
        let mut is_known = true;
        let mut seen_bytes = 0;
        for (position, (key, &hash)) in keys.iter().zip(hashes).enumerate() {
            let lookup = Lookup { partition, key: key.as_ref(), hash };
            self.note_get(&lookup);
            let found: Option<Handle> = match is_known {
                true => shard.find_ahead(&lookup, ahead[position]),
                false => shard.find(&lookup),
            };
            let live = found.filter(|&at| !shard.record(at).is_dead(access.now, flush_floor));
            if live.is_none() && found.is_some() {
                is_known = false;
            }
            let tick = first_tick + position as u64;
            self.end_get(&mut shard, partition, (found, live), (access, || tick), |item| {
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

    /// Replays a part of a trace: looks each of `keys` up in turn as [`Self::get`] does, and where nothing is found stores what
    /// `size` says, given the key's position, as [`Self::add`] does a declared size. Returns how many items were refused.
    ///
    /// What comes of it is what those two bring, one key after another. Under strict LRU it costs less, since a look-up and the
    /// store after it share the hash and the lock, and so do keys of one shard that follow each other: at most
    /// [`PREFETCH_KEYS_MAX`] are served under one hold of a lock, for which others have to wait.
    pub fn replay<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        keys: &[K],
        access: &Access,
        mut size: impl FnMut(usize) -> u32,
    ) -> usize {
        let (mut first, mut refused) = (0, 0);
        for keys in keys.chunks(PREFETCH_KEYS_MAX) {
            let mut new = |position| NewItem::declared(size(first + position));
            match self.options.eviction {
                Eviction::Lru => self.by_shard(partition, keys, |first, keys, hashes| {
                    let new = |position| new(first + position);
                    let (served, refusal) = self.replay_alike(partition, (keys, hashes), access, new);
                    refused += usize::from(refusal.is_some());
                    served
                }),
                Eviction::S3Fifo => {
                    self.prefetch(keys.iter().map(|key| (partition, key.as_ref())));
                    for (position, key) in keys.iter().enumerate() {
                        if self.get(partition, key.as_ref(), access, |_| ()).is_none() {
                            let added = self.add(partition, key.as_ref(), new(position), access);
                            refused += usize::from(added.is_err());
                        }
                    }
                }
            }
            first += keys.len();
        }
        refused
    }

    /// Replays keys of one shard, with their hashes, under strict LRU and one hold of its lock, until there is something to do that
    /// wants the lock free; returns how many, and why the last of them was refused, if it was.
    fn replay_alike<'k, K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        (keys, hashes): (&'k [K], &[u64]),
        access: &Access,
        mut new: impl FnMut(usize) -> NewItem<'k>,
    ) -> (usize, Option<Refused>) {
        let mut shard = self.shards[self.shard_of(hashes[0])].lock(&self.ledger);
        // What they name stays an item for as long as no place is given back, though another's where it took the place.
        let mut ahead = [NO_HANDLE; PREFETCH_KEYS_MAX];
        shard.look_ahead(hashes, &mut ahead);
        let flush_floor = self.flushes.floor(partition, access.now, &self.ticks);
        let first_tick = self.use_ticks(keys.len() as u64);
        for (position, (key, &hash)) in keys.iter().zip(hashes).enumerate() {
            let lookup = Lookup { partition, key: key.as_ref(), hash };
            self.note_get(&lookup);
            let found = match ahead[position] {
                NO_HANDLE => shard.find(&lookup),
                at => shard.find_ahead(&lookup, at),
            };
            let live = found.filter(|&at| !shard.record(at).is_dead(access.now, flush_floor));
            let tick = first_tick + position as u64;
            self.end_get(&mut shard, partition, (found, live), (access, || tick), |_| ());
            if live.is_some() {
                continue;
            }
            let item = new(position);
            if let Err(refused) = self.admit(&lookup, item.value.len()) {
                return (position + 1, Some(refused));
            }
            let mut record = self.new_record(lookup.key, item, Noted::default());
            let stored = self.put_at(&mut shard, &lookup, None, &mut record, (access, tick));
            if found.is_some() || !stored.is_exchange() || self.lacks_room(partition) {
                drop(shard);
                self.settle(&lookup, stored, access);
                return (position + 1, None);
            }
            self.note_store(&lookup, stored.charge);
        }
        (keys.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::Instant;

    use super::*;
    use crate::tests::{A, cache};

    /// How many of eight keys are read under one hold of the lock, whose values are `value`.
    fn read_at_once(value: Value<'_>) -> usize {
        let cache = cache(&[1 << 20], 1);
        let access = Access::at(Instant::ZERO);
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for key in keys {
            let item = NewItem { value, flags: 0, expires: None };
            cache.set(A, key.as_bytes(), item, &access).expect("it fits");
        }
        let hashes = keys.map(|key| cache.lookup(A, key.as_bytes()).hash);
        cache.get_alike(A, (&keys, &hashes), &access, |_, item| {
            assert_eq!(item.map(|item| item.value), Some(value))
        })
    }

    #[test]
    fn what_is_seen_under_one_hold_of_a_lock_is_bounded() {
        assert_eq!(read_at_once(Value::Bytes(&[1; 100])), 8);
        assert_eq!(read_at_once(Value::Bytes(&[1; SEEN_BYTES_A_HOLD / 4])), 4);
        assert_eq!(read_at_once(Value::Bytes(&[1; 2 * SEEN_BYTES_A_HOLD])), 1);
        // Which nobody copies.
        assert_eq!(read_at_once(Value::Declared(100_000)), 8);
    }
}
