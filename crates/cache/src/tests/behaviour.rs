//! Tests of one behaviour each.

use std::time::Duration;

use sherwood_model::{CachePlan, Instant, PartitionId};

use super::model::contents;
use super::{
    A, B, ITEM, ITEM_VALUE, LRU, at, budgets, cache, cache_with, cache_with_classes, classes, has, put,
};
use crate::{Access, Cache, Change, DeadlineClass, NewItem, Options, Refused, ResizeError, Value, Work};

fn value(cache: &Cache, partition: PartitionId, key: &[u8], access: &Access) -> Option<Vec<u8>> {
    cache.get(partition, key, access, |item| match item.value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Declared(_) => unreachable!("only bytes are stored here"),
    })
}

#[test]
fn stored_item_is_read_back_with_its_flags_and_an_ascending_cas() {
    let cache = cache(&[10_000, 10_000], 4);
    let expires = Some(Instant::from_millis(50));
    let first = cache.set(A, b"k", NewItem { flags: 7, expires, ..NewItem::bytes(b"one") }, &at(1)).unwrap();
    let seen = cache.get(A, b"k", &at(2), |item| (item.flags, item.cas, item.expires));
    assert_eq!(seen, Some((7, first, expires)));
    assert_eq!(value(&cache, A, b"k", &at(2)), Some(b"one".to_vec()));
    let second = cache.set(A, b"k", NewItem::bytes(b"two"), &at(3)).unwrap();
    assert!(second > first);
    assert_eq!(value(&cache, A, b"k", &at(3)), Some(b"two".to_vec()));
    assert_eq!(value(&cache, B, b"k", &at(3)), None, "partitions are separate");
    let usage = cache.usage(A);
    assert_eq!((usage.hits, usage.misses, usage.stores, usage.items), (3, 0, 2, 1));
    assert_eq!(usage.used_bytes, crate::charge(1, 3));
    assert_eq!(cache.usage(B).misses, 1);
}

#[test]
fn empty_key_and_empty_value_are_stored() {
    let cache = cache(&[10_000], 1);
    cache.set(A, b"", NewItem::bytes(b""), &at(0)).unwrap();
    cache.set(A, b"d", NewItem::declared(0), &at(0)).unwrap();
    assert_eq!(value(&cache, A, b"", &at(0)), Some(vec![]));
    assert_eq!(cache.get(A, b"d", &at(0), |item| item.value == Value::Declared(0)), Some(true));
}

#[test]
fn declared_size_is_charged_like_a_value() {
    let cache = cache(&[1 << 20, 1 << 20], 2);
    cache.set(A, b"key", NewItem::bytes(&[0; 5000]), &at(0)).unwrap();
    cache.set(B, b"key", NewItem::declared(5000), &at(0)).unwrap();
    assert_eq!(cache.usage(A).used_bytes, cache.usage(B).used_bytes);
    assert_eq!(cache.usage(A).used_bytes, crate::charge(3, 5000));
}

#[test]
fn least_recent_item_of_the_partition_is_evicted_for_any_number_of_shards() {
    for shards in [1, 2, 16, 1024] {
        let cache = cache(&[3 * ITEM, 3 * ITEM], shards);
        // A: k1 k2 k3, then k1 is used, so k2 is the oldest; B's older item must stay.
        put(&cache, B, "b1");
        for key in ["k1", "k2", "k3"] {
            put(&cache, A, key);
        }
        cache.get(A, b"k1", &at(0), |_| ());
        put(&cache, A, "k4");
        let live = ["k1", "k2", "k3", "k4"].map(|key| has(&cache, A, key, &at(0)));
        assert_eq!(live, [true, false, true, true], "{shards} shards");
        assert!(has(&cache, B, "b1", &at(0)));
        assert_eq!((cache.usage(A).evictions, cache.usage(A).used_bytes), (1, 3 * ITEM));
    }
}

#[test]
fn peek_changes_neither_recency_nor_counters() {
    let cache = cache(&[2 * ITEM], 4);
    put(&cache, A, "k1");
    put(&cache, A, "k2");
    let before = cache.usage(A);
    assert!(has(&cache, A, "k1", &at(0)) && !has(&cache, A, "k9", &at(0)));
    assert_eq!(cache.usage(A), before);
    put(&cache, A, "k3");
    assert!(!has(&cache, A, "k1", &at(0)));
}

