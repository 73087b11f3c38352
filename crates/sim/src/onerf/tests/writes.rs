//! Writes beside fetches, of two tenants that share a backend.

use std::time::Duration;

use sherwood_cache::Access;
use sherwood_model::{BackendId, Demand, Instant, PartitionId, ReplicaId, TenantId};
use sherwood_path::{Query, Staleness};

use super::{World, slow};
use crate::key::Key;

const BACKEND: BackendId = BackendId(0);
const OBJECTS: u64 = 500;

/// Asserts that cached objects have the size that the replica has, except for fenced keys (of
/// unfinished writes). Returns how many objects that were written are cached.
fn assert_current(world: &World) -> usize {
    let server = &world.nodes[0];
    let mut written = 0;
    for object in 0..OBJECTS {
        let key = Key::new(object);
        if server.machines[BACKEND.index()].is_fenced(&key) {
            continue;
        }
        let stored = world.family.backends[BACKEND.index()].clone().read(ReplicaId(0), object, world.now());
        for partition in world.family.partitions.of_backend(BACKEND) {
            let access = Access::at(world.now());
            let cached = server.cache.peek(partition, key.as_ref(), &access, |item| item.value.len());
            assert!(
                cached.is_none_or(|cached| cached == stored as usize),
                "at {:?} object {object} has {stored} bytes and {partition:?} holds {cached:?}",
                world.now()
            );
            written += usize::from(cached.is_some_and(|cached| cached != 1_000));
        }
    }
    written
}

#[test]
fn caches_hold_no_value_older_than_a_settled_write() {
    let mut kept = 0;
    for (seed, service_ms) in [(1, 40.0), (2, 90.0), (3, 150.0), (4, 600.0)] {
        let mut world = World::with_tenants(&slow(200, seed, service_ms), 2).expect("valid");
        for step in 1..1_200_u64 {
            world.advance(Instant::from_millis(step * 50)).expect("the books balance");
            kept += assert_current(&world);
            if step % 5 == 0 {
                let partition = world.family.partitions.of(TenantId((step % 2) as u16), BACKEND);
                // A machine that has no room refuses, which is no matter here.
                let _ = world.write(0, partition, step * step % 7, 1_001 + step as u32 % 50);
            }
        }
    }
    assert!(kept > 1_000, "hardly any written object was cached: {kept}");
}

/// Starts a request of one query at the only server.
fn start(world: &mut World, query: Query<Key>) {
    let request = world.begin(0, world.now, vec![query]);
    world.arrive(request);
}

/// A value that was read while the write might still take effect must not fill: no input
/// invalidates its fetch, which begins after the end of the write and is answered before the key's
/// fence ends.
#[test]
fn value_read_before_a_write_of_unknown_outcome_takes_effect_does_not_fill_the_cache() {
    const PARTITION: PartitionId = PartitionId(0);
    let (written, other) = (Key::new(7), Key::new(8));
    let mut setup = slow(200, 1, 600.0);
    setup.knobs.load_ratio = 1e-6;
    let mut world = World::new(&setup).expect("valid");
    let query = |key| Query {
        backend: BACKEND,
        partition: PARTITION,
        keys: vec![key],
        demand: Demand::default(),
        timeout: Duration::from_secs(1),
        staleness: Staleness::default(),
        shared: None,
    };
    let advance = |world: &mut World, ms| world.advance(Instant::from_millis(ms)).expect("the books balance");
    let cached = |world: &World| {
        let access = Access::at(world.now());
        world.nodes[0].cache.peek(PARTITION, written.as_ref(), &access, |item| item.value.len())
    };
    let is_fenced = |world: &World| world.nodes[0].machines[BACKEND.index()].is_fenced(&written);

    // The write waits for the call before it, lands at 1,200 ms, and ends unknown at 1,010 ms.
    start(&mut world, query(other));
    advance(&mut world, 10);
    world.write(0, PARTITION, written.object(), 1_001).expect("nothing else is written");
    advance(&mut world, 1_100);
    assert!(is_fenced(&world));
    start(&mut world, query(written));
    advance(&mut world, 1_810);
    let fills = world.nodes[0].machines[BACKEND.index()].fills();
    assert_eq!((fills.allowed, fills.withheld), (1, 1));
    assert!(is_fenced(&world));
    assert_eq!(cached(&world), None);

    // The next fetch after the end of the fence reads what was written.
    advance(&mut world, 2_100);
    start(&mut world, query(written));
    advance(&mut world, 2_800);
    assert_eq!((cached(&world), world.queries()), (Some(1_001), 3), "the test's queries alone");
}

#[test]
fn two_tenants_of_a_backend_share_neither_fetches_nor_partitions() {
    let mut world = World::with_tenants(&slow(600, 5, 1.0), 2).expect("valid");
    world.advance(Instant::from_secs(60)).expect("the books balance");
    let usage = world.usage(0);
    assert_eq!(usage.len(), 2);
    assert!(usage.iter().all(|usage| usage.items > 20 && usage.hits > 50), "{usage:?}");
    let lookups = usage.iter().map(|usage| usage.hits + usage.misses).sum::<u64>();
    assert_eq!(lookups, world.queries());
    // The most popular object was fetched once for each tenant.
    let cached = |partition: PartitionId| {
        let access = Access::at(world.now());
        world.nodes[0].cache.peek(partition, Key::new(0).as_ref(), &access, |_| ()).is_some()
    };
    assert!(world.family.partitions.all().all(cached));
    assert_eq!(world.family.partitions.pair(PartitionId(1)), (TenantId(1), BACKEND));
}
