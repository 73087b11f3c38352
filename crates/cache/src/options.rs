//! Options of the engine, validated before anything is allocated.

use std::time::Duration;

use serde::Deserialize;
use sherwood_model::{BackendId, DeadlineClasses, TenantId, Unit};
use thiserror::Error;

use crate::lock::STRIPES_MAX;

/// Sizes and limits of a [`Cache`](crate::Cache).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Largest sum of the charges of all items, in bytes; at least 1, default 64 MiB.
    pub total_bytes: u64,
    /// Largest value in bytes, 1 to 1 GiB, default 1 MiB.
    pub item_bytes_max: u32,
    /// Longest key in bytes, at least 1, default 250 as in memcached.
    pub key_bytes_max: u16,
    /// Independent parts with a lock each: a power of two up to 1,024, of at most 16 GiB each;
    /// [`Self::sized`] computes a suitable number. It affects speed and, under S3-FIFO, slightly
    /// the choice of victims. Each shard has its own pages for every size of items: in shards of a
    /// few MiB, items of many sizes cannot use their full budgets.
    pub shards: u16,
    /// Approximate number of threads that use the cache concurrently; at least 1, default 4. Each
    /// shard's lock has that many stripes (a power of two, at most 16; one under strict LRU, where
    /// every hit is a change): reads by threads of different stripes do not contend, and a store
    /// takes all stripes. It affects speed only.
    pub threads: u16,
    /// Selection of victims when space is needed.
    pub eviction: Eviction,
    /// Share of the keys that each partition's miss ratio curve is sampled from, 0 to 1, default 0:
    /// no curves. For the cost see [`Ghost`](crate::Ghost); 1/32 is precise to about a percentage
    /// point.
    pub ghost_rate: f64,
}

/// Selection of victims when space is needed. Budgets, `Shared` and dead items are treated equally
/// by both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Eviction {
    /// S3-FIFO: a small queue for new items, a main queue for items that were used in it, and a
    /// record of keys that were dropped too soon. Retains more than LRU under skewed traffic and
    /// scans, and a hit writes at most two bits. Each shard decides by itself. An item records
    /// whether it was used, not when.
    #[default]
    #[serde(rename = "s3-fifo")]
    S3Fifo,
    /// The least recently used item, strictly, over all shards. For comparisons with theory, such
    /// as miss ratio curves.
    #[serde(rename = "lru")]
    Lru,
}

impl Default for Options {
    fn default() -> Self {
        Self::sized(64 << 20, 4)
    }
}

impl Options {
    /// Returns the defaults for a cache of `total_bytes` used by about `threads` threads
    /// concurrently: with eight shards per thread, so that two threads rarely contend for a lock,
    /// as long as each has 128 MiB, and at least one per GiB of the first TiB.
    #[must_use]
    pub fn sized(total_bytes: u64, threads: u16) -> Self {
        Self {
            total_bytes,
            item_bytes_max: 1 << 20,
            key_bytes_max: 250,
            shards: shards(total_bytes, threads),
            threads,
            eviction: Eviction::default(),
            ghost_rate: 0.0,
        }
    }

    /// Checks every field, and the partitions.
    ///
    /// # Errors
    /// The first error found.
    pub fn validate(&self, partitions: &[Partition]) -> Result<(), OptionsError> {
        let Self { total_bytes, item_bytes_max, key_bytes_max, shards, threads, eviction: _, ghost_rate } =
            *self;
        if total_bytes == 0 {
            return Err(OptionsError::NoMemory);
        }
        if !(1..=ITEM_BYTES_LIMIT).contains(&item_bytes_max) {
            return Err(OptionsError::ItemBytesMax { bytes: item_bytes_max });
        }
        if key_bytes_max == 0 {
            return Err(OptionsError::KeyBytesMax);
        }
        if !shards.is_power_of_two() || shards > SHARDS_LIMIT {
            return Err(OptionsError::Shards { shards });
        }
        if total_bytes / u64::from(shards) > SHARD_BYTES_LIMIT {
            return Err(OptionsError::ShardBytes { total_bytes, shards });
        }
        if threads == 0 {
            return Err(OptionsError::NoThread);
        }
        if !(0.0..=1.0).contains(&ghost_rate) {
            return Err(OptionsError::GhostRate { rate: ghost_rate });
        }
        validate_partitions(partitions, total_bytes)
    }