#[test]
fn bytes_freed_in_one_partition_are_usable_by_another() {
    let cache = cache(&[8 * ITEM, 2 * ITEM], 4);
    for key in ["k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"] {
        put(&cache, A, key);
    }
    cache.apply(&budgets(&[2 * ITEM, 8 * ITEM])).unwrap();
    assert_eq!(cache.usage(A).items, 8, "a plan moves nothing");
    for (stored, key) in ["b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"].iter().enumerate() {
        put(&cache, B, key);
        // Two fit beside A's eight; each later one evicts A's oldest.
        assert_eq!(cache.usage(A).items, 8 - (stored as u64 + 1).saturating_sub(2));
    }
    assert_eq!((cache.usage(A).items, cache.usage(B).items), (2, 8));
    assert!(has(&cache, A, "k7", &at(0)) && has(&cache, A, "k8", &at(0)));
}

#[test]
fn store_evicts_at_most_twice_its_bytes_and_background_work_the_rest() {
    let cache = cache(&[20 * ITEM, 0], 4);
    for key in 10..30 {
        put(&cache, A, &key.to_string());
    }
    cache.apply(&budgets(&[5 * ITEM, 0])).unwrap();
    put(&cache, A, "k1");
    assert_eq!(cache.usage(A).items, 19);
    assert!(cache.step(Instant::ZERO, 4));
    assert_eq!(cache.usage(A).items, 15);
    assert!(!cache.step(Instant::ZERO, 100));
    assert_eq!((cache.usage(A).items, cache.usage(A).evictions), (5, 16));
    assert!(has(&cache, A, "k1", &at(0)));
}

#[test]
fn background_work_by_another_thread_is_reported() {
    let cache = cache(&[10 * ITEM], 1);
    let guard = cache.background.lock();
    assert_eq!(cache.work(Instant::ZERO, 100), Work::Elsewhere);
    cache.set(A, b"k", NewItem::declared(1), &at(0)).unwrap();
    cache.apply(&budgets(&[0])).unwrap();
    assert_eq!(cache.work(Instant::ZERO, 1), Work::Left, "budgets are enforced nevertheless");
    drop(guard);
    assert_eq!(cache.work(Instant::ZERO, 100), Work::Done);
}

#[test]
fn shared_plan_evicts_the_oldest_of_all_and_flushes_nothing() {
    let cache = cache(&[2 * ITEM, 2 * ITEM], 8);
    put(&cache, A, "a1");
    put(&cache, B, "b1");
    cache.apply(&CachePlan::Shared).unwrap();
    assert_eq!(cache.plan(), CachePlan::Shared);
    for key in ["b2", "b3", "b4"] {
        put(&cache, B, key);
    }
    assert_eq!((cache.usage(A).items, cache.usage(B).items), (0, 4));
    assert_eq!(cache.usage(B).budget_bytes, 4 * ITEM, "any partition may hold the total");
    cache.apply(&budgets(&[2 * ITEM, 2 * ITEM])).unwrap();
    assert_eq!(cache.usage(B).items, 4);
    while cache.step(Instant::ZERO, 1) {}
    assert_eq!(cache.usage(B).items, 2);
    assert!(has(&cache, B, "b4", &at(0)) && !has(&cache, B, "b2", &at(0)));
}

#[test]
fn refused_set_names_the_limit_and_removes_the_old_value() {
    let options = Options { total_bytes: 5000, item_bytes_max: 4000, key_bytes_max: 4, ..LRU };
    let cache = cache_with(options, &[1000, 4000]);
    let long = cache.set(A, b"12345", NewItem::bytes(b""), &at(0));
    assert_eq!(long, Err(Refused::KeyTooLong { bytes: 5, max: 4 }));
    put(&cache, B, "k1");
    let large = cache.set(B, b"k1", NewItem::declared(4001), &at(0)).unwrap_err();
    assert_eq!(
        large.to_string(),
        "cannot store a value of 4001 bytes: values have at most 4000, raise the largest item size"
    );
    assert!(!has(&cache, B, "k1", &at(0)));
    cache.set(A, b"k1", NewItem::declared(10), &at(0)).unwrap();
    let charge = crate::charge(2, 2000);
    let over = cache.set(A, b"k1", NewItem::declared(2000), &at(0));
    assert_eq!(over, Err(Refused::OverBudget { charge, budget_bytes: 1000 }));
    assert_eq!((cache.usage(A).items, cache.total().used_bytes), (0, 0));
    cache.set(A, b"k1", NewItem::declared(10), &at(0)).unwrap();
    assert!(cache.add(A, b"k1", NewItem::declared(2000), &at(0)).is_err());
    assert!(has(&cache, A, "k1", &at(0)), "a refused add replaces nothing");
}

