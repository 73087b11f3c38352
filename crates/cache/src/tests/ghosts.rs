//! Miss ratio curves of a cache: how its operations are counted.

use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};

use crate::{Access, Cache, Change, Eviction, NewItem, Options, Partition, charge};

const P: PartitionId = PartitionId(0);
const OTHER: PartitionId = PartitionId(1);
/// Charge of an item with a key of 8 bytes and a value of 100.
const ITEM: u64 = charge(8, 100);

fn cache(ghost_rate: f64) -> Cache {
    let partition = |backend| Partition::new(TenantId(0), BackendId(backend), 1 << 20);
    // The curves are those of an LRU, so they predict this cache.
    let options = Options { total_bytes: 2 << 20, eviction: Eviction::Lru, ghost_rate, ..Options::default() };
    Cache::new(options, &[partition(0), partition(1)], SeededState::new(1)).unwrap()
}

fn at() -> Access {
    Access::at(Instant::from_secs(1))
}

/// Gets a key and, after a miss, stores it; returns true for a hit.
fn read_through(cache: &Cache, partition: PartitionId, key: u64) -> bool {
    let key = key.to_be_bytes();
    let hit = cache.get(partition, &key, &at(), |_| ()).is_some();
    if !hit {
        // An item larger than the budget is refused; the next get misses.
        let _ = cache.add(partition, &key, NewItem::declared(100), &at());
    }
    hit
}

#[test]
fn no_miss_ratio_curves_without_a_sampling_rate() {
    let cache = cache(0.0);
    read_through(&cache, P, 1);
    assert_eq!((cache.miss_ratio_curve(P), cache.ghost_bytes()), (None, 0));
}

#[test]
fn curve_brackets_the_measured_miss_ratio() {
    let cache = cache(1.0);
    for items in [50, 400] {
        cache.apply(&CachePlan::Budgets(vec![items * ITEM, ITEM])).unwrap();
        let (before, mut hits) = (cache.usage(P), 0);
        let mut draw = sherwood_model::SplitMix64::new(items);
        for _ in 0..6_000 {
            // The lower of two draws: some keys are read more often.
            hits += u64::from(read_through(&cache, P, (draw.next_u64() % 700).min(draw.next_u64() % 700)));
        }
        let usage = cache.usage(P);
        assert_eq!(usage.hits - before.hits, hits);
    }
    let usage = cache.usage(P);
    let curve = cache.miss_ratio_curve(P).unwrap();
    assert_eq!(curve.gets, (usage.hits + usage.misses) as f64);
    let (small, large) = (curve.at(50 * ITEM), curve.at(400 * ITEM));
    let found = usage.misses as f64 / curve.gets;
    assert!(large < found && found < small, "{large} {found} {small}");
    assert_eq!(cache.miss_ratio_curve(OTHER).unwrap().gets, 0.0);
}

#[test]
fn curve_that_is_faded_forgets_old_gets() {
    let cache = cache(1.0);
    cache.apply(&CachePlan::Budgets(vec![50 * ITEM, ITEM])).unwrap();
    let use_keys = |count: u64| (0..3_000).for_each(|i| _ = read_through(&cache, P, i % count));
    use_keys(700);
    assert!(cache.miss_ratio_curve(P).unwrap().at(100 * ITEM) > 0.9, "700 keys in turn do not fit");
    for _ in 0..6 {
        cache.fade_curves();
    }
    assert!((cache.miss_ratio_curve(P).unwrap().gets - 3_000.0 / 64.0).abs() < 1e-9);
    use_keys(50);
    assert!(cache.miss_ratio_curve(P).unwrap().at(100 * ITEM) < 0.05, "50 keys do");
}

#[test]
fn steady_cache_misses_as_its_curve_predicts() {
    let cache = cache(1.0);
    cache.apply(&CachePlan::Budgets(vec![200 * ITEM, ITEM])).unwrap();
    let mut draw = sherwood_model::SplitMix64::new(5);
    for _ in 0..10_000 {
        read_through(&cache, P, (draw.next_u64() % 700).min(draw.next_u64() % 700));
    }
    let usage = cache.usage(P);
    let found = usage.misses as f64 / (usage.hits + usage.misses) as f64;
    let said = cache.miss_ratio_curve(P).unwrap().at(200 * ITEM);
    // A bucket's width is a 32nd of the size, and the curve is linear within it.
    assert!((found - said).abs() < 0.01, "{found} measured, {said} predicted");
}

#[test]
fn items_refused_by_the_budget_are_in_the_curve() {
    let cache = cache(1.0);
    cache.apply(&CachePlan::Budgets(vec![0, 0])).unwrap();
    for _ in 0..10 {
        assert!(!read_through(&cache, P, 1));
    }
    let curve = cache.miss_ratio_curve(P).unwrap();
    assert!((curve.at(2 * ITEM) - 0.1).abs() < 1e-9, "{curve:?}");
}

#[test]
fn deleted_or_flushed_key_misses_at_every_size() {
    let cache = cache(1.0);
    let now = at().now;
    let forget: [&dyn Fn(); 4] = [
        &|| assert!(cache.remove(P, &1_u64.to_be_bytes(), &at())),
        &|| cache.update(P, &1_u64.to_be_bytes(), &at(), |_| (Change::Remove, ())).unwrap(),
        &|| cache.flush(Some(P), now, now),
        &|| cache.flush(None, now, now),
    ];
    for forget in forget {
        read_through(&cache, P, 1);
        forget();
    }
    assert!(!read_through(&cache, P, 1));
    assert_eq!(cache.miss_ratio_curve(P).unwrap().at(1 << 20), 1.0);
}

#[test]
fn store_or_touch_refreshes_recency_without_counting_a_get() {
    let cache = cache(1.0);
    for key in [1_u64, 2, 1, 2] {
        cache.set(P, &key.to_be_bytes(), NewItem::declared(100), &at()).unwrap();
    }
    cache.update(P, &1_u64.to_be_bytes(), &at(), |_| (Change::Touch(None), ())).unwrap();
    assert_eq!(cache.miss_ratio_curve(P).unwrap().gets, 0.0);
    assert!(read_through(&cache, P, 1));
    assert_eq!(cache.miss_ratio_curve(P).unwrap().at(2 * ITEM - 8), 0.0);
}
