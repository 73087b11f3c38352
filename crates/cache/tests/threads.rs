//! Several threads at once: nothing is lost or counted twice, and the bytes are within the budgets
//! when all have returned.

use std::time::Duration;

use sherwood_cache::{Access, Cache, Change, Eviction, Marks, NewItem, Options, Partition, Value, charge};
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, Tags, TenantId};

const PARTITIONS: u16 = 3;
const KEYS: u64 = 400;
const TOTAL: u64 = 256 << 10;
const THREADS: u64 = 4;
const OPERATIONS: u64 = 15_000;

/// Kinds of caches to test: both evictions, with one shard and with several.
const KINDS: [(Eviction, u16); 4] =
    [(Eviction::Lru, 1), (Eviction::Lru, 8), (Eviction::S3Fifo, 1), (Eviction::S3Fifo, 8)];

fn cache(eviction: Eviction, shards: u16) -> Cache {
    let partition = |backend| Partition::new(TenantId(0), BackendId(backend), TOTAL / u64::from(PARTITIONS));
    let partitions: Vec<_> = (0..PARTITIONS).map(partition).collect();
    let options = Options { total_bytes: TOTAL, shards, eviction, ..Options::default() };
    Cache::new(options, &partitions, SeededState::new(5)).expect("valid options")
}

/// Pseudorandom numbers, the same in every run (the upper half of a 64-bit linear congruential
/// generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns a value that identifies its key, so that a reader detects the value of another key.
fn value(key: u64, bytes: u64) -> Vec<u8> {
    vec![(key % 251) as u8; bytes as usize]
}

fn is_whole(key: u64, item: Value<'_>) -> bool {
    let Value::Bytes(bytes) = item else { return false };
    bytes.iter().all(|&byte| byte == (key % 251) as u8)
}

fn work(cache: &Cache, thread: u64) {
    let mut numbers = Numbers(thread);
    for operation in 0..OPERATIONS {
        let now = Instant::from_millis(operation);
        let access = Access::at(now);
        let partition = PartitionId(numbers.below(u64::from(PARTITIONS)) as u16);
        let key = numbers.below(KEYS);
        let name = key.to_be_bytes();
        let bytes = value(key, numbers.below(3000));
        let expires = (numbers.below(10) == 0).then(|| now + Duration::from_millis(numbers.below(500)));
        let item = NewItem { expires, ..NewItem::bytes(&bytes) };
        match numbers.below(20) {
            0..2 => get_several(cache, partition, key, &access),
            2..8 => {
                let whole = cache.get(partition, &name, &access, |item| is_whole(key, item.value));
                assert_ne!(whole, Some(false), "key {key}");
            }
            8..13 => drop(cache.set(partition, &name, item, &access)),
            13..16 => drop(cache.add(partition, &name, item, &access)),
            16 => drop(cache.update(partition, &name, &access, |_| (Change::Store(item), ()))),
            17 => drop(cache.remove(partition, &name, &access)),
            18 => drop(cache.step(now, 20)),
            _ => change_plan(cache, &mut numbers, now),
        }
    }
}

/// Reads a key and some following ones as a batch, each twice.
fn get_several(cache: &Cache, partition: PartitionId, first: u64, access: &Access) {
    let keys: Vec<u64> = (first..first + 12).chain(first..first + 12).collect();
    let names: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
    let mut seen = 0;
    cache.get_each(partition, &names, access, |position, item| {
        assert_eq!(position, seen, "in order");
        assert!(item.is_none_or(|item| is_whole(keys[position], item.value)), "key {}", keys[position]);
        seen += 1;
    });
    assert_eq!(seen, names.len());
}

/// Applies a plan with a random budget for a random partition, or sometimes `Shared`, and sometimes
/// flushes.
fn change_plan(cache: &Cache, numbers: &mut Numbers, now: Instant) {
    let share = numbers.below(TOTAL);
    let mut budgets = vec![(TOTAL - share) / u64::from(PARTITIONS - 1); usize::from(PARTITIONS)];
    budgets[numbers.below(u64::from(PARTITIONS)) as usize] = share;
    let plan = if numbers.below(4) == 0 { CachePlan::Shared } else { CachePlan::Budgets(budgets) };
    cache.apply(&plan).expect("the budgets sum to the total at most");
    if numbers.below(50) == 0 {
        cache.flush(None, now, now);
    }
}