#[test]
fn add_stores_only_if_absent_or_dead() {
    let cache = cache(&[10_000], 2);
    let item = NewItem { expires: Some(Instant::from_millis(10)), ..NewItem::bytes(b"one") };
    assert_eq!(cache.add(A, b"k", item, &at(0)), Ok(true));
    assert_eq!(cache.add(A, b"k", NewItem::bytes(b"two"), &at(9)), Ok(false));
    assert_eq!(value(&cache, A, b"k", &at(9)), Some(b"one".to_vec()));
    assert_eq!(cache.add(A, b"k", NewItem::bytes(b"two"), &at(10)), Ok(true));
    assert_eq!(value(&cache, A, b"k", &at(10)), Some(b"two".to_vec()));
    assert_eq!(cache.usage(A).expired, 1);
}

#[test]
fn update_reads_and_changes_an_item_atomically() {
    let cache = cache(&[10_000], 2);
    let absent = cache.update(A, b"n", &at(0), |item| (Change::Store(NewItem::bytes(b"1")), item.is_none()));
    assert_eq!(absent, Ok(true));
    let appended = cache.update(A, b"n", &at(0), |item| {
        let item = item.expect("stored above");
        let Value::Bytes(old) = item.value else { unreachable!("bytes") };
        (
            Change::StoreOwned {
                value: [old, b"2"].concat(),
                flags: 3,
                expires: item.expires,
                tags: item.tags,
            },
            item.cas,
        )
    });
    let before = appended.unwrap();
    let (cas, flags) = cache.get(A, b"n", &at(0), |item| (item.cas, item.flags)).unwrap();
    assert!(cas > before && flags == 3);
    assert_eq!(value(&cache, A, b"n", &at(0)), Some(b"12".to_vec()));
    let expires = Some(Instant::from_millis(5));
    cache.update(A, b"n", &at(0), |_| (Change::Touch(expires), ())).unwrap();
    assert_eq!(cache.peek(A, b"n", &at(4), |item| (item.cas, item.expires)), Some((cas, expires)));
    cache.update(A, b"n", &at(4), |_| (Change::Remove, ())).unwrap();
    assert_eq!(cache.total().items, 0);
    for change in [Change::Keep, Change::Remove, Change::Touch(None)] {
        cache.update(A, b"n", &at(4), |item| (change, assert_eq!(item, None))).unwrap();
    }
    assert_eq!((cache.usage(A).hits, cache.usage(A).misses), (2, 0));
}

#[test]
fn touch_refreshes_recency_and_an_update_that_keeps_does_not() {
    let cache = cache(&[3 * ITEM], 2);
    for key in ["k1", "k2", "k3"] {
        put(&cache, A, key);
    }
    cache.update(A, b"k1", &at(0), |_| (Change::Touch(None), ())).unwrap();
    cache.update(A, b"k2", &at(0), |_| (Change::Keep, ())).unwrap();
    put(&cache, A, "k4");
    assert_eq!(["k1", "k2", "k3"].map(|key| has(&cache, A, key, &at(0))), [true, false, true]);
}

#[test]
fn refused_update_removes_the_old_value() {
    let cache = cache(&[2 * ITEM], 2);
    put(&cache, A, "k1");
    let refused = cache.update(A, b"k1", &at(0), |_| (Change::Store(NewItem::declared(5000)), ()));
    assert!(matches!(refused, Err(Refused::OverBudget { .. })));
    assert_eq!(cache.total().items, 0);
}