    /// Number of stripes (parts that readers lock singly) of each shard's lock.
    pub(crate) fn stripes(&self) -> usize {
        match self.eviction {
            Eviction::Lru => 1,
            Eviction::S3Fifo => usize::from(self.threads).next_power_of_two().min(STRIPES_MAX),
        }
    }
}

/// Suitable number of shards, a power of two.
fn shards(total_bytes: u64, threads: u16) -> u16 {
    let wanted = (u64::from(threads) * SHARDS_PER_THREAD).next_power_of_two();
    let most = 1 << (total_bytes / SHARD_BYTES_MIN).max(1).ilog2();
    let least = total_bytes.div_ceil(SHARD_BYTES_MAX).next_power_of_two();
    let shards = wanted.min(most).max(least).min(u64::from(SHARDS_LIMIT));
    shards as u16
}

fn validate_partitions(partitions: &[Partition], total_bytes: u64) -> Result<(), OptionsError> {
    if !(1..=PARTITIONS_LIMIT).contains(&partitions.len()) {
        return Err(OptionsError::Partitions { partitions: partitions.len() });
    }
    let sum = partitions.iter().map(|partition| u128::from(partition.budget_bytes)).sum::<u128>();
    if let Some(partition) = partitions.iter().find(|partition| !is_step(partition.deadlines.step)) {
        let &Partition { tenant, backend, deadlines: DeadlineOptions { step, .. }, .. } = partition;
        return Err(OptionsError::DeadlineStep { tenant, backend, step });
    }
    if sum > u128::from(total_bytes) {
        return Err(OptionsError::OverTotal { sum, total_bytes });
    }
    let mut names: Vec<_> =
        partitions.iter().map(|partition| (partition.tenant, partition.backend)).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(OptionsError::Twice { tenant: pair[0].0, backend: pair[0].1 }),
        None => Ok(()),
    }
}

/// True if `step` is above 0 and at most 1, which NaN is not.
fn is_step(step: f64) -> bool {
    step > 0.0 && step <= 1.0
}

/// A declared partition: its owner and its initial budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partition {
    /// Tenant that owns the space.
    pub tenant: TenantId,
    /// Backend whose answers the partition caches.
    pub backend: BackendId,
    /// Initial budget in bytes; with 0 nothing is stored.
    pub budget_bytes: u64,
    /// Time for which an [`ItemKind::Graced`](crate::ItemKind::Graced) item is kept after its
    /// expiry, for accesses that accept stale items.
    pub grace: Duration,
    /// Classes of deadlines; by default one.
    pub deadlines: DeadlineOptions,
    /// Unit of the backend's reads, by which the reads that hits save are counted
    /// ([`Usage::hit_units`](crate::Usage::hit_units)); none counts neither units nor bytes of
    /// hits.
    pub metered: Option<Unit>,
}

impl Partition {
    /// Returns a partition without a grace, in which deadlines are not told apart.
    #[must_use]
    pub const fn new(tenant: TenantId, backend: BackendId, budget_bytes: u64) -> Self {
        let deadlines = DeadlineOptions::ONE;
        Self { tenant, backend, budget_bytes, grace: Duration::ZERO, deadlines, metered: None }
    }
}

/// The deadline classes of a partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadlineOptions {
    /// The classes, by default one for all deadlines: then nothing is learned and nothing costs
    /// extra.
    pub classes: DeadlineClasses,
    /// Added to a class's multiplier for each missed deadline, above 0 and at most 1, default 0.01.
    /// A larger step follows a change sooner and varies more. Only used by [`DeadlineCost::Paper`].
    pub step: f64,
    /// Origin of the multipliers.
    pub cost: DeadlineCost,
}

