//! Sizes of hits, which are counted where a partition is metered.

use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId, Unit};

use super::{at, classes};
use crate::{Cache, DeadlineOptions, Eviction, NewItem, Options, Partition};

/// Returns a cache of nine partitions of which those with odd numbers are metered.
fn cache(eviction: Eviction, deadlines: DeadlineOptions) -> Cache {
    let partition = |number: u16| Partition {
        metered: (number % 2 == 1).then_some(Unit::DYNAMODB_READ),
        deadlines,
        ..Partition::new(TenantId(number), BackendId(0), 100_000)
    };
    let partitions: Vec<_> = (0..9).map(partition).collect();
    let options = Options { total_bytes: 1_000_000, shards: 2, eviction, threads: 4, ..Options::default() };
    Cache::new(options, &partitions, SeededState::new(1)).expect("valid options")
}

#[test]
fn hits_of_a_metered_partition_are_counted_with_their_bytes_and_units() {
    for eviction in [Eviction::S3Fifo, Eviction::Lru] {
        for deadlines in [classes(1), classes(3)] {
            let mut cache = cache(eviction, deadlines);
            for partition in (0..9).map(PartitionId) {
                cache.set(partition, b"0123456", NewItem::declared(4_090), &at(1)).unwrap();
                cache.set(partition, b"small", NewItem::bytes(b"12345"), &at(1)).unwrap();
                for _ in 0..3 {
                    cache.get(partition, b"0123456", &at(2), |_| ()).unwrap();
                }
                cache.get_each(partition, &[b"small".as_slice(), b"none"], &at(3), |_, _| ());
            }
            let copy = cache.copy(std::sync::Arc::new(crate::Heap));
            for cache in [&cache, &copy] {
                for partition in (0..9).map(PartitionId) {
                    let usage = cache.usage(partition);
                    let sizes = if partition.0 % 2 == 1 { (3 * 4_097 + 10, 7) } else { (0, 0) };
                    assert_eq!((usage.hit_bytes, usage.hit_units), sizes, "{partition:?}");
                    assert_eq!((usage.hits, usage.misses), (4, 1));
                }
                assert_eq!(cache.total().hit_units, 28);
            }
        }
    }
}

#[test]
fn expired_item_adds_no_size_of_a_hit() {
    let (cache, one) = (cache(Eviction::S3Fifo, DeadlineOptions::ONE), PartitionId(1));
    let expires = Some(Instant::from_millis(5));
    cache.set(one, b"k", NewItem { expires, ..NewItem::bytes(b"v") }, &at(1)).unwrap();
    assert_eq!(cache.get(one, b"k", &at(6), |_| ()), None);
    assert_eq!((cache.usage(one).hit_bytes, cache.usage(one).misses), (0, 1));
}