#[test]
fn bytes_are_conserved_and_within_budgets_after_concurrent_use() {
    for (eviction, shards) in KINDS {
        let cache = cache(eviction, shards);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let cache = &cache;
                scope.spawn(move || work(cache, thread));
            }
        });
        // A pass in flight ends, and another one removes all dead items.
        let end = Instant::from_secs(1000);
        for _ in 0..2 {
            while cache.step(end, 1000) {}
        }
        let (mut used, mut items) = (0, 0);
        for partition in (0..PARTITIONS).map(PartitionId) {
            let usage = cache.usage(partition);
            assert!(usage.used_bytes <= usage.budget_bytes, "{usage:?}");
            for key in 0..KEYS {
                let name = key.to_be_bytes();
                let bytes = cache.peek(partition, &name, &Access::at(end), |item| item.value.len());
                used += bytes.map_or(0, |bytes| charge(name.len(), bytes));
                items += u64::from(bytes.is_some());
            }
        }
        let total = cache.total();
        assert_eq!((total.used_bytes, total.items), (used, items));
        assert!(total.used_bytes <= TOTAL && total.items > 0, "{total:?}");
        assert!(
            total.hits > 0 && total.evictions > 0 && total.expired > 0,
            "the test covers all cases: {total:?}"
        );
    }
}

#[test]
fn concurrent_updates_of_one_key_are_not_lost() {
    const INCREMENTS: u64 = 5000;
    for (eviction, shards) in KINDS {
        let cache = cache(eviction, shards);
        let access = Access::at(Instant::ZERO);
        let increment = |old: Option<Value<'_>>| match old {
            Some(Value::Bytes(bytes)) => 1 + u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            _ => 1,
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..INCREMENTS {
                        let stored = cache.update(PartitionId(0), b"counter", &access, |item| {
                            let value = increment(item.map(|item| item.value)).to_le_bytes().to_vec();
                            (Change::StoreOwned { value, flags: 0, expires: None, tags: Tags::NONE }, ())
                        });
                        stored.expect("eight bytes fit");
                    }
                });
            }
        });
        let next = cache.get(PartitionId(0), b"counter", &access, |item| increment(Some(item.value)));
        assert_eq!(next, Some(1 + THREADS * INCREMENTS));
    }
}

/// Concurrent readers of a shard: every `get` is counted, and marks set by a reader are kept.
#[test]
fn concurrent_gets_are_counted_and_set_their_marks() {
    const GETS: u64 = 20_000;
    for (eviction, shards) in KINDS {
        let cache = cache(eviction, shards);
        let access = Access::at(Instant::ZERO);
        for key in 0..KEYS / 2 {
            cache.set(PartitionId(0), &key.to_be_bytes(), NewItem::bytes(b"v"), &access).expect("it fits");
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let cache = &cache;
                scope.spawn(move || {
                    let mut numbers = Numbers(thread);
                    for number in 0..GETS {
                        let key = numbers.below(KEYS);
                        let name = key.to_be_bytes();
                        let found = cache.get(PartitionId(0), &name, &access, |item| item.flags);
                        assert_eq!(found.is_some(), key < KEYS / 2, "key {key}");
                        let marks = cache.peek(PartitionId(0), &name, &access, |item| item.marks);
                        assert!(marks.is_none_or(|marks| marks.contains(Marks::USED)), "key {key}");
                        let names = [name, (key / 2).to_be_bytes()];
                        cache.get_each(PartitionId(0), &names, &access, |position, item| {
                            assert_eq!(item.is_some(), [key, key / 2][position] < KEYS / 2, "key {key}");
                        });
                        if number % 16 == 0 {
                            // Other items are written meanwhile, which moves nothing that is read.
                            let other = (KEYS + number % 64).to_be_bytes();
                            cache
                                .set(PartitionId(0), &other, NewItem::bytes(b"w"), &access)
                                .expect("it fits");
                        }
                    }
                });
            }
        });
        let usage = cache.usage(PartitionId(0));
        assert_eq!(usage.hits + usage.misses, 3 * THREADS * GETS);
        assert!(usage.hits > 0 && usage.misses > 0, "{usage:?}");
    }
}
