//! Deadline classes: how long items of each stay, and what is reported of them.

use std::time::Duration;

use sherwood_model::DeadlineClass;

use super::{A, ITEM, ITEM_VALUE, LRU, at, cache_with_classes, classes, has};
use crate::{Access, AccessFlags, Cache, DeadlineCost, DeadlineOptions, Eviction, NewItem, Options};

const EVICTIONS: [Eviction; 2] = [Eviction::Lru, Eviction::S3Fifo];
/// Items that fit into the cache.
const CAPACITY: u64 = 200;

fn cache(eviction: Eviction, deadlines: DeadlineOptions) -> Cache {
    let bytes = CAPACITY * ITEM;
    let options = Options { total_bytes: bytes, eviction, ..LRU };
    cache_with_classes(options, &[bytes], Duration::ZERO, |_| deadlines)
}

fn with_class(class: u8) -> Access {
    Access { class: Some(DeadlineClass(class)), ..at(0) }
}

fn late(access: Access) -> Access {
    Access { flags: AccessFlags::DEADLINE_MISSED, ..access }
}

/// Stores new keys of the classes in turn.
fn fill(cache: &Cache, count: u32, accesses: &[Access]) {
    for number in 0..count {
        let access = &accesses[number as usize % accesses.len()];
        let key = format!("{number:05}{}", cache.usage(A).stores);
        cache.set(A, key.as_bytes(), NewItem::declared(ITEM_VALUE), access).expect("it fits");
    }
}

fn items(cache: &Cache) -> Vec<u64> {
    cache.class_usage(A).iter().map(|class| class.items).collect()
}

#[test]
fn items_are_divided_by_multipliers_if_classes_are_stored_alike() {
    for eviction in EVICTIONS {
        let cache = cache(eviction, classes(2));
        fill(&cache, 2_000, &[with_class(0), with_class(1)]);
        let [short, long] = items(&cache)[..] else { panic!("two classes") };
        assert!(
            short.abs_diff(long) <= CAPACITY / 20,
            "{eviction:?}: {short} and {long} at equal multipliers"
        );
        for _ in 0..140 {
            cache.note_deadline_missed(A, DeadlineClass(0));
        }
        fill(&cache, 2_000, &[with_class(0), with_class(1)]);
        let usage = cache.class_usage(A);
        let expected = usage[0].multiplier / usage[1].multiplier;
        assert!(expected > 2.5, "{usage:?}");
        let ratio = usage[0].items as f64 / usage[1].items as f64;
        assert!((ratio / expected - 1.0).abs() < 0.15, "{eviction:?}: {ratio} for {expected}");
        assert_eq!(usage.iter().map(|class| class.bytes).sum::<u64>(), cache.usage(A).used_bytes);
    }
}

#[test]
fn unused_class_gives_way_and_takes_its_place_again() {
    for eviction in EVICTIONS {
        let cache = cache(eviction, classes(2));
        for _ in 0..250 {
            cache.note_deadline_missed(A, DeadlineClass(0));
        }
        fill(&cache, 300, &[with_class(0)]);
        fill(&cache, 10_000, &[with_class(1)]);
        assert_eq!(items(&cache)[0], 0, "{eviction:?}: the largest multiplier keeps nothing for ever");
        fill(&cache, 800, &[with_class(0)]);
        assert!(items(&cache)[0] > CAPACITY * 9 / 10, "{eviction:?}: {:?}", items(&cache));
    }
}

#[test]
fn store_with_the_flag_raises_the_multiplier_of_its_class() {
    for eviction in EVICTIONS {
        let cache = cache(eviction, classes(4));
        fill(&cache, 10, &[late(with_class(2))]);
        fill(&cache, 10, &[with_class(1), late(at(0))]);
        let usage = cache.class_usage(A);
        let missed: Vec<_> = usage.iter().map(|class| class.deadline_missed).collect();
        assert_eq!(missed, [0, 0, 10, 0], "a store without a class tells nothing");
        assert!(usage[2].multiplier > 1.05 && usage[0].multiplier < 1.0, "{usage:?}");
        assert_eq!(items(&cache), [0, 5, 10, 5], "an item without a deadline is in the last class");
    }
}

#[test]
fn access_without_a_deadline_keeps_the_class_of_the_item() {
    for eviction in EVICTIONS {
        let cache = cache(eviction, classes(3));
        cache.set(A, b"k", NewItem::declared(1), &with_class(1)).expect("it fits");
        cache.get(A, b"k", &at(0), |_| ()).expect("a hit");
        cache.set(A, b"k", NewItem::declared(2), &at(0)).expect("it fits");
        assert_eq!(items(&cache), [0, 1, 0]);
        cache.get(A, b"k", &with_class(0), |_| ()).expect("a hit");
        assert_eq!(items(&cache), [1, 0, 0]);
        cache.get(A, b"absent", &with_class(0), |_| ());
        cache.get(A, b"absent", &at(0), |_| ());
        let counts: Vec<_> = cache.class_usage(A).iter().map(|class| (class.hits, class.misses)).collect();
        assert_eq!(counts, [(1, 1), (1, 0), (0, 1)]);
        assert!(has(&cache, A, "k", &at(0)));
    }
}

#[test]
fn single_class_reports_the_usage_of_its_partition() {
    let cache = cache(Eviction::S3Fifo, DeadlineOptions::ONE);
    fill(&cache, 3, &[late(with_class(7))]);
    cache.get(A, b"absent", &at(0), |_| ());
    let [class] = cache.class_usage(A)[..] else { panic!("one class") };
    assert_eq!((class.upto, class.multiplier, class.items, class.misses), (None, 1.0, 3, 1));
    assert_eq!(class.bytes, cache.usage(A).used_bytes);
}

#[test]
fn measured_cost_keeps_the_class_whose_misses_miss_deadlines() {
    for eviction in EVICTIONS {
        let cache = cache(eviction, DeadlineOptions { cost: DeadlineCost::Measured, ..classes(2) });
        // Of every ten fills one is of class 0, always late; the others are in time.
        let mut accesses = vec![with_class(1); 9];
        accesses.push(late(with_class(0)));
        fill(&cache, 4_000, &accesses);
        let usage = cache.class_usage(A);
        assert!(usage[0].multiplier > 1.9, "{usage:?}");
        assert!(usage[0].items > CAPACITY / 2, "{usage:?}");
    }
}
