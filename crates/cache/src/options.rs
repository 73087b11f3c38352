//! What the engine is built from, checked before anything is allocated.

use std::time::Duration;

use serde::Deserialize;
use sherwood_model::{BackendId, TenantId};
use thiserror::Error;

use crate::lock::STRIPES_MAX;

/// Sizes and limits of a [`Cache`](crate::Cache).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Bytes that all items together may be charged; at least 1, default 64 MiB.
    pub total_bytes: u64,
    /// Largest value in bytes, 1 to 1 GiB, default 1 MiB.
    pub item_bytes_max: u32,
    /// Longest key in bytes, at least 1, default 250 as in memcached.
    pub key_bytes_max: u16,
    /// Independent parts with a lock each: a power of two up to 1,024, of at most 16 GiB each;
    /// [`Self::sized`] has what suits. It changes speed and, under S3-FIFO, a little what is
    /// evicted. Each has pages of its own for every size of items: in parts of a few MiB, items of
    /// many sizes cannot use what their budgets say.
    pub shards: u16,
    /// Threads that use the cache at a time, about; at least 1, default 4. Each part's lock has so
    /// many stripes (a power of two, at most 16; one under strict LRU, where every hit is a
    /// change): reads by threads of different stripes do not meet, and a store takes all of them.
    /// It changes speed and never what is evicted.
    pub threads: u16,
    /// Recency queues per partition, 1 to 16, default 1.
    pub deadline_classes: u8,
    /// Who goes when space is needed.
    pub eviction: Eviction,
    /// Share of the keys that each partition's miss ratio curve is drawn from, 0 to 1, default 0:
    /// no curves. What it costs is in [`Ghost`](crate::Ghost); 1/32 is precise to about a point.
    pub ghost_rate: f64,
}

/// Who goes when space is needed. Budgets, `Shared` and the dead mean the same with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Eviction {
    /// S3-FIFO: a small queue for what is new, a main queue for what was used there, and a memory
    /// of what was dropped too soon. Keeps more than LRU of skewed traffic and of scans, and a hit
    /// writes two bits at most. Each shard decides for itself. No item knows when it was last used,
    /// only whether.
    #[default]
    #[serde(rename = "s3-fifo")]
    S3Fifo,
    /// The least recently used goes: strictly, over all shards. For comparisons with theory, such
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
    /// The defaults for a cache of `total_bytes` that about so many threads use at a time: with
    /// eight shards for each of them, so that two rarely meet at a lock, as far as that leaves each
    /// 128 MiB, and at least one for each GiB of the first TiB.
    #[must_use]
    pub fn sized(total_bytes: u64, threads: u16) -> Self {
        Self {
            total_bytes,
            item_bytes_max: 1 << 20,
            key_bytes_max: 250,
            shards: shards(total_bytes, threads),
            threads,
            deadline_classes: 1,
            eviction: Eviction::default(),
            ghost_rate: 0.0,
        }
    }

    /// Checks every field, and that `partitions` fit.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self, partitions: &[Partition]) -> Result<(), OptionsError> {
        let Self {
            total_bytes,
            item_bytes_max,
            key_bytes_max,
            shards,
            threads,
            deadline_classes,
            eviction: _,
            ghost_rate,
        } = *self;
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
        if !(1..=DEADLINE_CLASSES_LIMIT).contains(&deadline_classes) {
            return Err(OptionsError::DeadlineClasses { classes: deadline_classes });
        }
        if !(0.0..=1.0).contains(&ghost_rate) {
            return Err(OptionsError::GhostRate { rate: ghost_rate });
        }
        validate_partitions(partitions, total_bytes)
    }

    /// Stripes of each shard's lock.
    pub(crate) fn stripes(&self) -> usize {
        match self.eviction {
            Eviction::Lru => 1,
            Eviction::S3Fifo => usize::from(self.threads).next_power_of_two().min(STRIPES_MAX),
        }
    }
}

/// How many shards suit: a power of two.
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

/// A partition as it is declared: whose it is, and the bytes it starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Who owns the space.
    pub tenant: TenantId,
    /// Whose answers it holds.
    pub backend: BackendId,
    /// Budget in bytes at the start; 0 is allowed and stores nothing.
    pub budget_bytes: u64,
    /// How long a [`Kind::Graced`](crate::Kind::Graced) item is kept after it expired, for those
    /// who take stale ones.
    pub grace: Duration,
}

impl Partition {
    /// One without a grace.
    #[must_use]
    pub const fn new(tenant: TenantId, backend: BackendId, budget_bytes: u64) -> Self {
        Self { tenant, backend, budget_bytes, grace: Duration::ZERO }
    }
}

