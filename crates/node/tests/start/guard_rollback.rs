//! Tests of the guard in a whole node: a policy starves a backend, its requests become slow, the
//! guard rolls back and reports it.
//!
//! The clock is driven by the test, so that a quarter of an hour takes a second and every run is
//! the same. Hits and misses are those of the node's own cache; the reported latencies depend on
//! the misses.

use std::time::Duration;

use serde_json::{Value, json};
use sherwood_model::{PartitionId, SplitMix64};

use super::driven::Driven;

/// Configuration with two partitions under policy `fair`: `a`, whose data fits with space to spare,
/// and `b`, whose data exceeds the whole cache, so that `fair` moves space from `a` to `b`.
const CONFIGURATION: &str = r#"
    [memory]
    total = "8MiB"
    mrc_sample = 0.0
    [control]
    policy = "fair"
    guard = { freeze = "5m" }
    [[backend]]
    name = "a"
    store = { kind = "compute", n = 1, bytes = "4KiB" }
    [[backend]]
    name = "b"
    store = { kind = "compute", n = 1, bytes = "4KiB" }
    [[partition]]
    backend = "a"
    initial = "6MiB"
"#;

/// Interval of decisions, default time of harm before the guard acts, and freeze after a rollback.
const DELTA: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(60);
const FREEZE: Duration = Duration::from_secs(300);

/// Number of keys of each backend, and of keys requested per round.
const KEYS: [u64; 2] = [700, 4_000];
const ASKED: usize = 100;
/// Number of misses per round at `a` above which some of its requests are slow.
const MISSES_FELT: usize = 2;
/// Number of reports per round; in a slow one, a twentieth of them is slow.
const REPORTS: u64 = 100;

/// The node and the source of requests.
struct World {
    node: Driven,
    random: SplitMix64,
}

impl World {
    fn allocated(&self) -> Vec<u64> {
        let partitions = self.node.get("/v1/partitions");
        partitions.as_array().unwrap().iter().map(|one| one["allocated_bytes"].as_u64().unwrap()).collect()
    }

    /// Advances by [`DELTA`], requests some keys, reports requests, some of them slow if `a` had
    /// too many misses, and runs a decision. Returns true if some were slow.
    fn round(&mut self) -> bool {
        self.node.pass(DELTA);
        let mut keys = |at: usize| -> Vec<String> {
            (0..ASKED).map(|_| (self.random.next_u64() % KEYS[at]).to_string()).collect()
        };
        let queries = json!([{"backend": "a", "keys": keys(0)}, {"backend": "b", "keys": keys(1)}]);
        let answer = self.node.post("/v1/requests", &json!({"values": false, "queries": queries}));
        let missed = |result: &&Value| result["backend"] == "a" && result["status"] == "miss";
        let slow = answer["results"].as_array().unwrap().iter().filter(missed).count() > MISSES_FELT;
        let report = |i: u64| match slow && i < REPORTS / 20 {
            true => json!({"latency_us": 400_000 + i, "blocking": "a"}),
            false => json!({"latency_us": 10_000 + i, "blocking": "b"}),
        };
        let reports: Vec<Value> = (0..REPORTS).map(report).collect();
        self.node.post("/v1/reports", &json!(reports));
        self.node.decide();
        slow
    }
}

