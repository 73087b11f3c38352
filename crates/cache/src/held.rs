//! Several operations without any other between: their shards stay locked meanwhile.
//!
//! Each operation of a [`Cache`] is atomic and locks one shard. A transaction needs more: its
//! operations on several keys have to look to everyone else as if they were one. [`Held`] locks the
//! shards of all its keys, in ascending order so that holders do not deadlock, and unlocks them
//! when it is dropped. Everything that a store leaves to be done without a lock, such as evictions
//! from other shards, is done then.

use sherwood_model::{Instant, PartitionId};

use crate::access::Access;
use crate::engine::Cache;
use crate::item::{Change, Item, Refused};
use crate::shard::{Locked, Lookup};

/// Shards of a cache, locked exclusively until this is dropped.
///
/// The thread that holds them must not call operations of the [`Cache`] that lock a shard, and must
/// not hold others: it would wait for itself. Partitions may exceed their budgets meanwhile, by the
/// bytes stored; what is over is evicted at the end.
#[derive(Debug)]
pub struct Held<'a> {
    cache: &'a Cache,
    /// The locked shards, by their numbers in ascending order.
    shards: Vec<(usize, Locked<'a>)>,
    now: Instant,
    /// Stores for which no room was made yet: one element per partition.
    unsettled: Vec<Unsettled>,
}

/// The sums over a partition's stores.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    partition: PartitionId,
    charge: u64,
    /// Bytes that the stores have evicted from their own shards.
    freed: u64,
}

impl Cache {
    /// Locks the shards of `keys` in ascending order. `now` is the time at which room is made for
    /// what is stored. O(n log n).
    #[must_use]
    pub fn hold<'k>(
        &self,
        keys: impl IntoIterator<Item = (PartitionId, &'k [u8])>,
        now: Instant,
    ) -> Held<'_> {
        let shard = |(partition, key)| self.shard_of(self.lookup(partition, key).hash);
        let mut numbers: Vec<usize> = keys.into_iter().map(shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.hold_shards(numbers, now)
    }

    /// Locks all shards, for changes that concern every key. O(shards).
    #[must_use]
    pub fn hold_all(&self, now: Instant) -> Held<'_> {
        self.hold_shards((0..self.shards.len()).collect(), now)
    }

    fn hold_shards(&self, ascending: Vec<usize>, now: Instant) -> Held<'_> {
        let lock = |number: usize| (number, self.shards[number].lock(&self.ledger));
        Held { cache: self, shards: ascending.into_iter().map(lock).collect(), now, unsettled: Vec::new() }
    }
}

/// # Panics
/// Every method panics if the shard of its key is not held.
impl<'a> Held<'a> {
    /// Reads an item like [`Cache::get`].
    pub fn get<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let cache = self.cache;
        let lookup = cache.lookup(partition, key);
        cache.note_get(&lookup);
        cache.get_in(self.shard(&lookup), &lookup, access, read)
    }

    /// Reads an item like [`Cache::peek`].
    pub fn peek<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let cache = self.cache;
        let lookup = cache.lookup(partition, key);
        let shard = self.shard(&lookup);
        let record = shard.record(shard.find(&lookup)?);
        cache.visibility(&record, access).is_seen().then(|| read(record.item()))
    }

    /// Reads and changes an item like [`Cache::update`].
    ///
    /// # Errors
    /// Like [`Cache::update`].
    pub fn update<'c, R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> Result<R, Refused> {
        let cache = self.cache;
        let lookup = cache.lookup(partition, key);
        let (result, _, stored) = cache.update_in(self.shard(&lookup), &lookup, access, decide)?;
        let (charge, freed) = cache.note_stored(&lookup, stored);
        match self.unsettled.iter_mut().find(|known| known.partition == partition) {
            Some(known) => {
                known.charge += charge;
                known.freed += freed;
            }
            None => self.unsettled.push(Unsettled { partition, charge, freed }),
        }
        Ok(result)
    }

    fn shard(&mut self, lookup: &Lookup<'_>) -> &mut Locked<'a> {
        let number = self.cache.shard_of(lookup.hash);
        let place = self.shards.binary_search_by_key(&number, |(number, _)| *number);
        &mut self.shards[place.expect("the shard of the key is held")].1
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shards.clear();
        for Unsettled { partition, charge, freed } in self.unsettled.drain(..) {
            self.cache.settle_bytes(partition, (charge, freed), self.now);
        }
    }
}
