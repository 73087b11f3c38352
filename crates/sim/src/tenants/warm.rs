//! Caches filled as after a long time of the same load.

use sherwood_cache::{Access, Cache, NewItem, charge};
use sherwood_model::{Instant, PartitionId};
use sherwood_workload::Operation;
use sherwood_workload::tenants::{Operations, Scenario};
use std::time::Duration;

use super::clients::operations;
use super::key::{KEY_BYTES, Key};

/// Streams of operations that fill the cache, one for each partition. Their draws are not those of
/// the clients.
pub(super) struct Warm {
    streams: Vec<Stream>,
}

struct Stream {
    tenant: u16,
    operations: Operations,
    value_bytes: u32,
    draws: u64,
}

/// Number of a process that no tenant has, for the streams' seeds.
const PROCESS: u64 = 2_000;
/// Operations per key, and per item that fits the whole cache; the smaller number counts. An LRU
/// queue, and the curves, are then those of a cache that has seen the load for long.
const PER_KEY: u64 = 4;
const PER_ITEM: u64 = 8;

impl Warm {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut streams = Vec::new();
        for (index, tenant) in scenario.tenants.iter().enumerate() {
            let operations = operations(tenant, seed, index as u64, PROCESS);
            streams.extend(tenant.loads.iter().zip(operations).map(|(load, operations)| {
                let value_bytes = (load.item_bytes() - u64::from(KEY_BYTES)) as u32;
                let item = charge(KEY_BYTES as usize, value_bytes as usize);
                let draws = (load.keys * PER_KEY).min(scenario.cache_bytes() / item * PER_ITEM);
                Stream { tenant: index as u16, operations, value_bytes, draws }
            }));
        }
        Self { streams }
    }

    /// Stores every key once, the least popular ones first, and then reads and fills the cache,
    /// partition by partition in turns.
    pub(super) fn fill(&mut self, cache: &Cache, now: Instant) {
        let most = self.streams.iter().map(|stream| stream.operations.keys()).max().unwrap_or(0);
        for rank in (0..most).rev() {
            for (partition, stream) in self.streams.iter().enumerate() {
                if rank < stream.operations.keys() {
                    stream.store(cache, PartitionId::from_index(partition), rank, &Access::at(now));
                }
            }
        }
        let turns = self.streams.iter().map(|stream| stream.draws).max().unwrap_or(0);
        let access = Access::at(now);
        for turn in 0..turns {
            for (partition, stream) in self.streams.iter_mut().enumerate() {
                if turn < stream.draws {
                    stream.touch(cache, PartitionId::from_index(partition), &access);
                }
            }
        }
    }
}

impl Stream {
    fn touch(&mut self, cache: &Cache, partition: PartitionId, access: &Access) {
        let (rank, is_read) = match self.operations.next(Duration::ZERO) {
            Operation::Get(rank) => (rank, true),
            Operation::Set(rank) => (rank, false),
        };
        let key = Key::new(self.tenant, rank);
        if !is_read || cache.get(partition, key.as_ref(), access, |_| ()).is_none() {
            self.store(cache, partition, rank, access);
        }
    }

    fn store(&self, cache: &Cache, partition: PartitionId, rank: u64, access: &Access) {
        let key = Key::new(self.tenant, rank);
        // An item that is larger than its partition is not kept, here as later.
        let _ = cache.set(partition, key.as_ref(), NewItem::declared(self.value_bytes), access);
    }
}
