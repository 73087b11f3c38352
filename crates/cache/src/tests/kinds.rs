//! Tests of cached items that only some accesses see: stale items, negative entries, placeholders.

use std::time::Duration;

use sherwood_model::{Instant, Tags};

use super::{A, LRU, at, cache_with_grace};
use crate::{
    Access, AccessFlags, Cache, Change, Eviction, ItemKind, Marks, NewCas, NewItem, Options, Value, charge,
};

const FRESH: Duration = Duration::from_millis(10);
const GRACE: Duration = Duration::from_millis(100);

fn seeing(millis: u64, flags: AccessFlags) -> Access {
    Access { flags, ..at(millis) }
}

fn stale(millis: u64) -> Access {
    seeing(millis, AccessFlags::SEE_STALE)
}

fn both_evictions(test: impl Fn(Cache)) {
    for eviction in [Eviction::S3Fifo, Eviction::Lru] {
        test(cache_with_grace(Options { total_bytes: 10_000, eviction, ..LRU }, &[10_000], GRACE));
    }
}

/// Stores value `one` under key `k`, fresh until 10 ms, then stale until 110 ms.
fn graced(cache: &Cache) {
    let expires = Some(at(0).now + FRESH);
    let item = NewItem { expires, kind: ItemKind::Graced, ..NewItem::bytes(b"one") };
    cache.set(A, b"k", item, &at(0)).unwrap();
}

fn absent(cache: &Cache) {
    cache.set(A, b"k", NewItem { expires: Some(at(0).now + FRESH), ..NewItem::absent() }, &at(0)).unwrap();
}

fn value(cache: &Cache, access: &Access) -> Option<Vec<u8>> {
    cache.get(A, b"k", access, |item| match item.value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Declared(_) => unreachable!("only bytes are stored here"),
    })
}

#[test]
fn graced_item_is_visible_then_stale_then_dead() {
    both_evictions(|cache| {
        graced(&cache);
        let since = |access: &Access| cache.peek(A, b"k", access, |item| item.stale_since(access.now));
        assert_eq!([since(&at(9)), since(&stale(9))], [Some(None), Some(None)]);
        assert_eq!(since(&at(10)), None);
        let expired = Some(Some(Instant::from_millis(10)));
        assert_eq!([since(&stale(10)), since(&stale(109))], [expired, expired]);
        assert_eq!([since(&seeing(10, AccessFlags::SEE_ABSENT)), since(&stale(110))], [None, None]);
        assert_eq!(value(&cache, &at(50)), None, "a read leaves it");
        assert_eq!(value(&cache, &stale(50)), Some(b"one".to_vec()));
        assert_eq!(value(&cache, &stale(110)), None);
        assert_eq!((cache.usage(A).items, cache.usage(A).expired), (0, 1));
    });
}

#[test]
fn get_of_stale_item_is_a_miss_and_of_negative_entry_a_hit() {
    both_evictions(|cache| {
        graced(&cache);
        let counts = || (cache.usage(A).hits, cache.usage(A).misses);
        cache.get_each(A, &[b"k"], &stale(50), |_, item| assert!(item.is_some()));
        assert!(value(&cache, &stale(50)).is_some());
        assert_eq!(counts(), (0, 2));
        absent(&cache);
        assert_eq!(value(&cache, &at(1)), None);
        assert_eq!(counts(), (0, 3));
        assert_eq!(value(&cache, &seeing(1, AccessFlags::SEE_ABSENT)), Some(Vec::new()));
        assert_eq!(counts(), (1, 3));
    });
}

#[test]
fn invisible_item_is_replaced_and_removed_like_an_absent_one() {
    for is_absent in [false, true] {
        both_evictions(|cache| {
            let millis = if is_absent { 5 } else { 50 };
            let (all, plain) = (AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT), at(millis));
            let store = || if is_absent { absent(&cache) } else { graced(&cache) };
            let is_there = || cache.peek(A, b"k", &seeing(millis, all), |_| ()).is_some();
            let update =
                |change: Change<'_>| cache.update(A, b"k", &plain, |item| (change, item.is_some())).unwrap();
            store();
            assert!(!update(Change::Touch(None)) && !update(Change::Keep) && is_there());
            assert!(!update(Change::Remove) && !is_there());
            store();
            assert!(!cache.remove(A, b"k", &plain) && !is_there());
            store();
            assert!(cache.remove(A, b"k", &seeing(millis, all)));
            store();
            assert_eq!(cache.add(A, b"k", NewItem::bytes(b"two"), &plain), Ok(true));
            assert_eq!(value(&cache, &plain), Some(b"two".to_vec()));
            store();
            assert!(!update(Change::Store(NewItem::bytes(b"two"))));
            assert_eq!(value(&cache, &plain), Some(b"two".to_vec()));
            store();
            cache.flush(Some(A), plain.now, plain.now);
            assert!(!is_there());
            assert_eq!((cache.usage(A).items, cache.usage(A).evictions), (1, 0), "one at a time");
        });
    }
}

