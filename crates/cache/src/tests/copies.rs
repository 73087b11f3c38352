//! A copy behaves like the original and is independent of it.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};

use super::classes;
use crate::{Access, AccessFlags, Cache, DeadlineClass, Eviction, Heap, NewItem, Options, Partition, Value};

const TOTAL_BYTES: u64 = 64 << 10;

/// An operation on one of 400 keys of two partitions.
type Op = (u16, u8, u32);

fn new(eviction: Eviction, shards: u16) -> Cache {
    let partition = |backend| Partition {
        deadlines: classes(3),
        ..Partition::new(TenantId(0), BackendId(backend), TOTAL_BYTES / 2)
    };
    let options = Options {
        total_bytes: TOTAL_BYTES,
        item_bytes_max: 1 << 20,
        shards,
        eviction,
        ghost_rate: 0.5,
        ..Options::default()
    };
    Cache::new(options, &[partition(0), partition(1)], SeededState::new(7)).unwrap()
}

/// Applies an operation at its own time; returns its result and the bytes used then.
fn apply(cache: &Cache, second: u64, (key, kind, bytes): Op) -> (bool, u64) {
    let partition = PartitionId(key % 2);
    let flags = if kind % 3 == 0 { AccessFlags::DEADLINE_MISSED } else { AccessFlags::NONE };
    let class = Some(DeadlineClass(kind % 3));
    let access = Access { class, flags, ..Access::at(Instant::from_secs(second)) };
    let name = (key % 400).to_le_bytes();
    let declared = |bytes| NewItem { value: Value::Declared(bytes), ..NewItem::bytes(b"") };
    let found = match kind % 8 {
        0..4 => cache.get(partition, &name, &access, |_| ()).is_some(),
        4 => cache.add(partition, &name, NewItem::bytes(&vec![1; bytes as usize]), &access).is_ok(),
        5 => cache.add(partition, &name, declared(bytes), &access).is_ok(),
        6 => {
            let expires = Some(access.now + Duration::from_secs(20));
            cache.set(partition, &name, NewItem { expires, ..declared(bytes) }, &access).is_ok()
        }
        _ => {
            let first = TOTAL_BYTES * u64::from(bytes % 8 + 1) / 9;
            cache.apply(&CachePlan::Budgets(vec![first, TOTAL_BYTES - first])).unwrap();
            cache.step(access.now, 100)
        }
    };
    (found, cache.used_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn copy_of_a_cache_behaves_like_the_original(
        before in prop::collection::vec((any::<u16>(), any::<u8>(), 0u32..12_000), 0..600),
        after in prop::collection::vec((any::<u16>(), any::<u8>(), 0u32..12_000), 0..300),
        lru in any::<bool>(),
        four in any::<bool>(),
    ) {
        let eviction = if lru { Eviction::Lru } else { Eviction::S3Fifo };
        let mut cache = new(eviction, if four { 4 } else { 1 });
        for (second, &op) in before.iter().enumerate() {
            apply(&cache, second as u64, op);
        }
        let copy = cache.copy(Arc::new(Heap));
        prop_assert_eq!(copy.supply.held(), cache.supply.held());
        let (of_copy, of_cache): (Vec<_>, Vec<_>) = after
            .iter()
            .zip(before.len() as u64..)
            .map(|(&op, second)| (apply(&copy, second, op), apply(&cache, second, op)))
            .unzip();
        prop_assert_eq!(of_copy, of_cache);
        for partition in [PartitionId(0), PartitionId(1)] {
            prop_assert_eq!(copy.usage(partition), cache.usage(partition));
            prop_assert_eq!(copy.class_usage(partition), cache.class_usage(partition));
            prop_assert_eq!(copy.miss_ratio_curve(partition), cache.miss_ratio_curve(partition));
        }
        prop_assert_eq!((copy.plan(), copy.supply.held()), (cache.plan(), cache.supply.held()));
        copy.shards.iter().for_each(|shard| shard.check(&copy.ledger));
    }
}
