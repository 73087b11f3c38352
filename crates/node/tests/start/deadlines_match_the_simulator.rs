//! Compares the node with the simulator under deadlines: reads that arrive independently of answers
//! (an open loop), a store with varying times, deadline classes in the cache, and admission that
//! chooses β.
//!
//! Both have one server, so that servers are not chosen at random. Reads overlap, wait and are
//! rejected. After every decision, both must have the same hits, the same items and multipliers by
//! class, the same met, missed and rejected deadlines, and the same β.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use sherwood_cache::{
    ClassUsage, DeadlineCost, DeadlineOptions, Eviction, Options as CacheOptions, Usage, charge,
};
use sherwood_dispatch::{
    AdmitChoice, BalanceChoice, Counters, Options as DispatchOptions, QueueChoice, RetryOptions,
};
use sherwood_model::{BackendId, DeadlineClasses, Instant, PartitionId, Percent};
use sherwood_sim::microfuge::{Knobs, ScheduledRead, Setup as Simulated, World};

use super::staged::{Calls, Staged, TimedStore};
use crate::start::*;

/// Interval of the control loop's decisions in the simulation, equal to a node's default.
const DECIDE_EVERY: Duration = Duration::from_secs(5);
const DECISIONS: u32 = 12;
const VALUE_BYTES: usize = 1_024;
/// Target share of missed deadlines, for which β is chosen.
const TARGET: f64 = 0.1;
/// Maximum number of waiting reads and calls, which is never reached.
const WAITING_MAX: u32 = 10_000;

const CONFIGURATION: &str = r#"
    [control]
    policy = "static"
    [[backend]]
    name = "records"
    store = { kind = "compute", n = 1, bytes = "4KiB" }
"#;

/// Returns the options of a simulation of one server with slightly more load than it can serve.
fn simulated() -> Simulated {
    let mut setup = Simulated::new("sherwood", 1);
    setup.knobs = Knobs {
        servers: 1,
        rate: Some(200.0),
        records: 400,
        classes: 3,
        target: Some(TARGET),
        warm_up: Duration::ZERO,
        measure: DECIDE_EVERY * (DECISIONS + 1),
        ..setup.knobs
    };
    setup
}

/// Configures the node's only backend, cache and partition as in the simulation.
fn as_simulated(setup: &mut Setup, knobs: &Knobs) {
    let key_bytes = "a000000000000".len();
    let total_bytes = knobs.records / 5 * charge(key_bytes, VALUE_BYTES) as u64;
    setup.cache = CacheOptions {
        total_bytes,
        shards: 1,
        eviction: Eviction::Lru,
        ..CacheOptions::sized(total_bytes, 1)
    };
    setup.partitions[0].initial_bytes = None;
    let backend = &mut setup.backends[0];
    backend.deadlines = DeadlineOptions {
        classes: DeadlineClasses::of_equal_width(knobs.classes, knobs.classes_upto).unwrap(),
        step: knobs.epsilon,
        cost: DeadlineCost::Measured,
    };
    backend.dispatch = DispatchOptions {
        batch_keys_max: 1,
        in_flight_calls_max: knobs.slots,
        queued_calls_max: WAITING_MAX,
        waiters_max: WAITING_MAX,
        timeout: Duration::from_secs(10),
        retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
        balance: BalanceChoice::AllTickets,
        queue: QueueChoice::Edf { alpha: Percent::new("alpha", knobs.alpha).unwrap() },
        beta: Percent::BETA,
        admit: AdmitChoice::Deadline { target: Some(Percent::new("target", TARGET * 100.0).unwrap()) },
        ..DispatchOptions::default()
    };
}

/// Service time and number of requests of each key in flight. The time is that of the key's first
/// request.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<HashMap<String, (Duration, u32)>>>);

impl Times {
    fn begin(&self, read: &ScheduledRead) {
        let mut times = self.0.lock().unwrap();
        times.entry(read.key.clone()).or_insert((read.time, 0)).1 += 1;
    }

    fn end(&self, key: &str) {
        let mut times = self.0.lock().unwrap();
        let (_, waiting) = times.get_mut(key).unwrap();
        *waiting -= 1;
        if *waiting == 0 {
            times.remove(key);
        }
    }

    fn of(&self, key: &[u8]) -> Duration {
        self.0.lock().unwrap()[std::str::from_utf8(key).unwrap()].0
    }
}

/// The state that must be equal in node and simulation.
#[derive(Debug, PartialEq)]
struct State {
    usage: Usage,
    classes: Vec<ClassUsage>,
    counters: Counters,
    beta: Percent,
    /// Numbers of met and missed deadlines.
    ended: (u64, u64),
}

fn state_of(node: &Core) -> State {
    let backend = node.backend(BackendId(0)).unwrap();
    let (stats, ended) = (backend.stats(), node.deadlines.of_backend(BackendId(0)));
    State {
        usage: node.cache.usage(PartitionId(0)),
        classes: node.cache.class_usage(PartitionId(0)),
        counters: stats.counters,
        beta: stats.beta,
        ended: (ended.met, ended.missed),
    }
}

fn state_of_world(world: &World) -> State {
    let stats = world.stats();
    State {
        usage: world.usage(),
        classes: world.class_usage(),
        counters: stats.counters,
        beta: stats.beta,
        ended: world.ended(),
    }
}

fn body(read: &ScheduledRead) -> serde_json::Value {
    json!({
        "values": false,
        "deadline_ms": read.within.as_nanos() as f64 / 1e6,
        "queries": [{"backend": "records", "keys": [read.key]}],
    })
}

#[test]
fn node_and_simulator_meet_the_same_deadlines_and_choose_the_same_admission_percentiles() {
    let simulated = simulated();
    let mut world = World::new(&simulated).unwrap();
    let times = Times::default();
    let served = times.clone();
    let store = |name: &str, calls: Arc<Calls>, nanos: &'static AtomicU64| {
        let served = served.clone();
        let time = Box::new(move |key: &[u8]| served.of(key));
        TimedStore { name: name.to_owned(), calls, nanos, time, value_bytes: VALUE_BYTES }
    };
    let mut staged = Staged::new(CONFIGURATION, |setup| as_simulated(setup, &simulated.knobs), store);
    let reads: Vec<_> = simulated.reads().unwrap().take(20_000).collect();
    let mut next = reads.iter().enumerate().peekable();
    let mut betas = Vec::new();
    for number in 1..=DECISIONS {
        let due = Instant::ZERO + DECIDE_EVERY * number;
        let end = |(index, _): (u64, serde_json::Value)| times.end(&reads[index as usize].key);
        while let Some((index, read)) = next.next_if(|(_, read)| read.at < due) {
            staged.advance(read.at).into_iter().for_each(end);
            times.begin(read);
            staged.ask(index as u64, &body(read)).into_iter().for_each(end);
        }
        staged.advance(due).into_iter().for_each(end);
        staged.node.decide();
        world.advance(due + Duration::from_nanos(1)).unwrap();
        let state = state_of(&staged.node.core);
        assert_eq!(state, state_of_world(&world), "decision {number}");
        betas.push(state.beta);
    }
    let State { usage, counters, ended: (met, missed), .. } = state_of(&staged.node.core);
    assert!(usage.hits > 1_000 && usage.evictions > 1_000, "{usage:?}");
    assert!(counters.rejected_with_deadline > 100 && met > 1_000 && missed > 100, "{counters:?}");
    betas.dedup();
    assert!(betas.len() > 3, "{betas:?}");
}
