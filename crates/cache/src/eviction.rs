//! Who goes when space is needed.

use std::sync::atomic::Ordering::Relaxed;

use sherwood_model::{Instant, PartitionId};

use crate::engine::Cache;
use crate::shard::{Cause, EMPTY};

/// How often a victim may be taken away by another thread between finding and locking it before the caller gives up.
/// Each time, that thread has freed space; what is left to do is left to the next store or step.
const TRIES: usize = 64;

/// Bytes a store may evict towards a lowered ceiling for each byte it brings. Chosen: items of another size have taken the
/// place of the old ones before they themselves are an eighth of the cache.
const CEILING_PACE: u64 = 8;

/// The items among which a victim is looked for.
#[derive(Clone, Copy, Debug)]
enum Pool {
    Partition(PartitionId),
    All,
}

impl Cache {
    /// Steps 3 to 5 of a store (see the crate's documentation) of an item charged `charge`.
    pub(crate) fn make_room(&self, partition: PartitionId, charge: u64, now: Instant) {
        let mut freed = 0;
        while freed < 2 * charge && self.ledger.is_over(partition) {
            match self.evict(Pool::Partition(partition), now) {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
        while self.ledger.is_total_over() && self.evict_most_over(now).is_some() {}
        let mut freed = 0;
        while freed < CEILING_PACE * charge && self.ledger.is_ceiling_over() {
            match self.evict_most_over(now) {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
    }

    /// Whether a partition is over its budget or the total is exceeded.
    pub(crate) fn is_over(&self) -> bool {
        self.ledger.is_total_over() || self.ledger.most_over().is_some_and(|(_, excess)| excess > 0)
    }

    /// Evicts one item of the partition most over its budget (or nearest to it), or the oldest of all where they share;
    /// returns what it was charged. None when there is nothing to evict.
    pub(crate) fn evict_most_over(&self, now: Instant) -> Option<u64> {
        let pool = if self.ledger.is_shared() {
            Some(Pool::All)
        } else {
            self.ledger.most_over().map(|(partition, _)| Pool::Partition(partition))
        };
        self.evict(pool?, now)
    }

    /// Takes the least recent item out of `pool`; returns what it was charged.
    fn evict(&self, pool: Pool, now: Instant) -> Option<u64> {
        for _ in 0..TRIES {
            let (shard, queue) = self.oldest(pool)?;
            let mut shard = self.shards[shard].lock(&self.ledger);
            let Some(slot) = shard.oldest(queue) else { continue };
            let cause = if self.is_dead(shard.entry(slot), now) { Cause::Expired } else { Cause::Evicted };
            let victim = shard.remove(slot, cause);
            drop(shard);
            return Some(victim.charge());
        }
        None
    }

    /// Shard and queue of the oldest item of `pool`, read without a lock. This is the one place that compares recency:
    /// deadline classes will weigh the stamps of their queues here.
    fn oldest(&self, pool: Pool) -> Option<(usize, usize)> {
        let classes = usize::from(self.options.deadline_classes);
        let queues = match pool {
            Pool::Partition(partition) => partition.index() * classes..(partition.index() + 1) * classes,
            Pool::All => 0..self.partitions.len() * classes,
        };
        let mut oldest = (EMPTY, None);
        for (number, shard) in self.shards.iter().enumerate() {
            for queue in queues.clone() {
                let stamp = shard.oldest()[queue].load(Relaxed);
                if stamp < oldest.0 {
                    oldest = (stamp, Some((number, queue)));
                }
            }
        }
        oldest.1
    }
}