#[test]
fn cache_is_usable_after_a_closure_panics() {
    let cache = cache(&[2 * ITEM], 1);
    put(&cache, A, "k1");
    let read = std::panic::AssertUnwindSafe(|| cache.get(A, b"k1", &at(0), |_| panic!("in the reader")));
    assert!(std::panic::catch_unwind(read).is_err());
    put(&cache, A, "k2");
    assert!(has(&cache, A, "k1", &at(0)) && has(&cache, A, "k2", &at(0)));
}

#[test]
fn removed_item_is_not_found_and_frees_its_bytes() {
    let cache = cache(&[2 * ITEM], 4);
    put(&cache, A, "k1");
    assert!(cache.remove(A, b"k1", &at(0)));
    assert!(!cache.remove(A, b"k1", &at(0)));
    assert_eq!((cache.total().used_bytes, cache.usage(A).evictions), (0, 0));
}

#[test]
fn expired_items_are_not_found_and_are_reclaimed() {
    let cache = cache(&[1 << 20], 4);
    for key in 0..100u64 {
        let expires = (key < 90).then(|| Instant::from_millis(1 + key));
        let item = NewItem { expires, ..NewItem::declared(ITEM_VALUE) };
        cache.set(A, &key.to_le_bytes(), item, &at(0)).unwrap();
    }
    assert_eq!(cache.get(A, &0u64.to_le_bytes(), &at(1), |_| ()), None);
    assert_eq!((cache.usage(A).items, cache.usage(A).expired), (99, 1));
    while cache.step(Instant::from_millis(50), 10) {}
    assert_eq!((cache.usage(A).items, cache.usage(A).expired), (50, 50));
    // The next pass begins when due, and then knows when the first of the others died.
    assert!(!cache.step(Instant::from_millis(100), 10));
    assert_eq!(cache.usage(A).items, 50);
    let later = Instant::from_millis(50) + Duration::from_secs(10);
    while cache.step(later, 10) {}
    assert_eq!((cache.usage(A).items, cache.usage(A).expired), (10, 90));
}

#[test]
fn dead_victim_counts_as_expired() {
    let cache = cache(&[2 * ITEM], 4);
    let item = NewItem { expires: Some(Instant::from_millis(1)), ..NewItem::declared(ITEM_VALUE) };
    cache.set(A, b"k1", item, &at(0)).unwrap();
    put(&cache, A, "k2");
    cache.set(A, b"k3", NewItem::declared(ITEM_VALUE), &at(2)).unwrap();
    assert_eq!((cache.usage(A).expired, cache.usage(A).evictions), (1, 0));
}

#[test]
fn flush_invalidates_earlier_items_only() {
    let cache = cache(&[1 << 20, 1 << 20], 4);
    put(&cache, A, "k1");
    put(&cache, B, "k1");
    cache.flush(Some(A), Instant::from_millis(5), Instant::from_millis(5));
    put(&cache, A, "k2");
    let access = at(5);
    assert!(!has(&cache, A, "k1", &access) && has(&cache, A, "k2", &access) && has(&cache, B, "k1", &access));
    cache.flush(None, Instant::from_millis(9), Instant::from_millis(5));
    assert!(has(&cache, B, "k1", &at(8)));
    cache.set(B, b"k2", NewItem::declared(1), &at(8)).unwrap();
    assert!(!has(&cache, B, "k1", &at(9)) && !has(&cache, B, "k2", &at(9)) && !has(&cache, A, "k2", &at(9)));
    while cache.step(Instant::from_millis(9), 100) {}
    assert_eq!((cache.total().items, cache.total().expired), (0, 4));
}

#[test]
fn deadline_classes_have_separate_queues() {
    let options = Options { total_bytes: 3 * ITEM, shards: 2, ..LRU };
    let cache = cache_with_classes(options, &[3 * ITEM], Duration::ZERO, |_| classes(2));
    for (class, key) in [(0, "k1"), (1, "k2"), (9, "k3")] {
        let access = Access { class: Some(DeadlineClass(class)), ..at(0) };
        cache.set(A, key.as_bytes(), NewItem::declared(ITEM_VALUE), &access).unwrap();
    }
    // Used in another class, k1 moves to that class.
    cache.get(A, b"k1", &Access { class: Some(DeadlineClass(1)), ..at(0) }, |_| ());
    put(&cache, A, "k4");
    assert_eq!(["k1", "k2", "k3", "k4"].map(|key| has(&cache, A, key, &at(0))), [true, false, true, true]);
}

