//! Writes beside fetches, of two tenants that share a backend.

use sherwood_cache::Access;
use sherwood_model::{BackendId, Instant, PartitionId, ReplicaId, TenantId};

use super::{World, slow};
use crate::key::Key;

const BACKEND: BackendId = BackendId(0);
const OBJECTS: u64 = 500;

/// Asserts that the caches hold what the store has of each object that is neither written nor
/// fenced. Returns how many objects that were written are cached.
fn assert_current(world: &World) -> usize {
    let server = &world.servers[0];
    let mut written = 0;
    for object in 0..OBJECTS {
        let key = Key::new(object);
        if server.machines[BACKEND.index()].is_fenced(&key) {
            continue;
        }
        let stored = world.backends[BACKEND.index()].clone().read(ReplicaId(0), object, world.now());
        for partition in world.partitions.of_backend(BACKEND) {
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
                let partition = world.partitions.of(TenantId((step % 2) as u16), BACKEND);
                // A machine that has no room refuses, which is no matter here.
                let _ = world.write(0, partition, step * step % 7, 1_001 + step as u32 % 50);
            }
        }
    }
    assert!(kept > 1_000, "hardly any written object was cached: {kept}");
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
        world.servers[0].cache.peek(partition, Key::new(0).as_ref(), &access, |_| ()).is_some()
    };
    assert!(world.partitions.all().all(cached));
    assert_eq!(world.partitions.pair(PartitionId(1)), (TenantId(1), BACKEND));
}