/// Origin of the multipliers of a partition's deadline classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadlineCost {
    /// The class's share of all missed deadlines, as in MicroFuge.
    #[default]
    Paper,
    /// The share of the class's own recent fills whose deadline was missed.
    Measured,
}

impl DeadlineOptions {
    /// The default: one class.
    pub const ONE: Self = Self { classes: DeadlineClasses::ONE, step: STEP, cost: DeadlineCost::Paper };
}

impl Default for DeadlineOptions {
    fn default() -> Self {
        Self::ONE
    }
}

/// Reason why a cache could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum OptionsError {
    /// `total_bytes` is 0.
    #[error("cannot build a cache of 0 bytes: total_bytes must be at least 1")]
    NoMemory,
    /// `threads` is 0.
    #[error("cannot build a cache for 0 threads: threads must be at least 1")]
    NoThread,
    /// `item_bytes_max` is out of range.
    #[error("item_bytes_max is {bytes}: it must be 1 to {ITEM_BYTES_LIMIT}")]
    ItemBytesMax {
        /// The `item_bytes_max` given.
        bytes: u32,
    },
    /// `key_bytes_max` is 0.
    #[error("key_bytes_max is 0: it must be 1 to 65535")]
    KeyBytesMax,
    /// `shards` is not a power of two in range.
    #[error("shards is {shards}: it must be a power of two from 1 to {SHARDS_LIMIT}")]
    Shards {
        /// The number of shards given.
        shards: u16,
    },
    /// Shards are larger than their handles can address.
    #[error("{total_bytes} bytes in {shards} shards: a shard may have 16 GiB; ask for more shards")]
    ShardBytes {
        /// The `total_bytes` given.
        total_bytes: u64,
        /// The number of shards given.
        shards: u16,
    },
    /// The step of a partition's multipliers is out of range.
    #[error(
        "the step of tenant {}'s deadline classes for backend {} is {step}: it must be above 0 and at most 1",
        tenant.0, backend.0
    )]
    DeadlineStep {
        /// Tenant of the partition.
        tenant: TenantId,
        /// Backend of the partition.
        backend: BackendId,
        /// The step given.
        step: f64,
    },
    /// `ghost_rate` is out of range.
    #[error("ghost_rate is {rate}: it must be 0 (no curves) to 1 (every key)")]
    GhostRate {
        /// The `ghost_rate` given.
        rate: f64,
    },
    /// The number of partitions is 0, or more than ids can address.
    #[error("the cache was given {partitions} partitions: it needs 1 to {PARTITIONS_LIMIT}")]
    Partitions {
        /// The number of partitions given.
        partitions: usize,
    },
    /// The budgets exceed the total.
    #[error(
        "the partitions' budgets sum to {sum} bytes, more than the total of {total_bytes}: lower them or raise it"
    )]
    OverTotal {
        /// Sum of the budgets in bytes.
        sum: u128,
        /// The `total_bytes` given.
        total_bytes: u64,
    },
    /// Two partitions belong to the same tenant and backend.
    #[error("tenant {} has two partitions for backend {}: declare it once", tenant.0, backend.0)]
    Twice {
        /// Tenant of both partitions.
        tenant: TenantId,
        /// Backend of both partitions.
        backend: BackendId,
    },
}