/// Why a cache could not be built.
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
        /// As given.
        bytes: u32,
    },
    /// `key_bytes_max` is 0.
    #[error("key_bytes_max is 0: it must be 1 to 65535")]
    KeyBytesMax,
    /// `shards` is not a power of two in range.
    #[error("shards is {shards}: it must be a power of two from 1 to {SHARDS_LIMIT}")]
    Shards {
        /// As given.
        shards: u16,
    },
    /// The parts are larger than the engine can name.
    #[error("{total_bytes} bytes in {shards} shards: a shard may have 16 GiB; ask for more shards")]
    ShardBytes {
        /// As given.
        total_bytes: u64,
        /// As given.
        shards: u16,
    },
    /// `deadline_classes` is out of range.
    #[error("deadline_classes is {classes}: it must be 1 to {DEADLINE_CLASSES_LIMIT}")]
    DeadlineClasses {
        /// As given.
        classes: u8,
    },
    /// `ghost_rate` is no share.
    #[error("ghost_rate is {rate}: it must be 0 (no curves) to 1 (every key)")]
    GhostRate {
        /// As given.
        rate: f64,
    },
    /// There is no partition, or more than ids can name.
    #[error("the cache was given {partitions} partitions: it needs 1 to {PARTITIONS_LIMIT}")]
    Partitions {
        /// As given.
        partitions: usize,
    },
    /// The budgets exceed the total.
    #[error(
        "the partitions' budgets sum to {sum} bytes, more than the total of {total_bytes}: lower them or raise it"
    )]
    OverTotal {
        /// Sum of the budgets.
        sum: u128,
        /// As given.
        total_bytes: u64,
    },
    /// Two partitions belong to the same tenant and backend.
    #[error("tenant {} has two partitions for backend {}: declare it once", tenant.0, backend.0)]
    Twice {
        /// Whose.
        tenant: TenantId,
        /// For what.
        backend: BackendId,
    },
}

const ITEM_BYTES_LIMIT: u32 = 1 << 30;
const SHARDS_LIMIT: u16 = 1024;
/// Bytes of a shard at most: half of what its handles reach.
pub const SHARD_BYTES_LIMIT: u64 = 16 << 30;
const SHARDS_PER_THREAD: u64 = 8;
/// Partly empty pages take up to a page or two of each size of items in each shard, 4 to 12 MiB
/// where sizes are mixed and change: a tenth of this, which is what a cache may take beside its
/// total. In shards of 8 MiB it held half of what it may.
const SHARD_BYTES_MIN: u64 = 128 << 20;
/// Beyond it the segments of a shard's index, of which there is a most, would hold more than is
/// quickly laid out anew. Far smaller shards would be a burden to strict LRU, which looks at the
/// oldest of each for every victim.
const SHARD_BYTES_MAX: u64 = 1 << 30;
const DEADLINE_CLASSES_LIMIT: u8 = 16;
/// As many as a `PartitionId` can name.
const PARTITIONS_LIMIT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(backend: u16, budget_bytes: u64) -> Partition {
        Partition::new(TenantId(0), BackendId(backend), budget_bytes)
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(Options::default().validate(&[partition(0, 64 << 20)]), Ok(()));
    }

    #[test]
    fn each_field_out_of_range_is_refused() {
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
        assert_eq!(
            refused(Options { deadline_classes: 0, ..ok }),
            OptionsError::DeadlineClasses { classes: 0 }
        );
        assert_eq!(refused(Options { ghost_rate: 1.1, ..ok }), OptionsError::GhostRate { rate: 1.1 });
        assert_eq!(ok.validate(&[]), Err(OptionsError::Partitions { partitions: 0 }));
    }

    #[test]
    fn shards_follow_the_threads_as_far_as_memory_goes_round() {
        let of = |mib: u64, threads| Options::sized(mib << 20, threads).shards;
        assert_eq!([of(4096, 1), of(4096, 2), of(4096, 3), of(1 << 20, 500)], [8, 16, 32, 1_024]);
        assert_eq!([of(1, 4), of(64, 4), of(300, 4), of(1024, 16)], [1, 1, 2, 8]);
        assert_eq!(
            [of(6 << 10, 1), of(9 << 10, 1), of(400 << 10, 1)],
            [8, 16, 512],
            "no more than 1 GiB each"
        );
    }

    #[test]
    fn there_are_as_many_stripes_as_threads_but_where_every_hit_is_a_change() {
        let stripes = |eviction, threads| Options { eviction, threads, ..Options::default() }.stripes();
        assert_eq!(
            [1, 2, 3, 16, 17, u16::MAX].map(|threads| stripes(Eviction::S3Fifo, threads)),
            [1, 2, 4, 16, 16, 16]
        );
        assert_eq!(stripes(Eviction::Lru, 8), 1);
    }

    #[test]
    fn partitions_must_differ_and_fit() {
        let ok = Options { total_bytes: 10, ..Options::default() };
        let error = ok.validate(&[partition(0, 6), partition(1, 5)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the partitions' budgets sum to 11 bytes, more than the total of 10: lower them or raise it"
        );
        let error = ok.validate(&[partition(0, 1), partition(1, 1), partition(0, 2)]).unwrap_err();
        assert_eq!(error.to_string(), "tenant 0 has two partitions for backend 0: declare it once");
    }
}
