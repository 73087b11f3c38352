//! Compares the node with the simulator where tenants divide the cache and a backend's reads. Two
//! tenants send reads independently of answers (an open loop), and one of them at times exceeds its
//! rate.
//!
//! Both start with an empty cache. They must have the same plan after every step, and the same
//! hits, misses and charged units.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::json;
use sherwood_cache::{Eviction, Options as CacheOptions, Usage};
use sherwood_model::{Instant, PartitionId, Plan, TenantId};
use sherwood_sim::tenants::{Setup as Simulated, TenantRequest, World};
use sherwood_workload::tenants::Scenario;

use super::staged::{Calls, Staged, TimedStore};
use crate::start::*;

/// Minimum time between two observations, in the simulation and in the node's control thread.
const STEP_MIN: Duration = Duration::from_millis(1);
const END: Duration = Duration::from_secs(90);
const LATENCY: Duration = Duration::from_millis(5);
const VALUE_BYTES: usize = 500;
const TENANTS: [&str; 2] = ["a", "b"];
const TOTAL_BYTES: u64 = 1 << 20;

const SCENARIO: &str = r#"{
    "name": "agreement", "warm_up": "0s", "measure": "100s",
    "control": {"decide": "live", "period": "2s", "window": "8s", "salt": 0.01, "apply_over": 0.02},
    "backends": [{"name": "orders", "latency": "5ms"}],
    "resources": [{"name": "orders-reads", "kind": "reads", "backend": "orders", "unit": "count"}],
    "tenants": [
        {"name": "a", "cache": "512KiB", "rates": {"orders-reads": 60}, "arrivals": [{"at": "0s", "per_s": 100}],
         "loads": [{"backend": "orders", "keys": 1100, "zipf": 0.5}]},
        {"name": "b", "cache": "512KiB", "rates": {"orders-reads": 60},
         "arrivals": [{"at": "0s", "per_s": 70}, {"at": "50s", "per_s": 120}, {"at": "60s", "per_s": 50}],
         "loads": [{"backend": "orders", "keys": 20000}]}
    ]
}"#;

const CONFIGURATION: &str = r#"
    [memory]
    total = "1MiB"
    mrc_sample = 1.0
    [control]
    policy = "static"
    [tenants]
    period = "2s"
    window = "8s"
    salt = 0.01
    apply_over = 0.02
    lend = false
    over = "wait"
    [[tenant]]
    name = "a"
    [[tenant]]
    name = "b"
    [[backend]]
    name = "orders"
    store = { kind = "compute", n = 1, bytes = "4KiB" }
    [[resource]]
    name = "orders-reads"
    kind = "reads"
    backend = "orders"
    unit = "count"
    total = 120
"#;

fn simulated(policy: &str) -> Simulated {
    let scenario: Scenario = serde_json::from_str(SCENARIO).unwrap();
    let mut setup = Simulated::document(scenario, policy, 1);
    setup.knobs.within = Some("static".to_owned());
    setup.knobs.ghost = Some(1.0);
    setup.knobs.is_warm = false;
    // S3-FIFO remembers hashes of keys, and node and simulation have other keys.
    setup.knobs.eviction = Eviction::Lru;
    setup
}

/// Configures the node's cache and dispatcher as in the simulation.
fn as_simulated(setup: &mut Setup, knobs: &sherwood_sim::tenants::Knobs) {
    setup.cache = CacheOptions {
        total_bytes: TOTAL_BYTES,
        shards: 1,
        eviction: knobs.eviction,
        ghost_rate: 1.0,
        ..CacheOptions::sized(TOTAL_BYTES, 1)
    };
    let dispatch = &mut setup.backends[0].dispatch;
    (dispatch.batch_keys_max, dispatch.in_flight_calls_max) = (1, 100_000);
    (dispatch.queued_calls_max, dispatch.waiters_max) = (50_000, 50_000);
    dispatch.timeout = Duration::from_secs(60);
    dispatch.retry.per_call_max = 0;
}

/// The state that must be equal in node and simulation.
#[derive(Debug, PartialEq)]
struct State {
    plan: Plan,
    usage: Vec<Usage>,
    /// Units of reads that each tenant was charged.
    charged: Vec<f64>,
}

fn state_of(node: &Core) -> State {
    let charged = |tenant| node.counters.as_ref().unwrap().uses_of(TenantId::from_index(tenant))[0].units();
    State {
        plan: node.control().tenants().unwrap().levels().plan(),
        usage: [0, 1].map(|index| node.cache.usage(PartitionId(index))).to_vec(),
        charged: [0, 1].map(charged).to_vec(),
    }
}

fn state_of_world(world: &World) -> State {
    State {
        plan: world.plan(),
        usage: [0, 1].map(|index| world.usage(PartitionId(index))).to_vec(),
        charged: world.charged().into_iter().map(|units| units[0]).collect(),
    }
}

fn body(request: &TenantRequest) -> serde_json::Value {
    let key = format!("{:016}", request.keys[0]);
    let queries = json!([{"backend": "orders", "keys": [key]}]);
    json!({"tenant": TENANTS[request.tenant.index()], "values": false, "queries": queries})
}

/// Runs the node and the simulation, and compares their states after each step. Returns the plans.
fn compare(policy: &str) -> Vec<Plan> {
    let simulated = simulated(policy);
    let mut world = World::new(&simulated).unwrap();
    let store = |name: &str, calls: Arc<Calls>, nanos: &'static AtomicU64| TimedStore {
        name: name.to_owned(),
        calls,
        nanos,
        time: Box::new(|_| LATENCY),
        value_bytes: VALUE_BYTES,
    };
    let configuration = CONFIGURATION.replace("[tenants]", &format!("[tenants]\npolicy = \"{policy}\""));
    let mut staged = Staged::new(&configuration, |setup| as_simulated(setup, &simulated.knobs), store);
    let mut requests = simulated.requests().unwrap().peekable();
    let mut plans: Vec<Plan> = Vec::new();
    let mut due = Instant::ZERO;
    while due < Instant::ZERO + END {
        while let Some(request) = requests.next_if(|request| request.at < due) {
            staged.advance(request.at);
            staged.ask(0, &body(&request));
            world.advance(request.at + Duration::from_nanos(1)).unwrap();
            assert_eq!(state_of(&staged.node.core), state_of_world(&world), "{policy}: {request:?}");
        }
        staged.advance(due);
        staged.run_control();
        world.advance(due + Duration::from_nanos(1)).unwrap();
        let state = state_of(&staged.node.core);
        assert_eq!(state, state_of_world(&world), "{policy} at {due:?}");
        if plans.last() != Some(&state.plan) {
            plans.push(state.plan);
        }
        due = staged.node.core.control().next_timeout().max(due + STEP_MIN);
    }
    let State { usage, charged, .. } = state_of(&staged.node.core);
    assert!(usage.iter().all(|usage| usage.misses > 1_000 && usage.hits > 100), "{usage:?}");
    assert!(charged.iter().all(|units| *units > 1_000.0), "{charged:?}");
    plans
}

#[test]
fn node_and_simulator_charge_tenants_and_divide_the_cache_alike() {
    let plans = compare("hare");
    assert!(plans.len() > 20, "it hardly moved anything: {} plans", plans.len());
}
