//! Requests, the cache and dispatchers together in a world of faults: backends that die and return, answers that are
//! lost, late or repeated, keys written while they are fetched, a clock that stands still and jumps. Everything follows
//! from one seed. Whatever happens, each key of each request ends exactly once and in time, the request counts as it
//! must, nothing stale is cached, and the healthy backend notices nothing.

mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;

use world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_key_of_each_request_ends_exactly_once(seed: u64) {
        let mut world = World::new(seed);
        world.plan_inputs();
        world.run();
        world.heal();
        world.run();
        world.assert_at_rest();
        world.assert_all_backends_are_used_again();
    }
}

/// The faults must really occur, or the property above says nothing.
#[test]
fn requests_end_in_every_way() {
    let mut seen = BTreeMap::new();
    for seed in 0..30 {
        let mut world = World::new(seed);
        world.plan_inputs();
        world.run();
        world.ends.iter().for_each(|(status, count)| *seen.entry(*status).or_insert(0) += count);
    }
    assert!(seen.len() == 6 && seen.values().all(|count| *count > 50), "{seen:?}");
}
