//! Releasing memory step by step.

use proptest::prelude::*;
use sherwood_model::Instant;

use super::*;
use crate::charge;

/// Value sizes of every kind: small, several per page, in a run.
fn value_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..300_usize, 2 => 1_000..8_000_usize, 1 => 9_000..200_000_usize]
}

/// A cache after stores of partly repeated keys and gets in between.
fn filled(shards: u16, ops: &[(u16, Option<usize>)]) -> Cache {
    let cache =
        cache_with(Options { total_bytes: TOTAL, shards, eviction: Eviction::S3Fifo, ..LRU }, &[TOTAL]);
    let value = vec![7; 200_000];
    for (key, store) in ops {
        let key = key.to_le_bytes();
        if let Some(bytes) = store {
            cache.set(A, &key, NewItem::bytes(&value[..*bytes]), &at(0)).expect("it fits");
        } else {
            cache.get(A, &key, &at(0), |_| ());
        }
    }
    cache
}

fn keys(cache: &Cache) -> Vec<u16> {
    (0..KEYS).filter(|key| cache.peek(A, &key.to_le_bytes(), &at(0), |_| ()).is_some()).collect()
}

const KEYS: u16 = 600;
const TOTAL: u64 = 8 << 20;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn background_step_evicts_at_most_its_limit(
        ops in prop::collection::vec((0..KEYS, prop::option::weighted(0.8, value_bytes())), 1..900),
        tenths in 0..10_u64,
        items_max in 1..100_usize,
    ) {
        let cache = filled(4, &ops);
        let largest = charge(2, 200_000);
        cache.apply(&budgets(&[TOTAL / 10 * tenths])).expect("less than the total");
        // An item of up to 4 KiB counts as one, a larger one as several, rounded down; the last may
        // exceed the limit.
        let bytes_max = 2 * items_max as u64 * 4096 + largest;
        for steps in 0.. {
            let before = cache.total();
            let more = cache.step(Instant::ZERO, items_max);
            let after = cache.total();
            prop_assert!(before.items - after.items <= items_max as u64);
            prop_assert!(before.used_bytes - after.used_bytes <= bytes_max, "{before:?} {after:?}");
            if !more {
                break;
            }
            prop_assert!(steps < 100_000, "steps end");
        }
        cache.shards.iter().for_each(|shard| shard.check(&cache.ledger));
        prop_assert!(cache.used_bytes() <= TOTAL / 10 * tenths);
    }

    #[test]
    fn victims_are_equal_for_small_and_large_background_steps(
        ops in prop::collection::vec((0..KEYS, prop::option::weighted(0.6, 0..60_000_usize)), 1..900),
        tenths in 0..10_u64,
    ) {
        let [one, many] = [1, 1_000].map(|items_max| {
            let cache = filled(1, &ops);
            cache.apply(&budgets(&[TOTAL / 10 * tenths])).expect("less than the total");
            while cache.step(Instant::ZERO, items_max) {}
            keys(&cache)
        });
        prop_assert_eq!(one, many);
    }
}

/// Partly empty pages of every size in each shard must not reduce the bytes available to items.
#[test]
fn items_of_mixed_and_changing_sizes_use_the_full_budget() {
    let total_bytes = 64 << 20;
    for eviction in [Eviction::S3Fifo, Eviction::Lru] {
        let cache = cache_with(Options { eviction, ..Options::sized(total_bytes, 4) }, &[total_bytes]);
        let value = [7; 8_000];
        let mut number = 0_u64;
        for sizes in [0..2_000_u64, 3_000..8_000, 0..500, 0..8_000] {
            let mut stored = 0;
            while stored < 2 * total_bytes {
                number += 1;
                let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                let bytes = (sizes.start + mixed % (sizes.end - sizes.start)) as usize;
                cache
                    .set(A, &number.to_le_bytes(), NewItem::bytes(&value[..bytes]), &at(0))
                    .expect("it fits");
                stored += charge(8, bytes);
                if number.is_multiple_of(1_000) {
                    cache.step(Instant::ZERO, 1_000);
                }
            }
            let used = cache.used_bytes();
            assert!(used > total_bytes / 20 * 19, "{used} bytes of items of {sizes:?}, {eviction:?}");
            assert!(
                cache.supply.held() <= cache.held_max() + (1 << 20),
                "{} bytes are held",
                cache.supply.held()
            );
        }
    }
}