#[test]
fn guard_rolls_back_a_harmful_allocation_freezes_the_budgets_and_reports_it() {
    let mut world = World { node: Driven::new(CONFIGURATION), random: SplitMix64::new(1) };
    let mut suspected = None;
    // Misses of the first rounds are the same whatever the policy does; afterwards `a` has all the
    // space it needs.
    (0..20).for_each(|_| _ = world.round());
    let started = world.allocated();
    let mut slow_rounds = 0;
    for round in 0.. {
        assert!(round < 500, "it never went back: {}", world.node.get("/v1/control"));
        slow_rounds += u32::from(world.round());
        let guard = world.node.get("/v1/control")["guard"].take();
        if guard["trips"] == 1 {
            break;
        }
        if !guard["worse_s"].is_null() {
            assert_eq!(world.node.metric("sherwood_guard_suspects"), 1.0);
            suspected = Some((world.allocated(), guard));
        }
    }
    let (starved, suspicion) = suspected.expect("harm is suspected for a window before");
    assert!(slow_rounds > 10 && starved[0] < started[0], "{slow_rounds} {starved:?} {started:?}");
    assert_eq!(suspicion["worse_s"], (WINDOW - DELTA).as_secs_f64());

    // It rolled back to the allocation reported as good.
    let good = [&suspicion["good_bytes"]["a"], &suspicion["good_bytes"]["b"]];
    let allocated = world.allocated();
    assert_eq!(good, [&json!(allocated[0]), &json!(allocated[1])]);
    assert!(allocated[0] > starved[0] && allocated.iter().sum::<u64>() == starved.iter().sum::<u64>());
    let control = world.node.get("/v1/control");
    assert_eq!(control["guard"]["frozen_s"], FREEZE.as_secs_f64());
    let line = control["latest"]["line"].as_str().unwrap();
    assert!(line.contains("back to the last good allocation"), "{line}");
    let events = world.node.core.events.latest();
    let event = events.iter().find(|event| event.kind == "guard").expect("it is told");
    assert!(event.warns && event.message.contains("since a lost bytes"), "{}", event.message);
    assert_eq!(
        (&event.data["blamed"], &event.data["freeze_s"]),
        (&json!(["a"]), &json!(FREEZE.as_secs_f64()))
    );
    assert!(event.data["tail_ms"].as_f64() > Some(399.0) && event.data["good_tail_ms"].as_f64() < Some(11.0));
    let metrics = ["trips_total", "frozen", "suspects"]
        .map(|name| world.node.metric(&format!("sherwood_guard_{name}")));
    assert_eq!(metrics, [1.0, 1.0, 0.0]);

    // During the freeze nothing moves, and no request is slow.
    let rounds = (FREEZE.as_secs() / DELTA.as_secs()) as usize - 1;
    let slow: Vec<bool> = (0..rounds).map(|_| world.round()).collect();
    assert_eq!((world.allocated(), slow[rounds / 2..].contains(&true)), (allocated.clone(), false));
    assert_eq!(world.node.get("/v1/control")["latest"]["kept"], "the guard holds them after going back");
    assert_eq!(world.node.get("/v1/control")["guard"]["frozen_s"], DELTA.as_secs_f64());

    // The freeze ends.
    world.round();
    assert_ne!(world.allocated(), allocated);
    let metrics = ["trips_total", "frozen"].map(|name| world.node.metric(&format!("sherwood_guard_{name}")));
    assert_eq!(
        (world.node.get("/v1/control")["guard"]["frozen_s"].take(), metrics),
        (Value::Null, [1.0, 0.0])
    );
}

#[test]
fn changed_limit_of_a_partition_restarts_the_guard() {
    let mut world = World { node: Driven::new(CONFIGURATION), random: SplitMix64::new(1) };
    let good = |world: &World| world.node.get("/v1/control")["guard"]["good_bytes"].take();
    (0..20).for_each(|_| _ = world.round());
    assert!(good(&world)["a"].as_u64() > Some(0), "what is in force is good");
    for pin in [json!({"min_bytes": 1 << 20}), json!({"max_bytes": 7 << 20}), json!({"dry_run": true})] {
        world.node.put("/v1/partitions/a", &pin);
        assert_eq!(good(&world), json!({}), "{pin}");
        (0..20).for_each(|_| _ = world.round());
        let known = good(&world);
        world.node.put("/v1/partitions/a", &pin);
        assert_eq!(good(&world), known, "it is pinned so already");
    }
}

#[test]
fn flush_or_invalidation_restarts_the_guard() {
    let mut world = World { node: Driven::new(CONFIGURATION), random: SplitMix64::new(1) };
    let good = |world: &World| world.node.get("/v1/control")["guard"]["good_bytes"].take();
    let flush = |world: &World| {
        let (core, now) = (&world.node.core, world.node.core.clock.now());
        core.flush(PartitionId(0), now, || core.cache.flush(Some(PartitionId(0)), now, now));
    };
    let invalidate = |world: &World| {
        world.node.post("/v1/invalidate", &json!({"backend": "b", "prefix": ""}));
    };
    for empty in [&flush as &dyn Fn(&World), &invalidate] {
        (0..20).for_each(|_| _ = world.round());
        assert!(good(&world)["a"].as_u64() > Some(0), "what is in force is good");
        empty(&world);
        world.round();
        assert_eq!(good(&world), json!({}), "it begins anew");
    }
}