#[test]
fn placeholder_is_visible_on_request_and_filled_by_others() {
    both_evictions(|cache| {
        let (places, plain) = (seeing(5, AccessFlags::SEE_PLACEHOLDERS), at(5));
        let reserve = || {
            let change = Change::StoreMarked {
                value: b"".into(),
                flags: 0,
                expires: Some(at(10).now),
                kind: ItemKind::Placeholder,
                tags: Tags::NONE,
                marks: Marks::of_caller(1),
                cas: None,
            };
            cache.update(A, b"k", &plain, |_| (change, ())).unwrap();
        };
        reserve();
        let all_others = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
        assert_eq!([value(&cache, &plain), value(&cache, &seeing(5, all_others))], [None, None]);
        let seen = cache.peek(A, b"k", &places, |item| (item.kind, item.marks));
        assert_eq!(seen, Some((ItemKind::Placeholder, Marks::of_caller(1))));
        let amend = Change::Amend { expires: None, marks: Marks::NONE, cas: NewCas::Keep };
        cache.update(A, b"k", &places, |_| (amend, ())).unwrap();
        assert_eq!(
            cache.peek(A, b"k", &places, |item| (item.kind, item.expires)),
            Some((ItemKind::Placeholder, None))
        );
        assert_eq!(cache.add(A, b"k", NewItem::bytes(b"two"), &places), Ok(false));
        assert_eq!(cache.add(A, b"k", NewItem::bytes(b"two"), &plain), Ok(true));
        assert_eq!(value(&cache, &plain), Some(b"two".to_vec()));
        reserve();
        assert!(!cache.remove(A, b"k", &plain) && value(&cache, &places).is_none());
    });
}

#[test]
fn graced_item_is_reclaimed_after_its_grace() {
    both_evictions(|cache| {
        graced(&cache);
        let idle = |millis| while cache.step(at(millis).now, 10) {};
        idle(50);
        assert_eq!(cache.usage(A).items, 1);
        idle(20_000);
        assert_eq!((cache.usage(A).items, cache.usage(A).expired), (0, 1));
    });
}

#[test]
fn no_search_for_dead_items_is_due_while_items_are_stale() {
    both_evictions(|cache| {
        graced(&cache);
        cache.update(A, b"k", &at(0), |_| (Change::Touch(Some(at(5).now)), ())).unwrap();
        assert_eq!(cache.next_death.load(std::sync::atomic::Ordering::Relaxed), at(105).now.as_nanos());
    });
}

#[test]
fn scan_visits_visible_items_with_their_tags() {
    both_evictions(|cache| {
        let tags: Tags = [&b"user:7"[..]].into_iter().collect();
        let item =
            NewItem { tags, kind: ItemKind::Graced, expires: Some(at(10).now), ..NewItem::bytes(b"one") };
        cache.set(A, b"tagged", item, &at(0)).unwrap();
        cache.set(A, b"plain", NewItem::bytes(b"two"), &at(0)).unwrap();
        cache.set(A, b"absent", NewItem { expires: Some(at(99).now), ..NewItem::absent() }, &at(0)).unwrap();
        assert_eq!(cache.used_bytes(), charge(6, 3 + 8) + charge(5, 3) + charge(6, 0));
        let seen = |access: &Access| {
            let mut seen = Vec::new();
            let end = cache.scan(A, 0, access, usize::MAX, |key, item| {
                seen.push((key.to_vec(), item.tags.may_hold(b"user:7"), item.kind));
            });
            assert_eq!(end, 0);
            seen.sort_by(|a, b| a.0.cmp(&b.0));
            seen
        };
        let tagged = (b"tagged".to_vec(), true, ItemKind::Graced);
        let plain = (b"plain".to_vec(), false, ItemKind::Plain);
        let absent = (b"absent".to_vec(), false, ItemKind::Absent);
        assert_eq!(seen(&at(5)), [plain.clone(), tagged.clone()]);
        assert_eq!(seen(&at(50)), std::slice::from_ref(&plain));
        let all = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
        assert_eq!(seen(&seeing(50, all)), [absent, plain, tagged]);
    });
}