/// Default of [`DeadlineOptions::step`]: follows a change within some hundred missed deadlines.
const STEP: f64 = 0.01;
const ITEM_BYTES_LIMIT: u32 = 1 << 30;
const SHARDS_LIMIT: u16 = 1024;
/// Largest size of a shard in bytes: half of what its handles can address.
pub const SHARD_BYTES_LIMIT: u64 = 16 << 30;
const SHARDS_PER_THREAD: u64 = 8;
/// Least bytes per shard when a number of shards is chosen. Partly empty pages take up to one or
/// two pages per size of items in each shard, 4 to 12 MiB if sizes are mixed and change: a tenth of
/// this size, which is the reserve of a cache beside its total. Shards of 8 MiB held only half of
/// their budgets.
const SHARD_BYTES_MIN: u64 = 128 << 20;
/// Most bytes per shard when a number of shards is chosen. Larger shards would have index segments
/// too large to be resized quickly, since the number of segments is limited. Much smaller shards
/// would slow strict LRU, which reads the oldest stamp of every shard for each victim.
const SHARD_BYTES_MAX: u64 = 1 << 30;
/// Largest number of partitions: as many as a `PartitionId` can address.
const PARTITIONS_LIMIT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(backend: u16, budget_bytes: u64) -> Partition {
        Partition::new(TenantId(0), BackendId(backend), budget_bytes)
    }

    #[test]
    fn default_cache_options_are_valid() {
        assert_eq!(Options::default().validate(&[partition(0, 64 << 20)]), Ok(()));
    }

    #[test]
    fn cache_option_out_of_range_is_refused() {
        let one = [partition(0, 1)];
        let ok = Options::default();
        let refused = |options: Options| options.validate(&one).unwrap_err();
        assert_eq!(refused(Options { total_bytes: 0, ..ok }), OptionsError::NoMemory);
        assert_eq!(refused(Options { item_bytes_max: 0, ..ok }), OptionsError::ItemBytesMax { bytes: 0 });
        assert_eq!(refused(Options { key_bytes_max: 0, ..ok }), OptionsError::KeyBytesMax);
        assert_eq!(refused(Options { shards: 3, ..ok }), OptionsError::Shards { shards: 3 });
        assert_eq!(refused(Options { shards: 0, ..ok }), OptionsError::Shards { shards: 0 });
        let large = Options { total_bytes: 40 << 30, shards: 2, ..ok };
        assert_eq!(refused(large), OptionsError::ShardBytes { total_bytes: 40 << 30, shards: 2 });
        assert_eq!(refused(Options { threads: 0, ..ok }), OptionsError::NoThread);
        assert_eq!(refused(Options { ghost_rate: 1.1, ..ok }), OptionsError::GhostRate { rate: 1.1 });
        assert_eq!(ok.validate(&[]), Err(OptionsError::Partitions { partitions: 0 }));
    }

    #[test]
    fn shards_grow_with_threads_within_their_size_limits() {
        let of = |mib: u64, threads| Options::sized(mib << 20, threads).shards;
        assert_eq!([of(4096, 1), of(4096, 2), of(4096, 3), of(1 << 20, 500)], [8, 16, 32, 1_024]);
        assert_eq!([of(1, 4), of(64, 4), of(300, 4), of(1024, 16)], [1, 1, 2, 8]);
        assert_eq!([of(6 << 10, 1), of(9 << 10, 1), of(400 << 10, 1)], [8, 16, 512], "at most 1 GiB each");
    }

    #[test]
    fn lock_stripes_follow_threads_except_under_strict_lru() {
        let stripes = |eviction, threads| Options { eviction, threads, ..Options::default() }.stripes();
        assert_eq!(
            [1, 2, 3, 16, 17, u16::MAX].map(|threads| stripes(Eviction::S3Fifo, threads)),
            [1, 2, 4, 16, 16, 16]
        );
        assert_eq!(stripes(Eviction::Lru, 8), 1);
    }

    #[test]
    fn invalid_partitions_are_refused() {
        let ok = Options { total_bytes: 10, ..Options::default() };
        let error = ok.validate(&[partition(0, 6), partition(1, 5)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the partitions' budgets sum to 11 bytes, more than the total of 10: lower them or raise it"
        );
        let endless = DeadlineOptions { step: f64::NAN, ..DeadlineOptions::ONE };
        let error = ok.validate(&[Partition { deadlines: endless, ..partition(0, 1) }]).unwrap_err();
        assert!(matches!(error, OptionsError::DeadlineStep { .. }), "{error}");
        let error = ok.validate(&[partition(0, 1), partition(1, 1), partition(0, 2)]).unwrap_err();
        assert_eq!(error.to_string(), "tenant 0 has two partitions for backend 0: declare it once");
    }
}
