//! Selection and eviction of victims.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use sherwood_model::{Instant, PartitionId};

use crate::background::{CompactionStep, PER_LOCK};
use crate::engine::Cache;
use crate::options::Eviction;
use crate::shard::{Cause, EMPTY, Evicted, Handle, Locked, Record, Slack};

/// Number of times that other threads may free or use a victim between its selection and its
/// locking before a store gives up; the rest is left to the next store or step.
const TRIES: usize = 64;

/// Bytes that a store may evict towards a lowered ceiling per byte it stores. Chosen: items of
/// another size have replaced the old ones before they are an eighth of the cache.
pub(crate) const CEILING_PACE: u64 = 8;

/// Bytes that a store may move per byte it stores, while blocks and tables exceed their limit.
/// Chosen: a page worth emptying holds a few times as many bytes as it has free.
const MOVE_PACE: u64 = 8;

/// The items among which a victim is selected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pool {
    Partition(PartitionId),
    All,
}

/// Predicate: true while more bytes must be freed.
pub(crate) type Need<'a> = &'a dyn Fn() -> bool;

/// An item selected as a victim because it was the least recent.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    stamp: u64,
    shard: usize,
    set: usize,
}

impl Cache {
    /// Evicts for an item of charge `charge`, in a slot of `slot_bytes`, from the shard it goes
    /// to, before it is inserted: steps 3 and 4 of a store (see the crate's documentation) as far
    /// as this shard can. Under strict LRU only a cache of one shard does so: with several, two
    /// concurrent stores would both free bytes that only one of them exceeds. Under S3-FIFO this is
    /// accepted, at most one charge too many for each.
    pub(crate) fn evict_for(
        &self,
        shard: &mut Locked<'_>,
        partition: PartitionId,
        (charge, slot_bytes): (u64, usize),
        now: Instant,
    ) -> Evicted {
        if self.options.eviction == Eviction::Lru && self.shards.len() > 1 {
            return Evicted::default();
        }
        let excess = self.ledger.excess_with(partition, charge);
        if excess == 0 {
            return Evicted::default();
        }
        let pool = if self.ledger.is_shared() { Pool::All } else { Pool::Partition(partition) };
        let wanted = (excess.min(2 * charge), slot_bytes);
        match self.options.eviction {
            Eviction::Lru => shard.evict_for(partition, wanted, |shard| self.oldest_of_all(shard, pool, now)),
            Eviction::S3Fifo => {
                let is_dead = |record: &Record<'_>| self.is_dead(record, now);
                shard.evict_for(partition, wanted, |shard| shard.victim(self.sets(pool), &is_dead))
            }
        }
    }

    /// The oldest item of `pool` and the cause of its eviction, in a cache of one shard, which is
    /// locked.
    #[inline]
    fn oldest_of_all(&self, shard: &Locked<'_>, pool: Pool, now: Instant) -> Option<(Handle, Cause)> {
        let at = shard.oldest(self.oldest(pool)?.set)?;
        Some((at, self.cause(shard, at, now)))
    }

    /// Cause of the eviction of a queue's oldest item, at `at`; prefetches what the next eviction
    /// touches.
    #[inline]
    fn cause(&self, shard: &Locked<'_>, at: Handle, now: Instant) -> Cause {
        shard.prefetch_behind(at);
        if self.is_dead(&shard.record(at), now) { Cause::Expired } else { Cause::Evicted }
    }

