//! The node beside the simulator: one small workload through this crate's gateway, dispatchers,
//! control loop and cache, on a clock that the test drives, and through a simulated world.
//!
//! One request is under way at a time, on one thread, and backends take no time but what they let
//! pass on that clock, so that nothing is left to chance; then both hit, evict and allot the same,
//! request by request and decision by decision.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::State;
use bytes::Bytes;
use serde_json::json;
use sherwood_cache::{Eviction, Options as CacheOptions, Usage};
use sherwood_model::{Band, Instant, PartitionId, Slo, TenantId};
use sherwood_policy::{Options as ControlOptions, TaoOptions, available_without_options};
use sherwood_sim::{Met, Setup as Simulated, World};
use sherwood_store::{BoxFuture, Found, Kind, Limit, LimitError, Limits, Store, StoreError};
use sherwood_workload::onerf::{BackendModel as Law, Model};

use crate::control::Pin;
use crate::gateway;
use crate::http::WholeBody;
use crate::setup::{BackendSetup, PartitionSetup};
use crate::start::*;

const DELTA: Duration = Duration::from_secs(50);
/// Simulated servers decide so long after their last report, on what it said; a node knows
/// everything up to now.
const REPORT_TO_DECISION: Duration = Duration::from_millis(500);
const DECISIONS: u32 = 20;

/// No request is under way for longer: the slowest backend's time, and something to spare.
const REQUEST_MAX: Duration = Duration::from_millis(5);

/// Three backends, of whose objects a third fits the cache, and four requests in ten seconds. A
/// backend of a higher number takes longer, and a request names it later.
const MODEL: &str = r#"{
    "schema": "onerf-workload/1", "name": "small",
    "slo": {"percentile": 99, "limit_ms": 150, "window_s": 60, "every_s": 5},
    "timeout_ms": 1000, "hit_latency_ms": 0, "max_batch": 40, "empty_request_fraction": 0,
    "profiles": {"small": {"app_servers": 1, "request_rate": 0.4, "cache_bytes_per_server": 60000,
        "alloc_granularity_bytes": 1, "alloc_floor_bytes": 0, "verified": false}},
    "backends": [
        {"id": 1, "name": "a", "kind": "kv", "objects": {"small": 300}, "zipf_alpha": 0.9, "unique_fraction": 0,
         "size": {"dist": "lognormal", "mean_bytes": 200, "ln_mu": 5, "ln_sigma": 0.8, "min": 10, "max": 2000},
         "service": {"base_ms": 1, "per_item_ms": 0, "cv": 0, "workers": {"small": 1}}},
        {"id": 2, "name": "b", "kind": "kv", "objects": {"small": 500}, "zipf_alpha": 0.6, "unique_fraction": 0,
         "size": {"dist": "lognormal", "mean_bytes": 200, "ln_mu": 5, "ln_sigma": 0.8, "min": 10, "max": 2000},
         "service": {"base_ms": 2, "per_item_ms": 0, "cv": 0, "workers": {"small": 1}}},
        {"id": 3, "name": "c", "kind": "kv", "objects": {"small": 200}, "zipf_alpha": 0.3, "unique_fraction": 0,
         "size": {"dist": "lognormal", "mean_bytes": 50, "ln_mu": 4, "ln_sigma": 0, "min": 10, "max": 2000},
         "service": {"base_ms": 3, "per_item_ms": 0, "cv": 0, "workers": {"small": 1}}}],
    "request_types": [[0.5, [[1, 12], [2, 5]]], [0.3, [[2, 20, 0.4]]], [0.2, [[1, 4], [3, 8]]]],
    "scenarios": {"none": {"warmup_min": 0, "measure_min": 17, "kind": "piecewise_linear", "limits": {}}}
}"#;

/// A backend that lets the time of the simulated one pass on the driven clock, and has values of
/// the same sizes.
struct Modelled {
    law: Law,
    hand: Hand,
}

impl Store for Modelled {
    fn name(&self) -> &str {
        &self.law.name
    }

    fn kind(&self) -> Kind {
        Kind::Kv
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let takes = self.law.service_time(keys.len() as u32, 1.0, 1 << 63);
        let value = move |key: &Bytes| {
            Some(Found::from(Bytes::from(vec![0; self.law.object_bytes(object(key)) as usize])))
        };
        Box::pin(async move {
            // Whoever waits for a quicker backend of the same request is served before the clock
            // goes on.
            for _ in 0..self.law.id {
                tokio::task::yield_now().await;
            }
            self.hand.let_pass(takes);
            Ok(keys.iter().map(value).collect())
        })
    }

    fn put(&self, _: Bytes, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("the gateway only reads")
    }