#[test]
fn memory_of_removed_items_is_released_and_recency_kept() {
    let cache = cache(&[64 << 20], 1);
    let slots = || cache.shards[0].lock(&cache.ledger).slot_bytes();
    for key in 0..20_000u32 {
        cache.set(A, &key.to_le_bytes(), NewItem::declared(1), &at(0)).unwrap();
    }
    let full = slots();
    for key in (0..20_000u32).filter(|key| key % 50 != 0) {
        cache.remove(A, &key.to_le_bytes(), &at(0));
    }
    for key in (0..20_000u32).step_by(150) {
        cache.get(A, &key.to_le_bytes(), &at(0), |_| ());
    }
    let before = contents(&cache, Instant::ZERO);
    // Stores between the steps take slots from and to which records are being moved.
    let mut stored = 1_000_000u32;
    while cache.step(Instant::ZERO, 100) {
        cache.set(A, &stored.to_le_bytes(), NewItem::declared(1), &at(0)).unwrap();
        stored += 1;
    }
    assert!(slots() <= full / 3, "{} bytes of slots of {full}", slots());
    assert_eq!(contents(&cache, Instant::ZERO)[..before.len()], before);
}

#[test]
fn dead_items_are_reclaimed_during_compaction() {
    let cache = cache(&[64 << 20], 2);
    for key in 0..10_000u32 {
        let expires = (key % 3 == 0).then(|| Instant::from_millis(1 + u64::from(key)));
        cache.set(A, &key.to_le_bytes(), NewItem { expires, ..NewItem::declared(1) }, &at(0)).unwrap();
    }
    let mut now = Instant::ZERO;
    for round in 0..20u64 {
        // In each round a pass begins, removals leave gaps to compact, and some items die
        // meanwhile.
        now += Duration::from_secs(10);
        for key in (0..10_000u32).filter(|key| u64::from(*key) % 20 == round && key % 10 != 3) {
            cache.remove(A, &key.to_le_bytes(), &Access::at(now));
        }
        while cache.step(now, 50) {
            now += Duration::from_millis(1);
        }
    }
    let live = contents(&cache, now);
    assert!(live.iter().all(|item| item.expires.is_none()), "a dead item was missed");
    assert_eq!(live.len(), (0..10_000).filter(|key| key % 10 == 3 && key % 3 != 0).count());
}

#[test]
fn stores_evict_towards_a_lowered_ceiling_without_changing_the_plan() {
    let cache = cache(&[20 * ITEM, 20 * ITEM], 4);
    for key in 10..30 {
        put(&cache, A, &key.to_string());
        put(&cache, B, &key.to_string());
    }
    cache.set_ceiling(10 * ITEM);
    while cache.step(Instant::from_millis(50), 1000) {}
    assert_eq!(cache.used_bytes(), 40 * ITEM, "nothing is evicted without stores");
    put(&cache, A, "30");
    assert_eq!(cache.used_bytes(), 32 * ITEM, "one stored, one evicted for it and eight for the ceiling");
    for key in 31..40 {
        put(&cache, B, &key.to_string());
    }
    assert_eq!(cache.used_bytes(), 10 * ITEM);
    assert_eq!(cache.plan(), budgets(&[20 * ITEM, 20 * ITEM]));
    cache.set_ceiling(u64::MAX);
    assert_eq!(cache.ceiling(), 40 * ITEM);
    put(&cache, A, "40");
    assert_eq!(cache.used_bytes(), 11 * ITEM);
}

#[test]
fn total_beyond_what_the_shards_can_address_is_refused() {
    let cache = cache_with(Options { total_bytes: 100, shards: 2, ..LRU }, &[100]);
    let before = cache.total_bytes();
    let resized = cache.resize((32 << 30) + 1, &budgets(&[100]));
    let refused = ResizeError::Total { total_bytes: (32 << 30) + 1, bytes_max: 32 << 30 };
    assert_eq!((resized, cache.total_bytes()), (Err(refused), before));
    cache.resize(32 << 30, &budgets(&[100])).unwrap();
    assert_eq!(cache.total_bytes(), 32 << 30);
}