    /// Bytes of blocks and tables, in use or free, which stores keep within the total plus a
    /// reserve of a tenth or 32 MiB. Takes no lock; O(1).
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.supply.held()
    }

    /// True if [`Self::make_room`] would select victims after a store into `partition`. The ceiling
    /// is at most the total.
    #[inline]
    pub(crate) fn exceeds_limits(&self, partition: PartitionId) -> bool {
        self.ledger.is_over(partition)
            || self.ledger.is_ceiling_over()
            || self.supply.held() > self.held_max()
    }

    /// Steps 3 to 5 of a store (see the crate's documentation) of an item of charge `charge`, for
    /// which `freed` bytes are freed already.
    pub(crate) fn make_room(&self, partition: PartitionId, charge: u64, freed: u64, now: Instant) {
        let own = |freed, is_over: Need<'_>| {
            let bytes = self.ledger.excess(partition).min(2 * charge - freed);
            self.evict(Pool::Partition(partition), bytes, is_over, now)
        };
        let most_over = |_, is_over: Need<'_>| self.evict_most_over(1, is_over, now);
        evict_while(freed, |freed| freed < 2 * charge && self.ledger.is_over(partition), own);
        evict_while(0, |freed| freed < CEILING_PACE * charge && self.ledger.is_ceiling_over(), most_over);
        if self.supply.held() > self.held_max() {
            self.enforce_memory_limit(charge, now);
        }
    }

    /// Keeps the bytes of blocks and tables within the total and its reserve after a store of
    /// charge `charge`: empties pages, and evicts items if that is not enough. This happens when
    /// the sizes of items change as a whole, or when many small items have expiries and flags. The
    /// work is bounded by the bytes stored.
    fn enforce_memory_limit(&self, charge: u64, now: Instant) {
        let is_over = || self.supply.held() > self.held_max();
        let mut moved = 0;
        for _ in 0..self.shards.len() {
            while is_over() && moved < MOVE_PACE * charge {
                let shard = self.next_relief.load(Relaxed) & (self.shards.len() - 1);
                let CompactionStep { bytes, is_done, .. } = self.compact_shard(shard, Slack::Any, PER_LOCK);
                moved += bytes;
                if is_done {
                    self.next_relief.store(shard + 1, Relaxed);
                    break;
                }
            }
        }
        let has_leave = |freed| moved < MOVE_PACE * charge && freed < CEILING_PACE * charge;
        let most_over = |_, is_over: Need<'_>| self.evict_most_over(1, is_over, now);
        evict_while(0, |freed| is_over() && has_leave(freed), most_over);
    }

    /// True if a partition is over its budget or the total is exceeded.
    pub(crate) fn is_over(&self) -> bool {
        self.ledger.total_excess() > 0 || self.ledger.most_over().is_some_and(|(_, excess)| excess > 0)
    }

    /// Evicts one item of the partition that is most over its budget (or nearest to it), or of all
    /// partitions under `Shared`; returns its charge. None if there is nothing to evict.
    pub(crate) fn evict_most_over(&self, bytes: u64, is_over: Need<'_>, now: Instant) -> Option<u64> {
        let pool = if self.ledger.is_shared() {
            Some(Pool::All)
        } else {
            self.ledger.most_over().map(|(partition, _)| Pool::Partition(partition))
        };
        self.evict(pool?, bytes, is_over, now)
    }

    fn evict(&self, pool: Pool, bytes: u64, is_over: Need<'_>, now: Instant) -> Option<u64> {
        match self.options.eviction {
            Eviction::Lru => self.evict_oldest(pool, is_over, now),
            Eviction::S3Fifo => self.evict_some(pool, bytes, 1, now).map(|evicted| evicted.bytes),
        }
    }

    /// Evicts at most `items_max` items of `pool` from one shard, until `bytes` are free; shards
    /// take turns. None if no shard has any.
    pub(crate) fn evict_some(
        &self,
        pool: Pool,
        bytes: u64,
        items_max: usize,
        now: Instant,
    ) -> Option<Evicted> {
        for _ in 0..self.shards.len() {
            let shard = &self.shards[self.next_shard.fetch_add(1, Relaxed) & (self.shards.len() - 1)];
            if let Pool::Partition(partition) = pool
                && shard.counters(partition).items.get() == 0
            {
                continue;
            }
            let mut shard = shard.lock(&self.ledger);
            let is_dead = |record: &Record<'_>| self.is_dead(record, now);
            let evicted = match pool {
                Pool::Partition(partition) if items_max > 1 => {
                    shard.evict_many(partition, self.sets(pool), bytes, items_max, is_dead)
                }
                _ => shard.evict(self.sets(pool), bytes, items_max, is_dead),
            };
            drop(shard);
            if evicted.items > 0 {
                return Some(evicted);
            }
        }
        None
    }

    /// Evicts the least recent item of `pool`; returns its charge, or 0 if another thread was
    /// faster. Concurrent stores and background steps therefore evict exactly the items that strict
    /// LRU would, and no more.
    fn evict_oldest(&self, pool: Pool, is_over: Need<'_>, now: Instant) -> Option<u64> {
        let oldest = self.oldest(pool)?;
        Some(self.evict_if_oldest(oldest, is_over, now).unwrap_or(0))
    }

    /// Evicts the item that was selected as the oldest, unless it no longer is (its queue's oldest
    /// may then not be the cache's) or enough is free.
    fn evict_if_oldest(&self, oldest: Oldest, is_over: Need<'_>, now: Instant) -> Option<u64> {
        let Oldest { stamp, shard, set } = oldest;
        let mut shard = self.shards[shard].lock(&self.ledger);
        let at = shard.oldest(set).filter(|&at| shard.record(at).stamp() == stamp)?;
        // Checked again under the lock that every competing thread must take.
        if !is_over() {
            return None;
        }
        let cause = self.cause(&shard, at, now);
        let victim = shard.remove(at, cause);
        drop(shard);
        Some(victim.charge)
    }

    /// The oldest item of `pool`, or, if deadlines are told apart, the one whose age in uses is
    /// largest in relation to the multiplier of its class. Read without a lock.
    #[inline]
    fn oldest(&self, pool: Pool) -> Option<Oldest> {
        let sets = self.sets(pool);
        if self.queue_sets > 1 {
            return self.oldest_by_class(sets);
        }
        let mut oldest = Oldest { stamp: EMPTY, shard: 0, set: 0 };
        for (number, shard) in self.shards.iter().enumerate() {
            for set in sets.clone() {
                let stamp = shard.oldest()[set].load(Relaxed);
                if stamp < oldest.stamp {
                    oldest = Oldest { stamp, shard: number, set };
                }
            }
        }
        (oldest.stamp != EMPTY).then_some(oldest)
    }

    /// The item with the largest age in relation to its class's multiplier, the less recent of
    /// equals.
    fn oldest_by_class(&self, sets: Range<usize>) -> Option<Oldest> {
        // The item used last has age 0, so a store does not evict the item that it has inserted.
        let newest = self.ticks.load(Relaxed) - 1;
        let mut oldest = None;
        let mut age_max = -1.0;
        for set in sets {
            let multiplier = self.deadlines.multiplier(set);
            for (number, shard) in self.shards.iter().enumerate() {
                let stamp = shard.oldest()[set].load(Relaxed);
                if stamp == EMPTY {
                    continue;
                }
                // Other threads may have used the item since then.
                let age = newest.saturating_sub(stamp) as f64 / multiplier;
                let is_older = oldest.is_none_or(|oldest: Oldest| stamp < oldest.stamp);
                if age > age_max || age == age_max && is_older {
                    age_max = age;
                    oldest = Some(Oldest { stamp, shard: number, set });
                }
            }
        }
        oldest
    }

    #[inline]
    fn sets(&self, pool: Pool) -> Range<usize> {
        let classes = self.queue_sets;
        match pool {
            Pool::Partition(partition) => partition.index() * classes..(partition.index() + 1) * classes,
            Pool::All => 0..self.partitions.len() * classes,
        }
    }
}