    fn delete(&self, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("the gateway only reads")
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn set_limit(&self, _: Limit) -> Result<(), LimitError> {
        unreachable!("nobody limits it")
    }
}

/// What moves the clock.
#[derive(Clone, Copy)]
struct Hand {
    shown: &'static AtomicU64,
    /// When the request under way arrived.
    arrived: &'static AtomicU64,
}

impl Hand {
    fn new() -> Self {
        Self { shown: Box::leak(Box::default()), arrived: Box::leak(Box::default()) }
    }

    /// It is `now`, and nothing is under way.
    fn be_at(self, now: Instant) {
        self.shown.store(now.as_nanos(), Relaxed);
        self.arrived.store(now.as_nanos(), Relaxed);
    }

    /// So much time has passed since the request arrived.
    fn let_pass(self, time: Duration) {
        let now = Instant::from_nanos(self.arrived.load(Relaxed)) + time;
        self.shown.store(now.as_nanos(), Relaxed);
    }
}

/// The key of an object: eight bytes, as in the simulator, and in the order of the simulator's, by
/// which a call's keys are sorted.
fn key(object: u64) -> String {
    let [low, high, ..] = object.to_le_bytes();
    format!("{low:03}{high:03}..")
}

fn object(key: &[u8]) -> u64 {
    let digits =
        |range: std::ops::Range<usize>| std::str::from_utf8(&key[range]).unwrap().parse::<u64>().unwrap();
    digits(0..3) + (digits(3..6) << 8)
}

/// What is simulated, with the first seed of which no request is under way when another comes, or
/// from a report to the decision on it.
fn simulated() -> Simulated {
    let mut setup = Simulated {
        model: Arc::new(Model::from_json(MODEL).unwrap()),
        profile: "small".to_owned(),
        ..Simulated::new("none", "robinhood", 0)
    };
    setup.knobs.ghost_rate = Some(1.0);
    setup.knobs.control = ControlOptions {
        delta: DELTA,
        tax: 0.05,
        page_bytes: Some(64),
        // All requests that are not among the quicker half, and gifts for whoever blocks them,
        // however much it has left.
        band: Band { low: 50.0, high: 100.0 },
        unfilled_ratio_max: f64::INFINITY,
        // Half of the decisions, so that what it freezes is played with.
        tao: TaoOptions { learn: DELTA * (DECISIONS / 2), ..TaoOptions::default() },
        ..ControlOptions::default()
    };
    let quiet = |&seed: &u64| {
        setup.seed = seed;
        let requests =
            setup.requests().unwrap().map(|met| met.at).take_while(|&at| at <= decision(DECISIONS));
        let times: Vec<_> = requests.collect();
        let unknown = |&at: &Instant| {
            // From a report's requests under way to the decision on it.
            let after = (at + REQUEST_MAX).as_nanos() % DELTA.as_nanos() as u64;
            u128::from(after) <= (REPORT_TO_DECISION + REQUEST_MAX).as_nanos()
        };
        !times.iter().any(unknown) && times.windows(2).all(|pair| pair[1] - pair[0] > REQUEST_MAX)
    };
    let seed = (1..10_000).find(quiet).expect("one seed in a hundred is quiet");
    Simulated { seed, ..setup }
}

/// When a decision is made, counted from 1.
fn decision(number: u32) -> Instant {
    Instant::ZERO + DELTA * number + REPORT_TO_DECISION
}

/// The node that is simulated.
struct Driven {
    hand: Hand,
    core: Arc<Core>,
    runtime: Runtime,
    // The node drains once nobody is there who could ask for it.
    _stop: watch::Sender<bool>,
}

impl Driven {
    fn new(simulated: &Simulated) -> Self {
        let (model, hand) = (&simulated.model, Hand::new());
        let backend = |law: &Law| BackendSetup {
            name: law.name.clone(),
            dispatch: sherwood_dispatch::Options {
                batch_keys_max: 1_000,
                timeout: model.timeout(),
                ..Default::default()
            },
            rules: sherwood_path::Rules::default(),
            late_after: None,
            writes: crate::config::Writes::default(),
            stores: vec![Arc::new(Modelled { law: law.clone(), hand })],
        };
        let partition = |law: &Law| PartitionSetup {
            tenant: TenantId(0),
            backend: law.backend_id(),
            initial_bytes: None,
            pin: Pin::default(),
        };
        let setup = Setup {
            cache: CacheOptions {
                total_bytes: model.profiles()[&simulated.profile].cache_bytes_per_server,
                item_bytes_max: 1 << 30,
                shards: 1,
                eviction: Eviction::Lru,
                ghost_rate: 1.0,
                ..CacheOptions::default()
            },
            tenants: vec!["default".to_owned()],
            backends: model.backends().iter().map(backend).collect(),
            partitions: model.backends().iter().map(partition).collect(),
            slo: Slo {
                percentile: 99.0,
                bound: Duration::from_millis(150),
                window: Duration::from_secs(60),
                observe: Duration::from_secs(5),
            },
            slos: Vec::new(),
            instances: None,
            snapshot: None,
            control: simulated.knobs.control.clone(),
            policy: simulated.policy.clone(),
            listeners: Vec::new(),
            listener_connections_max: 1,
            admin: None,
            access: crate::setup::AccessSetup::default(),
            http_connections_max: 1,
            buffers_bytes_max: 1 << 20,
            slack_bytes: None,
            threads: 1,
            seed: Some(1),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = Engine::new(&setup, Clock::driven(hand.shown)).unwrap();
        let parts = Parts::new(engine, &setup, runtime.handle()).unwrap();
        let (stop, stopping) = watch::channel(false);
        let core = Arc::new(parts.core(&setup, std::thread::current(), stopping));
        // Simulated servers time misses from the start, a node from the first decision on that asks
        // for it.
        core.telemetry.time_misses(true);
        Self { hand, core, runtime, _stop: stop }
    }

    /// Runs a request through the gateway.
    fn request(&self, met: &Met) {
        self.hand.be_at(met.at);
        let query = |(backend, objects): &(BackendId, Vec<u64>)| {
            let keys: Vec<_> = objects.iter().map(|&object| key(object)).collect();
            json!({"backend": self.core.names.backend(*backend), "keys": keys})
        };
        let queries: Vec<_> = met.queries.iter().map(query).collect();
        let body = WholeBody {
            bytes: json!({"values": false, "queries": queries}).to_string().into(),
            hold: self.core.buffers.hold(),
        };
        let answer = self.runtime.block_on(gateway::handle(State(Arc::clone(&self.core)), body));
        assert!(answer.is_ok_and(|answer| answer.status() == axum::http::StatusCode::OK));
    }

    /// Lets Δ pass: the loop decides, and the housekeeper does its work.
    fn decide(&self, now: Instant) {
        self.hand.be_at(now);
        self.core.control().decide(now);
        while self.core.cache.step(now, 4_096) {}
    }

    fn usage(&self) -> Vec<Usage> {
        let partitions = 0..self.core.names.partitions().len();
        partitions.map(|index| self.core.cache.usage(PartitionId::from_index(index))).collect()
    }
}

/// Lets everything happen that happens up to `at`, and that moment too.
fn advance(world: &mut World, at: Instant) {
    world.advance(at + Duration::from_nanos(1)).unwrap();
}

/// Plays both and compares them after each request and each decision; budgets after each decision.
fn compare(simulated: &Simulated, world: &mut World) -> Vec<Vec<u64>> {
    let driven = Driven::new(simulated);
    let mut requests = simulated.requests().unwrap().enumerate().peekable();
    let mut budgets = Vec::new();
    for number in 1..=DECISIONS {
        let due = decision(number);
        while let Some((request, met)) = requests.next_if(|(_, met)| met.at < due) {
            advance(world, met.at + REQUEST_MAX);
            driven.request(&met);
            let policy = &simulated.policy;
            assert_eq!(driven.usage(), world.usage(0), "{policy}: request {request}, {met:?}");
        }
        advance(world, due);
        driven.decide(due);
        let usage = driven.usage();
        assert_eq!(usage, world.usage(0), "{}: decision {number}", simulated.policy);
        budgets.push(usage.iter().map(|usage| usage.budget_bytes).collect());
    }
    let total = driven.core.cache.total();
    assert!(total.hits > 1_000 && total.evictions > 1_000, "{total:?}");
    budgets
}

#[test]
fn a_node_hits_evicts_and_allots_what_is_simulated() {
    let (quiet, mut moved, mut ruled) = (simulated(), Vec::new(), Vec::new());
    // Its slopes are measured otherwise in a node: by two caches of a sample, and smoothed.
    for policy in available_without_options().iter().filter(|policy| **policy != "crit_path_w_delta") {
        let mut simulated = Simulated { policy: (*policy).to_owned(), ..quiet.clone() };
        let mut budgets = compare(&simulated, &mut World::new(&simulated).unwrap());
        // And where bytes are kept from who does not fill them, by what each has used.
        simulated.knobs.control.unfilled_ratio_max = ControlOptions::default().unfilled_ratio_max;
        if compare(&simulated, &mut World::new(&simulated).unwrap()) != budgets {
            ruled.push(*policy);
        }
        if *policy == "tao" {
            let (learnt, frozen) = budgets.split_at(DECISIONS as usize / 2);
            assert_ne!(learnt.first(), learnt.last(), "it moves while it learns");
            assert_ne!(learnt.last(), frozen.first(), "the mean is not where it ended");
            assert!(frozen.iter().all(|budgets| *budgets == frozen[0]), "{frozen:?}");
        }
        budgets.dedup();
        if budgets.len() > 5 {
            moved.push(*policy);
        }
    }
    for policy in ["robinhood", "cliffhanger", "fair", "lama"] {
        assert!(moved.contains(&policy), "{policy} hardly moved anything; {moved:?} did");
    }
    assert!(ruled.contains(&"robinhood"), "it moves the same with the rule; of the others {ruled:?} do not");
}
