//! Look-aside use of the cache, compared with an independent exact LRU: hits and misses are equal
//! for any number of shards.

mod support;

use proptest::prelude::*;
use sherwood_cache::{Access, Cache, Eviction, NewItem, Options, Partition, charge};
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};
use support::exact_lru::ExactLru;

/// A look-up of a key in a partition; a miss is followed by a store, as by an application with a
/// database.
type LookUp = (u16, u16);

/// Size of a key's value. Sizes differ by key, so that a store may evict several victims or none.
fn value_bytes(key: u16) -> usize {
    usize::from(key) * 37 % 400
}

fn prefetch_neighbours(cache: &Cache, (partition, key): LookUp, stored: bool) -> bool {
    let access = Access::at(Instant::ZERO);
    let partition = PartitionId(partition);
    let name = key.to_string();
    let hit = cache.get(partition, name.as_bytes(), &access, |_| ()).is_some();
    if !hit {
        let zeros = vec![0; value_bytes(key)];
        let item = if stored { NewItem::bytes(&zeros) } else { NewItem::declared(value_bytes(key) as u32) };
        // A refusal is an ordinary result here: the next look-up misses.
        let _ = cache.set(partition, name.as_bytes(), item, &access);
    }
    hit
}

fn look_aside_exact<K: Clone + Ord>(lru: &mut ExactLru<K>, name: K, key: u16) -> bool {
    let hit = lru.get(&name);
    if !hit {
        lru.set(name, charge(key.to_string().len(), value_bytes(key)));
    }
    hit
}

fn cache(budgets: &[u64], shards: u16) -> Cache {
    let partitions: Vec<_> = (0..)
        .zip(budgets)
        .map(|(backend, &budget_bytes)| Partition::new(TenantId(0), BackendId(backend), budget_bytes))
        .collect();
    let options =
        Options { total_bytes: budgets.iter().sum(), shards, eviction: Eviction::Lru, ..Options::default() };
    Cache::new(options, &partitions, SeededState::new(3)).expect("valid options")
}

const PARTITIONS: usize = 3;

/// Draws a list of look-ups, half of which use a few keys.
fn look_ups() -> impl Strategy<Value = Vec<LookUp>> {
    let key = prop_oneof![0..12u16, 0..200u16];
    prop::collection::vec((0..PARTITIONS as u16, key), 1..600)
}

fn budgets() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..8000u64, PARTITIONS)
        .prop_filter("some memory", |budgets| budgets.iter().any(|&b| b > 0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn static_budgets_equal_an_exact_lru_per_partition(
        look_ups in look_ups(), budgets in budgets(), shards in 0..6u32, stored: bool,
    ) {
        let cache = cache(&budgets, 1 << shards);
        let mut exact: Vec<_> = budgets.iter().map(|&budget| ExactLru::new(budget)).collect();
        for (number, &look_up) in look_ups.iter().enumerate() {
            let (partition, key) = look_up;
            let expected = look_aside_exact(&mut exact[usize::from(partition)], key, key);
            prop_assert_eq!(prefetch_neighbours(&cache, look_up, stored), expected, "look-up {} {:?}", number, look_up);
        }
        for (index, lru) in exact.iter().enumerate() {
            prop_assert_eq!(cache.usage(PartitionId::from_index(index)).used_bytes, lru.used());
        }
    }

    #[test]
    fn shared_plan_equals_one_exact_lru_over_all(
        look_ups in look_ups(), budgets in budgets(), shards in 0..6u32, stored: bool,
    ) {
        let cache = cache(&budgets, 1 << shards);
        cache.apply(&CachePlan::Shared).expect("sharing fits any cache");
        let mut exact = ExactLru::new(budgets.iter().sum());
        for (number, &look_up) in look_ups.iter().enumerate() {
            let expected = look_aside_exact(&mut exact, look_up, look_up.1);
            prop_assert_eq!(prefetch_neighbours(&cache, look_up, stored), expected, "look-up {} {:?}", number, look_up);
        }
        prop_assert_eq!(cache.total().used_bytes, exact.used());
    }
}
