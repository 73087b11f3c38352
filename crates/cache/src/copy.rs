//! A copy of a cache with all its items.
//!
//! Warming up a simulated cache takes time, and simulations that differ only afterwards would
//! repeat it. A copy continues as the original would: counters, recency, positions of items and
//! ghosts are copied too, so equal operations give equal results and equal evictions in both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use crate::cache_padded::CachePadded;
use crate::engine::Cache;
use crate::memory::{Memory, Supply};

impl Cache {
    /// Returns a copy of this cache, with its items in blocks of `memory` and nothing shared. Takes
    /// `&mut self` so that no other thread changes a part of it meanwhile. O(bytes of blocks and
    /// tables), and as much additional memory.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sherwood_cache::{Access, Cache, Heap, NewItem, Options, Partition};
    /// use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};
    ///
    /// let partition = Partition::new(TenantId(0), BackendId(0), 1 << 20);
    /// let options = Options { total_bytes: 1 << 20, ..Options::default() };
    /// let mut cache = Cache::new(options, &[partition], SeededState::new(7))?;
    /// let (partition, access) = (PartitionId(0), Access::at(Instant::from_secs(1)));
    /// cache.set(partition, b"there", NewItem::bytes(b"1"), &access)?;
    /// let copy = cache.copy(Arc::new(Heap));
    /// cache.set(partition, b"later", NewItem::bytes(b"2"), &access)?;
    /// let has = |key: &[u8]| copy.get(partition, key, &access, |_| ()).is_some();
    /// assert_eq!([has(b"there"), has(b"later")], [true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn copy(&mut self, memory: Arc<dyn Memory>) -> Self {
        let Self {
            options,
            partitions,
            hash,
            shards,
            ledger,
            flushes,
            ghosts,
            deadlines,
            queue_sets,
            sizes_at,
            ticks,
            next_death,
            background,
            timeline,
            supply: _,
            held_max,
            next_relief,
            next_shard,
        } = self;
        let supply = Supply::new(memory);
        let (mut balances, deadlines) = (None, Arc::new(deadlines.copy()));
        Self {
            options: *options,
            partitions: partitions.clone(),
            hash: *hash,
            shards: shards.iter_mut().map(|shard| shard.copy(&supply, &mut balances, &deadlines)).collect(),
            ledger: ledger.copy(),
            flushes: flushes.copy(),
            ghosts: ghosts.copy(),
            deadlines,
            queue_sets: *queue_sets,
            sizes_at: *sizes_at,
            ticks: CachePadded(AtomicU64::new(*ticks.0.get_mut())),
            next_death: AtomicU64::new(*next_death.get_mut()),
            background: Mutex::new(*background.get_mut().unwrap_or_else(PoisonError::into_inner)),
            timeline: timeline.copy(),
            supply,
            held_max: AtomicU64::new(*held_max.get_mut()),
            next_relief: AtomicUsize::new(*next_relief.get_mut()),
            next_shard: AtomicUsize::new(*next_shard.get_mut()),
        }
    }
}
