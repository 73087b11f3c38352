//! Batch reads compared with single reads.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{Instant, PartitionId};

use super::{A, B, LRU, cache_with};
use crate::{Access, Cache, Eviction, NewItem, Options, Use, Value};

const TOTAL_BYTES: u64 = 20_000;

fn new(eviction: Eviction, shards: u16) -> Cache {
    let options = Options { total_bytes: TOTAL_BYTES, eviction, shards, ghost_rate: 1.0, ..LRU };
    cache_with(options, &[TOTAL_BYTES / 2, TOTAL_BYTES / 2])
}

/// Stores an item after a miss; some items expire soon.
fn fill(cache: &Cache, partition: PartitionId, key: [u8; 2], access: &Access) {
    let expires = key[0].is_multiple_of(3).then(|| access.now + Duration::from_secs(2));
    let item = NewItem { value: Value::Declared(u32::from(key[0]) * 4), ..NewItem::bytes(b"") };
    cache.add(partition, &key, NewItem { expires, ..item }, access).expect("it fits");
}

/// The items found, with their ranks in the order of stores and of uses.
fn in_order(found: &[Option<(usize, u64, Use)>]) -> Vec<Option<(usize, usize, usize)>> {
    let stores: BTreeSet<u64> = found.iter().flatten().map(|&(_, cas, _)| cas).collect();
    let uses: BTreeSet<Use> = found.iter().flatten().map(|&(.., last_use)| last_use).collect();
    let in_order =
        |(bytes, cas, last_use)| (bytes, stores.range(..cas).count(), uses.range(..last_use).count());
    found.iter().map(|item| item.map(in_order)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn batch_read_equals_single_reads(
        // Few keys, so that some repeat within a batch, and batches longer than what is read under
        // one lock.
        batches in prop::collection::vec((any::<bool>(), prop::collection::vec(0u16..120, 0..80)), 1..30),
        lru in any::<bool>(),
        four in any::<bool>(),
    ) {
        let eviction = if lru { Eviction::Lru } else { Eviction::S3Fifo };
        let shards = if four { 4 } else { 1 };
        let (together, each) = (new(eviction, shards), new(eviction, shards));
        for (second, (first, keys)) in batches.into_iter().enumerate() {
            let partition = if first { A } else { B };
            let access = Access::at(Instant::from_secs(second as u64));
            let keys: Vec<[u8; 2]> = keys.into_iter().map(u16::to_le_bytes).collect();
            let mut found = Vec::new();
            together.get_each(partition, &keys, &access, |position, item| {
                assert_eq!(position, found.len(), "in order");
                found.push(item.map(|item| (item.value.len(), item.cas, item.last_use)));
            });
            let read = |key: &[u8; 2]| {
                each.get(partition, key, &access, |item| (item.value.len(), item.cas, item.last_use))
            };
            let expected: Vec<_> = keys.iter().map(read).collect();
            prop_assert_eq!(in_order(&found), in_order(&expected));
            for (key, _) in keys.iter().zip(&found).filter(|(_, found)| found.is_none()) {
                fill(&together, partition, *key, &access);
                fill(&each, partition, *key, &access);
            }
        }
        for partition in [A, B] {
            prop_assert_eq!(together.usage(partition), each.usage(partition));
            prop_assert_eq!(together.miss_ratio_curve(partition), each.miss_ratio_curve(partition));
        }
        together.shards.iter().for_each(|shard| shard.check(&together.ledger));
    }
}
