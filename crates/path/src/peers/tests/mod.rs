//! Simulation of nodes that share a backend, on a bus that loses, delays, repeats and reorders.

mod world;

use std::collections::BTreeMap;
use std::env;

use world::{Flaw, World};

/// Seeds of a run without `SEEDS`.
const SEEDS: u64 = 400;
/// Seeds within which each flaw has to be found.
const FLAW_SEEDS: u64 = 400;

/// Events that have to occur for the property to be tested.
const MUST_HAPPEN: &[&str] = &[
    "read hit",
    "read untrusted",
    "read fetched",
    "write acknowledged",
    "write refused",
    "write with an unknown outcome",
    "write kept",
    "message lost",
    "message repeated",
    "bus cut",
    "node paused",
    "node crashed",
    "node left",
    "clock stepped back",
    "values dropped",
    "changes sent again",
    "trusted again after a cut",
    "farewell relied on",
    "node removed",
];

fn seeds(default: u64) -> u64 {
    #[allow(clippy::disallowed_methods, reason = "the number of seeds may be given")]
    let given = env::var("SEEDS");
    given.map_or(default, |seeds| seeds.parse().expect("SEEDS is a number"))
}

#[test]
fn no_read_returns_a_value_older_than_stale_whatever_the_bus_loses() {
    let mut seen = BTreeMap::new();
    for seed in 0..seeds(SEEDS) {
        let world = World::new(seed, Flaw::None).run();
        assert_eq!(world.violation, None, "seed {seed}");
        for (what, count) in world.seen {
            *seen.entry(what).or_insert(0) += count;
        }
    }
    let rare: Vec<_> = MUST_HAPPEN.iter().filter(|what| seen.get(*what).copied().unwrap_or(0) < 20).collect();
    assert!(rare.is_empty(), "events too rare to test the property: {rare:?} in {seen:?}");
}

#[test]
fn flaws_put_in_on_purpose_are_found() {
    for flaw in Flaw::ALL {
        let found = (0..FLAW_SEEDS).find(|&seed| World::new(seed, flaw).run().violation.is_some());
        assert!(found.is_some(), "{flaw:?} is not found in {FLAW_SEEDS} seeds");
        println!("{flaw:?}: seed {}", found.unwrap_or_default());
    }
}
