//! Small runs to the last byte.
//!
//! Equal seeds give equal results on every machine and after every change that is not meant to
//! change them. A difference here is either a machine that calculates otherwise or a change of what
//! is simulated; the latter is reviewed as the difference of the files beside this one, and said so
//! in its commit.

use std::sync::Arc;

use sherwood_sim::{Results, Setup, World};
use sherwood_workload::onerf::Model;

fn run(setup: &Setup) -> Results {
    let mut world = World::new(setup).expect("a valid setup");
    world.advance(world.end()).expect("the books balance");
    world.results()
}

/// Caches that are too small from the first seconds on, and decisions that come quickly.
fn hurried(mut setup: Setup) -> Setup {
    setup.knobs.control.delta = std::time::Duration::from_secs(1);
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    setup.knobs.ghost_rate = Some(0.5);
    setup
}

/// Four servers and twenty backends, at the walk that is written down.
#[test]
fn a_run_of_the_built_in_workload() {
    let mut setup = hurried(Setup::new("onerf-random", "robinhood", 1));
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.05), Some(0.15));
    (setup.knobs.cache_ratio, setup.knobs.load_ratio) = (0.02, 0.5);
    let document = serde_json::to_string_pretty(&run(&setup)).expect("plain figures");
    insta::assert_snapshot!("onerf", document);
}

/// A backend of three replicas, one of which slows down.
#[test]
fn a_run_with_replicas() {
    let model = Model::from_json(include_str!("../../../examples/replicas.sim.json")).expect("a valid model");
    let mut setup = hurried(Setup::new("one-replica-slows-down", "robinhood", 1));
    (setup.model, setup.profile) = (Arc::new(model), "site".to_owned());
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.1), Some(0.5));
    setup.knobs.limit_depth = 20.0;
    let document = serde_json::to_string_pretty(&run(&setup)).expect("plain figures");
    insta::assert_snapshot!("replicas", document);
}

/// A system of somebody's own, with batches of drawn sizes, under each of the policies that are
/// compared, a line each.
#[test]
fn runs_of_every_policy() {
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
