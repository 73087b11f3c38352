//! Reading several keys of a partition, one after another, at less than the price of each.
//!
//! A request asks for tens of keys at a time, and reading them one by one hashes each twice (once to ask for its memory, once
//! to find it) and takes a lock for each. Under strict LRU, where every hit is a change and takes the lock whole, keys of
//! one shard that follow each other are read here under one lock. What comes of it is what [`Cache::get`] brings for one after
//! another.

use sherwood_model::PartitionId;

use crate::access::Access;
use crate::engine::Cache;
use crate::item::Item;
use crate::options::Eviction;
use crate::prefetch::PREFETCH_KEYS_MAX;
use crate::shard::{Handle, Lookup, NO_HANDLE};

impl Cache {
    /// Reads the items of `keys` in turn, each as [`Self::get`] does, with the memory that the look-ups read asked for ahead. `see`
    /// is given a key's position and its item, or none, in the order of the keys.
    ///
    /// At most [`PREFETCH_KEYS_MAX`] keys are read under one hold of a lock.
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
        for hashes in hashes.chunk_by(|&a, &b| self.shard_of(a) == self.shard_of(b)) {
            let keys = &keys[first..first + hashes.len()];
            self.get_alike(partition, (keys, hashes), access, |position, item| see(first + position, item));
            first += hashes.len();
        }
    }

    /// Reads keys of one shard, with their hashes, under strict LRU.
    fn get_alike<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        (keys, hashes): (&[K], &[u64]),
        access: &Access,
        mut see: impl FnMut(usize, Option<Item<'_>>),
    ) {
        let mut shard = self.shards[self.shard_of(hashes[0])].lock(&self.ledger);
        let mut ahead = [NO_HANDLE; PREFETCH_KEYS_MAX];
        shard.look_ahead(hashes, &mut ahead);
        // Whether the index is as it was.
        let mut is_known = true;
        for (position, (key, &hash)) in keys.iter().zip(hashes).enumerate() {
            let lookup = Lookup { partition, key: key.as_ref(), hash };
            self.note_get(&lookup);
            let found: Option<Handle> = match is_known {
                true => shard.find_ahead(&lookup, ahead[position]),
                false => shard.find(&lookup),
            };
            let live = found.filter(|&at| !self.is_dead(&shard.record(at), access.now));
            if live.is_none() && found.is_some() {
                is_known = false;
            }
            self.end_get(&mut shard, partition, (found, live), access, |item| see(position, item));
        }
    }
}
