//! Marks, CAS values given by the caller, and times of last use.

use std::borrow::Cow;
use std::time::Duration;

use sherwood_model::{Instant, Tags};

use super::{A, ITEM, LRU, at, cache, cache_with, has, put};
use crate::{
    Access, AccessFlags, Cache, Change, Eviction, ItemKind, Marks, NewCas, NewItem, Options, Value, charge,
};

const STALE: Marks = Marks::of_caller(0);
const WON: Marks = Marks::of_caller(6);

fn passing(millis: u64) -> Access {
    Access { flags: AccessFlags::KEEP_RECENCY, ..at(millis) }
}

fn marks(cache: &Cache) -> Option<Marks> {
    cache.peek(A, b"k", &at(0), |item| item.marks)
}

fn cas(cache: &Cache) -> Option<u64> {
    cache.peek(A, b"k", &at(0), |item| item.cas)
}

fn marked(value: &'static [u8], marks: Marks, cas: Option<u64>) -> Change<'static> {
    Change::StoreMarked {
        value: Cow::Borrowed(value),
        flags: 0,
        expires: None,
        kind: ItemKind::Plain,
        tags: Tags::NONE,
        marks,
        cas,
    }
}

fn update(cache: &Cache, change: Change<'_>) -> Option<u64> {
    cache.update_with_cas(A, b"k", &at(0), |_| (change, ())).unwrap().1
}

#[test]
fn marks_are_kept_as_long_as_their_value() {
    let cache = cache(&[10_000], 1);
    update(&cache, marked(b"one", STALE.with(WON), None));
    assert_eq!(marks(&cache), Some(STALE.with(WON)));
    let amend = Change::Amend { expires: None, marks: STALE, cas: NewCas::Keep };
    update(&cache, amend.clone());
    assert_eq!(marks(&cache), Some(STALE));
    let value = cache.peek(A, b"k", &at(0), |item| item.value == Value::Bytes(b"one"));
    assert_eq!(value, Some(true));
    cache.set(A, b"k", NewItem::bytes(b"two"), &at(0)).unwrap();
    assert_eq!(marks(&cache), Some(Marks::NONE));
    cache.remove(A, b"k", &at(0));
    assert_eq!(update(&cache, amend), None, "nothing to amend");
}

#[test]
fn get_returns_marks_and_then_marks_the_item_used() {
    let cache = cache(&[10_000], 1);
    update(&cache, marked(b"one", STALE, None));
    let seen = |access: &Access| cache.get(A, b"k", access, |item| item.marks);
    assert_eq!(
        [seen(&passing(0)), seen(&at(0)), seen(&at(0))].map(Option::unwrap),
        [STALE, STALE, STALE.with(Marks::USED)]
    );
    assert!(marks(&cache).unwrap().without(STALE).contains(Marks::USED));
    assert_eq!(cache.usage(A).hits, 3, "all of them count");
}

#[test]
fn access_with_keep_recency_does_not_refresh() {
    let cache = cache(&[3 * ITEM], 1);
    for key in ["k1", "k2", "k3"] {
        put(&cache, A, key);
    }
    cache.get(A, b"k1", &passing(0), |_| ()).unwrap();
    let amend = Change::Amend { expires: None, marks: Marks::NONE, cas: NewCas::Keep };
    cache.update(A, b"k1", &passing(0), |_| (amend.clone(), ())).unwrap();
    cache.update(A, b"k2", &at(0), |_| (amend, ())).unwrap();
    put(&cache, A, "k4");
    put(&cache, A, "k5");
    assert_eq!(["k1", "k2", "k3"].map(|key| has(&cache, A, key, &at(0))), [false, true, false]);
}

#[test]
fn cas_given_by_the_caller_is_kept_and_charged() {
    let cache = cache(&[10_000], 1);
    assert_eq!(update(&cache, marked(b"one", STALE, Some(u64::MAX))), Some(u64::MAX));
    assert_eq!((cas(&cache), marks(&cache)), (Some(u64::MAX), Some(STALE)));
    assert_eq!(cache.used_bytes(), charge(1, 3 + 8));
    let amend = |cas| Change::Amend { expires: None, marks: WON, cas };
    assert_eq!(update(&cache, amend(NewCas::Keep)), Some(u64::MAX));
    assert_eq!(update(&cache, amend(NewCas::Given(5))), Some(5));
    let next = update(&cache, amend(NewCas::Next));
    assert_eq!((cas(&cache), marks(&cache)), (next, Some(WON)));
    let value = cache.peek(A, b"k", &at(0), |item| item.value == Value::Bytes(b"one"));
    assert_eq!(value, Some(true));
    assert_eq!(cache.used_bytes(), charge(1, 3 + 8));
    cache.set(A, b"k", NewItem::bytes(b"one"), &at(0)).unwrap();
    assert!(cas(&cache) > next);
    assert_eq!(cache.used_bytes(), charge(1, 3));
}

#[test]
fn item_moved_for_a_cas_or_expiry_is_unchanged() {
    let expires = Some(Instant::from_secs(60));
    for eviction in [Eviction::S3Fifo, Eviction::Lru] {
        // Around the largest sizes that fit into a slot, with and without eight more bytes, and
        // larger.
        for bytes in [0, 3, 100, 8130, 8140, 8150, 8151, 8159, 8160, 8167, 8168, 20_000] {
            let cache = cache_with(Options { total_bytes: 1 << 20, eviction, ..LRU }, &[1 << 20]);
            let value = vec![7; bytes];
            let stored = Change::StoreMarked {
                value: Cow::Borrowed(&value),
                flags: 9,
                expires: None,
                kind: ItemKind::Plain,
                tags: Tags::NONE,
                marks: STALE,
                cas: None,
            };
            update(&cache, stored);
            let amend = |marks, cas| Change::Amend { expires, marks, cas: NewCas::Given(cas) };
            assert_eq!(update(&cache, amend(WON, 5)), Some(5));
            cache.get(A, b"k", &at(0), |_| ()).unwrap();
            let seen = cache.peek(A, b"k", &at(0), |item| {
                assert_eq!((item.flags, item.cas, item.expires), (9, 5, expires), "{bytes} bytes");
                assert_eq!(item.value, Value::Bytes(&value));
                item.marks
            });
            assert_eq!(seen, Some(WON.with(Marks::USED)));
            assert_eq!(update(&cache, amend(STALE, u64::MAX)), Some(u64::MAX));
            assert_eq!((marks(&cache), cas(&cache)), (Some(STALE), Some(u64::MAX)));
            assert_eq!(cache.used_bytes(), charge(1, bytes + 8));
            cache.shards[0].check(&cache.ledger);
        }
    }
}

#[test]
fn flush_uses_the_time_of_store_not_the_callers_cas() {
    let cache = cache(&[10_000], 1);
    update(&cache, marked(b"one", Marks::NONE, Some(u64::MAX)));
    update(&cache, Change::Amend { expires: None, marks: Marks::NONE, cas: NewCas::Next });
    cache.flush(Some(A), at(0).now, at(0).now);
    assert_eq!(cas(&cache), None);
    update(&cache, marked(b"two", Marks::NONE, Some(1)));
    assert_eq!(cas(&cache), Some(1));
}

#[test]
fn item_with_a_declared_size_has_no_marks() {
    let cache = cache(&[10_000], 1);
    cache.set(A, b"k", NewItem::declared(u32::from(u16::MAX)), &at(0)).unwrap_err();
    cache.set(A, b"k", NewItem::declared(100), &at(0)).unwrap();
    update(&cache, Change::Amend { expires: None, marks: WON, cas: NewCas::Given(9) });
    cache.get(A, b"k", &at(0), |_| ()).unwrap();
    assert_eq!(marks(&cache), Some(Marks::NONE));
    assert!(cas(&cache).is_some_and(|cas| cas < 9));
    assert_eq!(cache.used_bytes(), charge(1, 100));
}

#[test]
fn last_use_is_the_store_under_s3_fifo() {
    let cache = cache_with(Options { total_bytes: 10_000, eviction: Eviction::S3Fifo, ..LRU }, &[10_000]);
    cache.set(A, b"k", NewItem::bytes(b"one"), &at(0)).unwrap();
    cache.step(at(0).now, 10);
    cache.get(A, b"k", &at(20_000), |_| ()).unwrap();
    cache.step(at(20_000).now, 10);
    let last_use = cache.peek(A, b"k", &at(30_000), |item| item.last_use).unwrap();
    assert_eq!(cache.since(last_use, at(30_000).now), Duration::from_secs(30));
}

#[test]
fn time_of_last_use_is_precise_to_the_second() {
    let cache = cache(&[10_000], 1);
    cache.set(A, b"k", NewItem::bytes(b"one"), &at(0)).unwrap();
    for millis in (0..=60_000).step_by(500) {
        if millis == 20_000 {
            cache.get(A, b"k", &at(millis), |_| ()).unwrap();
        }
        if millis == 40_000 {
            cache.get(A, b"k", &passing(millis), |_| ()).unwrap();
        }
        cache.step(Instant::from_millis(millis), 10);
    }
    let used = cache.get(A, b"k", &at(60_000), |item| item.last_use).unwrap();
    let since = cache.since(used, Instant::from_millis(60_000));
    assert!((Duration::from_secs(39)..=Duration::from_secs(40)).contains(&since), "{since:?}");
    let used = cache.peek(A, b"k", &at(60_000), |item| item.last_use).unwrap();
    assert_eq!(cache.since(used, Instant::from_millis(60_000)), Duration::ZERO);
}