/// Calls `evict` until `is_over`, given the bytes freed so far, is false or there is nothing to
/// evict.
fn evict_while(mut freed: u64, is_over: impl Fn(u64) -> bool, evict: impl Fn(u64, Need<'_>) -> Option<u64>) {
    let mut tries = TRIES;
    while tries > 0 && is_over(freed) {
        match evict(freed, &|| is_over(freed)) {
            Some(0) => tries -= 1,
            Some(bytes) => freed += bytes,
            None => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{A, at, cache, has, put};

    #[test]
    fn selected_victim_that_was_used_or_is_not_needed_is_kept() {
        let cache = cache(&[u64::from(u32::MAX)], 4);
        for key in ["a1", "a2", "a3"] {
            put(&cache, A, key);
        }
        let (pool, now) = (Pool::Partition(A), Instant::from_millis(2));
        let oldest = cache.oldest(pool).expect("three items");
        cache.get(A, b"a1", &at(1), |_| ()).expect("a hit makes it the newest");
        assert_eq!(cache.evict_if_oldest(oldest, &|| true, now), None);
        let oldest = cache.oldest(pool).expect("three items");
        cache.remove(A, b"a2", &at(2));
        assert_eq!(cache.evict_if_oldest(oldest, &|| true, now), None);
        let oldest = cache.oldest(pool).expect("two items");
        assert_eq!(cache.evict_if_oldest(oldest, &|| false, now), None);
        assert!(has(&cache, A, "a1", &at(2)) && has(&cache, A, "a3", &at(2)));
        assert!(cache.evict_if_oldest(oldest, &|| true, now).is_some());
        assert!(has(&cache, A, "a1", &at(2)) && !has(&cache, A, "a3", &at(2)));
    }
}
