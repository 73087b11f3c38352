//! A recorded trace through the engine with declared sizes, compared with exact stack distances.
//!
//! If every object has the same charge, an LRU with a budget is an LRU of as many objects as the
//! budget holds, and a get hits if its stack distance is at most that. Hits must therefore be
//! equal, for any number of shards.

use std::collections::BTreeMap;

use sherwood_cache::{Access, Cache, Eviction, NewItem, Options, Partition, charge};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};
use sherwood_workload::trace::{built_in, cache2k};

/// The first accesses of the trace; few enough for an unoptimised build.
const ACCESSES: usize = 600_000;
const VALUE_BYTES: u32 = 100;

fn accesses() -> Vec<[u8; 8]> {
    let trace = cache2k::read(built_in("orm-busy").unwrap()).unwrap().take(ACCESSES);
    let key = |access: cache2k::Access| u64::from(access.object_type()) << 32 | u64::from(access.object());
    trace.map(|access| key(access.unwrap()).to_le_bytes()).collect()
}

/// Number of gets per stack distance: the number of different keys since the key's last use,
/// including itself. A binary indexed tree over all accesses holds a one where a key was used last.
fn distances(accesses: &[[u8; 8]]) -> BTreeMap<usize, u64> {
    let mut tree = vec![0_usize; accesses.len() + 1];
    let (mut last, mut distances) = (BTreeMap::new(), BTreeMap::new());
    let add = |tree: &mut [usize], at: usize, sign: isize| {
        let mut node = at + 1;
        while node < tree.len() {
            tree[node] = tree[node].wrapping_add_signed(sign);
            node += node & node.wrapping_neg();
        }
    };
    let before = |tree: &[usize], mut node: usize| {
        let mut sum = 0_usize;
        while node > 0 {
            sum = sum.wrapping_add(tree[node]);
            node &= node - 1;
        }
        sum
    };
    for (at, &key) in accesses.iter().enumerate() {
        if let Some(earlier) = last.insert(key, at) {
            *distances.entry(before(&tree, at) - before(&tree, earlier)).or_insert(0) += 1;
            add(&mut tree, earlier, -1);
        }
        add(&mut tree, at, 1);
    }
    distances
}

/// Hits of an LRU of `objects` objects, with some spare bytes that are too few for another one.
fn hits(accesses: &[[u8; 8]], objects: u64, shards: u16) -> u64 {
    let each = charge(8, VALUE_BYTES as usize);
    let total_bytes = objects * each + each - 1;
    let options = Options { total_bytes, shards, eviction: Eviction::Lru, ..Options::default() };
    let partition = Partition::new(TenantId(0), BackendId(0), total_bytes);
    let cache = Cache::new(options, &[partition], SeededState::new(1)).unwrap();
    let access = Access::at(Instant::ZERO);
    for key in accesses {
        if cache.get(PartitionId(0), key, &access, |_| ()).is_none() {
            cache.set(PartitionId(0), key, NewItem::declared(VALUE_BYTES), &access).unwrap();
        }
    }
    cache.total().hits
}

#[test]
fn hits_with_declared_sizes_equal_exact_stack_distances() {
    let accesses = accesses();
    let distances = distances(&accesses);
    let reused: u64 = distances.values().sum();
    assert!(reused > ACCESSES as u64 / 2, "{reused} gets of {ACCESSES} are reuses");
    for (objects, shards) in [(1, 1), (100, 1), (1_000, 1), (5_000, 1), (5_000, 8), (20_000, 1)] {
        let expected: u64 = distances.range(..=objects as usize).map(|(_, gets)| gets).sum();
        assert_eq!(hits(&accesses, objects, shards), expected, "{objects} objects in {shards} shards");
        assert!(expected < reused || objects == 20_000, "{objects} objects hold the trace: {expected}");
    }
}
