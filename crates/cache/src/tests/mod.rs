//! Tests of the whole engine.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, Tags, TenantId};

use crate::{
    Access, AccessFlags, Cache, DeadlineClasses, DeadlineOptions, Eviction, ItemKind, NewItem, Options,
    Partition,
};

mod against_map;
mod against_model;
mod batches;
mod behaviour;
mod copies;
mod deadlines;
mod ghosts;
mod kinds;
mod marks;
mod metered;
mod model;
mod reshape;

pub(crate) const A: PartitionId = PartitionId(0);
const B: PartitionId = PartitionId(1);

/// Returns a cache with these budgets, which sum to its total, in `shards` shards; strict LRU,
/// whose victims are predictable.
pub(crate) fn cache(budgets: &[u64], shards: u16) -> Cache {
    cache_with(Options { total_bytes: budgets.iter().sum(), shards, ..LRU }, budgets)
}

const LRU: Options = Options {
    total_bytes: 1,
    item_bytes_max: 1 << 20,
    key_bytes_max: 250,
    shards: 1,
    threads: 1,
    eviction: Eviction::Lru,
    ghost_rate: 0.0,
};

fn cache_with(options: Options, budgets: &[u64]) -> Cache {
    cache_with_grace(options, budgets, Duration::ZERO)
}

fn cache_with_grace(options: Options, budgets: &[u64], grace: Duration) -> Cache {
    cache_with_classes(options, budgets, grace, |_| DeadlineOptions::ONE)
}

/// Returns a cache whose partitions have the deadline classes that `deadlines` returns for their
/// numbers.
fn cache_with_classes(
    options: Options,
    budgets: &[u64],
    grace: Duration,
    deadlines: impl Fn(usize) -> DeadlineOptions,
) -> Cache {
    let partition = |(index, &budget_bytes)| Partition {
        grace,
        deadlines: deadlines(index),
        ..Partition::new(TenantId(0), BackendId::from_index(index), budget_bytes)
    };
    let partitions: Vec<_> = budgets.iter().enumerate().map(partition).collect();
    Cache::new(options, &partitions, SeededState::new(1)).expect("valid options")
}

/// Returns this many classes of 10 ms each.
fn classes(count: u8) -> DeadlineOptions {
    let upto = Duration::from_millis(10) * u32::from(count);
    let classes = DeadlineClasses::of_equal_width(count, upto).expect("1 to 16 classes");
    DeadlineOptions { classes, ..DeadlineOptions::ONE }
}

pub(crate) fn at(millis: u64) -> Access {
    Access::at(Instant::from_millis(millis))
}

/// Stores `key` with a declared size that makes its charge 1,000 bytes or close to it.
pub(crate) fn put(cache: &Cache, partition: PartitionId, key: &str) {
    cache.set(partition, key.as_bytes(), NewItem::declared(ITEM_VALUE), &at(0)).expect("stored");
}

pub(crate) fn has(cache: &Cache, partition: PartitionId, key: &str, access: &Access) -> bool {
    cache.peek(partition, key.as_bytes(), access, |_| ()).is_some()
}

const ITEM_VALUE: u32 = 962;
/// Charge of an item with a key of two bytes and a value of [`ITEM_VALUE`].
const ITEM: u64 = crate::charge(2, ITEM_VALUE as usize);

fn budgets(budgets: &[u64]) -> CachePlan {
    CachePlan::Budgets(budgets.to_vec())
}

/// Draws the kind of an item, mostly plain.
fn any_kind() -> impl Strategy<Value = ItemKind> {
    prop_oneof![
        3 => Just(ItemKind::Plain),
        2 => Just(ItemKind::Graced),
        1 => Just(ItemKind::Absent),
        1 => Just(ItemKind::Placeholder),
    ]
}

/// Draws the tags of an item, mostly none.
fn any_tags() -> impl Strategy<Value = Tags> {
    prop_oneof![3 => Just(Tags::NONE), 1 => any::<u64>().prop_map(Tags::from_bits)]
}

/// Draws the visibility flags of an access.
fn any_visibility() -> impl Strategy<Value = AccessFlags> {
    any::<[bool; 3]>().prop_map(|[stale, absent, places]| {
        let flag = |sees, flag| if sees { flag } else { AccessFlags::NONE };
        flag(stale, AccessFlags::SEE_STALE)
            .with(flag(absent, AccessFlags::SEE_ABSENT))
            .with(flag(places, AccessFlags::SEE_PLACEHOLDERS))
    })
}
