//! Who goes when space is needed.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use sherwood_model::{Instant, PartitionId};

use crate::background::{PER_LOCK, Relief};
use crate::engine::Cache;
use crate::options::Eviction;
use crate::shard::{Cause, EMPTY, Evicted, Locked};

/// How often a victim may be taken away by another thread between finding and locking it before the caller gives up.
/// Each time, that thread has freed space; what is left to do is left to the next store or step.
const TRIES: usize = 64;

/// Bytes a store may evict towards a lowered ceiling for each byte it brings. Chosen: items of another size have taken the
/// place of the old ones before they themselves are an eighth of the cache.
const CEILING_PACE: u64 = 8;

/// Bytes a store may move for each byte it brings, while blocks and tables take more than they may. Chosen: a page that is
/// worth emptying holds a few times as many bytes as it has free.
const MOVE_PACE: u64 = 8;

/// The items among which a victim is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pool {
    Partition(PartitionId),
    All,
}

impl Cache {
    /// Under S3-FIFO, makes room for an item charged `charge` in the shard it goes to, before it is there: steps 3 and 4 of a
    /// store (see the crate's documentation) as far as this shard can.
    pub(crate) fn make_way(
        &self,
        shard: &mut Locked<'_>,
        partition: PartitionId,
        charge: u64,
        now: Instant,
    ) -> Evicted {
        let excess = match self.options.eviction {
            Eviction::Lru => 0,
            Eviction::S3Fifo => self.ledger.excess_with(partition, charge),
        };
        if excess == 0 {
            return Evicted::default();
        }
        let pool = if self.ledger.is_shared() { Pool::All } else { Pool::Partition(partition) };
        let bytes = excess.min(2 * charge);
        shard.make_way(partition, self.lanes(pool), bytes, |record| self.is_dead(record, now))
    }

    /// Steps 3 to 5 of a store (see the crate's documentation) of an item charged `charge`, for which `freed` bytes have
    /// gone already.
    pub(crate) fn make_room(&self, partition: PartitionId, charge: u64, mut freed: u64, now: Instant) {
        while freed < 2 * charge && self.ledger.is_over(partition) {
            let bytes = self.ledger.excess(partition).min(2 * charge - freed);
            match self.evict(Pool::Partition(partition), bytes, now) {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
        while self.ledger.is_total_over() && self.evict_most_over(1, now).is_some() {}
        let mut freed = 0;
        while freed < CEILING_PACE * charge && self.ledger.is_ceiling_over() {
            match self.evict_most_over(1, now) {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
        if self.supply.held() > self.held_max {
            self.relieve(charge, now);
        }
    }

    /// Holds what blocks and tables take to the total and its reserve, after a store charged `charge`: pages are emptied, and
    /// where that is of no use, items go. That comes about where the sizes of items change altogether, or where many small
    /// ones have expiries and flags. Bounded by the bytes stored.
    fn relieve(&self, charge: u64, now: Instant) {
        let is_over = || self.supply.held() > self.held_max;
        let mut moved = 0;
        for _ in 0..self.shards.len() {
            while is_over() && moved < MOVE_PACE * charge {
                let shard = self.next_relief.load(Relaxed) & (self.shards.len() - 1);
                let Relief { bytes, is_done } = self.compact_shard(shard, PER_LOCK);
                moved += bytes;
                if is_done {
                    self.next_relief.store(shard + 1, Relaxed);
                    break;
                }
            }
        }
        let mut freed = 0;
        while is_over() && moved < MOVE_PACE * charge && freed < CEILING_PACE * charge {
            match self.evict_most_over(1, now) {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
    }

    /// Whether a partition is over its budget or the total is exceeded.
    pub(crate) fn is_over(&self) -> bool {
        self.ledger.is_total_over() || self.ledger.most_over().is_some_and(|(_, excess)| excess > 0)
    }

    /// Evicts one item of the partition most over its budget (or nearest to it), or of all where they share; returns what it
    /// was charged. None when there is nothing to evict.
    pub(crate) fn evict_most_over(&self, bytes: u64, now: Instant) -> Option<u64> {
        let pool = if self.ledger.is_shared() {
            Some(Pool::All)
        } else {
            self.ledger.most_over().map(|(partition, _)| Pool::Partition(partition))
        };
        self.evict(pool?, bytes, now)
    }

    fn evict(&self, pool: Pool, bytes: u64, now: Instant) -> Option<u64> {
        match self.options.eviction {
            Eviction::Lru => self.evict_oldest(pool, now),
            Eviction::S3Fifo => self.evict_some(pool, bytes, 1, now).map(|evicted| evicted.bytes),
        }
    }

    /// Takes at most `items_max` items out of `pool`, of one shard, until `bytes` are free; the shards take turns. None when
    /// no shard has any.
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
            let evicted = shard.evict(self.lanes(pool), bytes, items_max, |record| self.is_dead(record, now));
            drop(shard);
            if evicted.items > 0 {
                return Some(evicted);
            }
        }
        None
    }

    /// Takes the least recent item out of `pool`; returns what it was charged.
    fn evict_oldest(&self, pool: Pool, now: Instant) -> Option<u64> {
        for _ in 0..TRIES {
            let (shard, lane) = self.oldest(pool)?;
            let mut shard = self.shards[shard].lock(&self.ledger);
            let Some(at) = shard.oldest(lane) else { continue };
            let cause = if self.is_dead(&shard.record(at), now) { Cause::Expired } else { Cause::Evicted };
            let victim = shard.remove(at, cause);
            drop(shard);
            return Some(victim.charge);
        }
        None
    }

    /// Shard and lane of the oldest item of `pool`, read without a lock. This is the one place that compares recency:
    /// deadline classes will weigh the stamps of their lanes here.
    fn oldest(&self, pool: Pool) -> Option<(usize, usize)> {
        let lanes = self.lanes(pool);
        let mut oldest = (EMPTY, None);
        for (number, shard) in self.shards.iter().enumerate() {
            for lane in lanes.clone() {
                let stamp = shard.oldest()[lane].load(Relaxed);
                if stamp < oldest.0 {
                    oldest = (stamp, Some((number, lane)));
                }
            }
        }
        oldest.1
    }

    fn lanes(&self, pool: Pool) -> Range<usize> {
        let classes = usize::from(self.options.deadline_classes);
        match pool {
            Pool::Partition(partition) => partition.index() * classes..(partition.index() + 1) * classes,
            Pool::All => 0..self.partitions.len() * classes,
        }
    }
}
