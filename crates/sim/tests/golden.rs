//! Results of small runs, compared byte for byte.
//!
//! Equal seeds give equal results on every machine and after every change that is not meant to
//! change them. A difference is caused by a machine that calculates differently or by a change of
//! the simulation; the latter is reviewed as a difference of the snapshot files and mentioned in
//! its commit.

use std::sync::Arc;

use sherwood_sim::{Results, Setup, World};
use sherwood_workload::onerf::Model;

fn run(setup: &Setup) -> Results {
    let mut world = World::new(setup).expect("a valid setup");
    world.advance(world.end()).expect("the books balance");
    world.results()
}

/// Returns the setup with decisions every second, which move bytes even while the caches are not
/// full.
fn hurried(mut setup: Setup) -> Setup {
    setup.knobs.control.delta = std::time::Duration::from_secs(1);
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    setup.knobs.ghost_rate = Some(0.5);
    setup
}

/// Simulates four servers and twenty backends, with the given realisation of a random scenario.
#[test]
fn results_of_the_built_in_workload_are_unchanged() {
    let mut setup = hurried(Setup::new("onerf-random", "robinhood", 1));
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.05), Some(0.15));
    (setup.knobs.cache_ratio, setup.knobs.load_ratio) = (0.02, 0.5);
    let document = serde_json::to_string_pretty(&run(&setup)).expect("plain figures");
    insta::assert_snapshot!("onerf", document);
}

/// Simulates a backend of three replicas, one of which slows down.
#[test]
fn results_with_replicas_are_unchanged() {
    let model = Model::from_json(include_str!("../../../examples/replicas.sim.json")).expect("a valid model");
    let mut setup = hurried(Setup::new("one-replica-slows-down", "robinhood", 1));
    (setup.model, setup.profile) = (Arc::new(model), "site".to_owned());
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.1), Some(0.5));
    setup.knobs.limit_depth = 20.0;
    let document = serde_json::to_string_pretty(&run(&setup)).expect("plain figures");
    insta::assert_snapshot!("replicas", document);
}

/// Simulates a user's system with log-normal batch sizes under each of the compared policies, a
/// line each.
#[test]
fn results_of_every_policy_are_unchanged() {
    let model =
        Model::from_json(include_str!("../../../examples/two-backends.sim.json")).expect("a valid model");
    let model = Arc::new(model);
    let line = |policy| {
        let mut setup = hurried(Setup::new("reviews-slow-down", policy, 3));
        (setup.model, setup.profile) = (Arc::clone(&model), "shop".to_owned());
        (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.1), Some(0.5));
        (setup.knobs.cache_ratio, setup.knobs.limit_depth) = (0.02, 20.0);
        setup.knobs.control.tao.budgets_bytes =
            if policy == "tao" { vec![3_000_000, 2_000_000] } else { Vec::new() };
        serde_json::to_string(&run(&setup)).expect("plain figures") + "\n"
    };
    let lines = ["robinhood", "shared-lru", "tao", "cliffhanger", "fair", "lama"].map(line).concat();
    insta::assert_snapshot!("policies", lines);
}
