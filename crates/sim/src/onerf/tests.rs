//! Small simulations with independently known results.

mod counts;
mod exchange;
mod replicas;
mod writes;

use std::sync::Arc;

use sherwood_cache::charge;
use sherwood_model::PartitionId;
use sherwood_policy::{StartSize, available_without_options};
use sherwood_workload::onerf::Model;
use sherwood_workload::trace::requests::{Object, Query as RecordedQuery, Request as RecordedRequest};
use sherwood_workload::trace::{Position, TraceError};

use super::*;
use crate::setup::{Knobs, Resize};

/// Returns the setup of one server, with room for `items` items and ten requests a second, and a
/// backend of 500 objects of 1,000 bytes, which answers in a microsecond.
fn small(items: u64, seed: u64) -> Setup {
    slow(items, seed, 0.001)
}

/// Returns the setup of [`small`] with calls answered by one worker in `service_ms`.
fn slow(items: u64, seed: u64, service_ms: f64) -> Setup {
    limited(items, seed, service_ms, r#""limits":{}"#)
}

/// Returns the setup of [`slow`] with `limits` on the backend's resource, as JSON.
fn limited(items: u64, seed: u64, service_ms: f64, limits: &str) -> Setup {
    let cache = items * charge(8, 1_000) + 500;
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"small",
        "slo":{{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5}},
        "timeout_ms":1000,"hit_latency_ms":0.5,"max_batch":10,"empty_request_fraction":0,
        "profiles":{{"small":{{"app_servers":1,"request_rate":10,"cache_bytes_per_server":{cache},
            "alloc_granularity_bytes":1,"alloc_floor_bytes":0,"verified":false}}}},
        "backends":[{{"id":1,"name":"b01","kind":"kv","objects":{{"small":500}},"zipf_alpha":0.8,
            "unique_fraction":0.02,
            "size":{{"dist":"lognormal","mean_bytes":1000,"ln_mu":6.907755,"ln_sigma":0,"min":1000,"max":1000}},
            "service":{{"base_ms":{service_ms},"per_item_ms":0,"cv":0,"workers":{{"small":1}}}}}}],
        "request_types":[[1.0,[[1,1]]]],
        "scenarios":{{"none":{{"warmup_min":0,"measure_min":10,"kind":"piecewise_linear",{limits}}}}}}}"#
    );
    let model = Arc::new(Model::from_json(&document).expect("a valid model"));
    Setup { model, profile: "small".to_owned(), ..Setup::new("none", "shared-lru", seed) }
}

fn run(setup: &Setup) -> World {
    let mut world = World::new(setup).expect("a valid setup");
    world.advance(world.end()).expect("the books balance");
    world
}

/// Computes the hits of an LRU cache with room for `items` items from the stack distance of each
/// access.
fn lru_hits(keys: impl Iterator<Item = u64>, items: usize) -> u64 {
    let (mut order, mut hits) = (Vec::new(), 0);
    for key in keys {
        let depth = order.iter().rev().position(|&seen| seen == key);
        hits += u64::from(depth.is_some_and(|depth| depth < items));
        if let Some(depth) = depth {
            order.remove(order.len() - 1 - depth);
        }
        order.push(key);
    }
    hits
}

#[test]
fn simulated_lru_hits_match_stack_distances() {
    for (items, seed) in [(1, 1), (20, 2), (150, 3)] {
        let setup = small(items, seed);
        let world = run(&setup);
        let mut traffic = Traffic::new(&setup, Partitions::new(1, 1), 1).expect("valid");
        let keys = (0..world.queries()).map(|_| traffic.next_request().queries[0].keys[0].object());
        let total = world.nodes[0].cache.total();
        assert_eq!(total.hits, lru_hits(keys, items as usize), "{items} places");
        assert!(total.hits > 0 && total.misses > total.hits / 100);
    }
}

#[test]
fn request_latency_is_the_sum_of_look_up_and_fetch_times() {
    let results = run(&small(1, 1)).results();
    assert!((results.p50_ms - 0.501).abs() < 0.006, "{}", results.p50_ms);
    assert_eq!((results.errors, results.slo_violation_ratio), (0, 0.0));
}

/// Returns a setup of three seconds of the built-in workload on its smallest profile, half of them
/// measured.
fn brief(scenario: &str, policy: &str) -> Setup {
    let mut setup = Setup::new(scenario, policy, 7);
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.025), Some(0.025));
    setup.knobs.control.delta = Duration::from_millis(400);
    setup
}

#[test]
fn results_depend_on_the_seed_and_not_on_the_times_at_which_advance_stops() {
    let setup = brief("onerf-spikes", "robinhood");
    let whole = run(&setup);
    let mut stepped = World::new(&setup).expect("valid");
    let mut until = Instant::ZERO;
    while stepped.now() < stepped.end() {
        until += Duration::from_millis(333);
        stepped.advance(until).expect("the books balance");
    }
    let bytes = |world: &World| serde_json::to_string(&world.results()).expect("plain figures");
    assert_eq!(bytes(&whole), bytes(&stepped));
    assert_eq!(whole.samples(), stepped.samples());
    let other = run(&Setup { seed: 8, ..setup });
    assert_ne!(bytes(&whole), bytes(&other));
}

#[test]
fn world_forked_after_the_warm_up_equals_the_run_simulated_from_its_start() {
    let bytes = |world: &World| serde_json::to_string(&world.results()).expect("plain figures");
    for policy in
        ["robinhood", "shared-lru", "tao", "cliffhanger", "lama", "crit_smooth", "crit_path_w_delta"]
    {
        let mut spikes = brief("onerf-spikes", policy);
        (spikes.knobs.cache_ratio, spikes.knobs.load_ratio) = (0.02, 0.3);
        let mut ramp = Setup { scenario: "ramp-7-quick".to_owned(), ..spikes.clone() };
        (ramp.knobs.limit_depth, ramp.knobs.measure_min) = (2.0, Some(0.03));
        let mut warm = World::new(&spikes).expect("valid");
        warm.advance(warm.measured_from()).expect("the books balance");
        for setup in [&ramp, &spikes] {
            let mut fork = warm.fork(setup).expect("only what comes afterwards differs");
            fork.advance(fork.end()).expect("the books balance");
            let alone = run(setup);
            assert_eq!(bytes(&fork), bytes(&alone), "{policy} in {}", setup.scenario);
            assert_eq!((fork.samples(), fork.queries()), (alone.samples(), alone.queries()));
        }
    }
}

#[test]
fn fork_of_a_world_with_a_different_warm_up_is_rejected() {
    let setup = brief("onerf-spikes", "robinhood");
    let mut world = World::new(&setup).expect("valid");
    for other in [
        Setup { seed: 8, ..setup.clone() },
        Setup { policy: "shared-lru".to_owned(), ..setup.clone() },
        Setup { knobs: Knobs { load_ratio: 0.5, ..setup.knobs.clone() }, ..setup.clone() },
        Setup { knobs: Knobs { warmup_min: Some(0.02), ..setup.knobs.clone() }, ..setup.clone() },
    ] {
        assert!(matches!(world.fork(&other), Err(ForkError::Beginning { .. })), "{other:?}");
    }
    assert!(matches!(
        world.fork(&Setup { scenario: "nothing".to_owned(), ..setup.clone() }),
        Err(ForkError::Setup(_))
    ));
    world.advance(world.measured_from() + Duration::from_nanos(1)).expect("the books balance");
    assert_eq!(world.fork(&setup).err(), Some(ForkError::Measured { seconds: 1 }));
}

#[test]
fn every_policy_gets_the_same_requests_and_answers_all_keys() {
    let mut asked = Vec::new();
    for policy in available_without_options() {
        let mut setup = brief("none", policy);
        setup.knobs.cache_ratio = 0.05;
        let mut world = World::new(&setup).unwrap_or_else(|error| panic!("{policy}: {error}"));
        world.advance(world.end()).unwrap_or_else(|error| panic!("{policy}: {error}"));
        assert!(world.results().complete);
        asked.push(world.queries());
    }
    assert!(asked.len() > 10 && asked.iter().all(|&queries| queries == asked[0]), "{asked:?}");
}

#[test]
fn run_stops_with_an_error_if_key_counts_are_inconsistent() {
    let setup = small(20, 1);
    let ran = || {
        let mut world = World::new(&setup).expect("valid");
        world.advance(Instant::from_secs(100)).expect("the books balance");
        world
    };
    let halt = |mut world: World| world.advance(Instant::from_secs(101)).expect_err("a book is wrong");
    let (mut counted, mut forgot) = (ran(), ran());
    counted.queries += 1;
    // Replacing the machines loses their counters.
    let fresh = World::new(&setup).expect("valid").nodes.remove(0);
    forgot.nodes[0].machines = fresh.machines;
    let looked_up = ran().queries();
    assert!(looked_up > 900, "{looked_up}");
    let Halt::Imbalance(found) = halt(counted) else { panic!("not the trace") };
    assert_eq!((found.seconds, found.what), (101, "the number of hits and misses"));
    assert_eq!(found.found + 1, found.expected);
    assert_eq!(
        found.to_string(),
        format!(
            "the books do not balance after 101 s: the number of hits and misses is {}, should be {}; this is a bug, \
             please report it with the command line",
            found.found, found.expected
        )
    );
    let Halt::Imbalance(found) = halt(forgot) else { panic!("not the trace") };
    assert_eq!(found.what, "the number of keys that backends were asked for");
    assert!(found.found < found.expected, "{found}");
}

#[test]
fn overloaded_backend_fails_its_queries() {
    let mut setup = slow(20, 1, 400.0);
    setup.knobs.measure_min = Some(1.0);
    let world = run(&setup);
    let results = world.results();
    assert!(results.errors > 100 && results.p99_max_ms >= 1_000.0, "{results:?}");
    assert!(world.servers.waiting(BackendId(0)) <= 20, "cancelled calls leave the queue");
}

#[test]
fn sum_of_cache_budgets_stays_constant_during_a_gradual_resize() {
    let mut setup = brief("none", "robinhood");
    setup.knobs.resize = Resize::BytesPerSecond(1 << 16);
    // Needed because the caches are not full yet.
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    let world = run(&setup);
    let budgets = |server: &Node<Key>| match server.cache.plan() {
        sherwood_model::CachePlan::Budgets(budgets) => budgets,
        sherwood_model::CachePlan::Shared => panic!("robinhood divides"),
    };
    for server in &world.nodes {
        assert_ne!(budgets(server), server.control.levels().budgets(), "the resize is still in progress");
        assert_eq!(budgets(server).iter().sum::<u64>(), server.cache.options().total_bytes);
    }
}

#[test]
fn allocation_reported_during_a_gradual_resize_is_the_one_in_force() {
    let mut setup = brief("none", "robinhood");
    setup.knobs.resize = Resize::BytesPerSecond(1 << 10);
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.0), Some(0.1));
    let mut world = World::new(&setup).expect("valid");
    // The SLO is observed at the fifth second, before the resize continues.
    world.advance(Instant::ZERO + Duration::from_millis(4_999)).expect("the books balance");
    let means = |of: &dyn Fn(&Node<Key>, usize) -> u64| -> Vec<f64> {
        let mean = |index| {
            world.nodes.iter().map(|server| of(server, index)).sum::<u64>() as f64 / world.nodes.len() as f64
        };
        (0..20).map(mean).collect()
    };
    let in_force = means(&|server, index| server.cache.usage(PartitionId::from_index(index)).budget_bytes);
    let decided = means(&|server, index| server.control.levels().budgets()[index]);
    world.advance(Instant::ZERO + Duration::from_millis(5_001)).expect("the books balance");
    let sample = world.samples().last().expect("one after five seconds");
    let reported: Vec<f64> = sample.backends.iter().map(|backend| backend.allocation_bytes).collect();
    assert_eq!(reported, in_force);
    assert_ne!(reported, decided, "the resize is still in progress");
}

#[test]
fn limit_depths_of_the_profile_and_of_the_setting_are_multiplied() {
    let figures = |depth: &str, knob: f64| {
        let limits = format!(r#"{depth}"limits":{{"1":[[0,0.8]]}}"#);
        let mut setup = limited(20, 1, 20.0, &limits);
        (setup.knobs.limit_depth, setup.knobs.measure_min) = (knob, Some(1.0));
        let mut world = World::new(&setup).expect("valid");
        let mut fork = world.fork(&setup).expect("nothing is measured yet");
        for world in [&mut world, &mut fork] {
            world.advance(world.end()).expect("the books balance");
        }
        assert_eq!(world.results(), fork.results());
        let line = crate::LimitLine::of(&setup).expect("a scenario there is");
        (world.results(), line[0].points[0].1)
    };
    let plain = figures("", 1.0);
    assert_eq!(figures(r#""depth":{"small":3},"#, 0.5), figures("", 1.5));
    assert_eq!(figures(r#""depth":{"small":1},"#, 1.0), plain);
    assert_ne!(figures(r#""depth":{"small":3},"#, 1.0).0, plain.0);
}

#[test]
fn policies_receive_what_if_estimates_merged_from_all_servers() {
    for policy in ["cliffhanger", "lama", "fair", "crit_path_w_delta"] {
        let mut setup = brief("none", policy);
        setup.knobs.cache_ratio = 0.05;
        setup.knobs.ghost_rate = Some(1.0);
        setup.knobs.control.fair.mode = sherwood_policy::FairMode::Waterfill;
        setup.knobs.control.lama.grid = 0.05;
        setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
        let world = run(&setup);
        let server = &world.nodes[0];
        let start = setup
            .knobs
            .control
            .start_budgets(server.cache.options().total_bytes, &[StartSize::default(); 20]);
        assert_ne!(
            server.control.levels().budgets(),
            start.expect("equal sizes"),
            "{policy} changed no budget"
        );
        let budgets = world.nodes.iter().map(|server| server.control.levels().budgets());
        assert_eq!(budgets.clone().max(), budgets.min(), "{policy} has the same input on every server");
    }
}

#[test]
fn tao_applies_the_mean_allocation_that_robinhood_had_in_scenario_onerf_spikes() {
    let mut setup = brief("ramp-1-slow", "tao");
    (setup.knobs.measure_min, setup.knobs.load_ratio) = (Some(0.5), 0.1);
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    let learning = setup.learning().expect("there is such a scenario").expect("tao learns");
    assert_eq!((learning.scenario.as_str(), learning.policy.as_str()), ("onerf-spikes", "robinhood"));
    let learned = run(&learning).learned_allocation(TaoMode::Mean);
    assert!(learned.iter().max() > learned.iter().min(), "a fifth of 30 s holds an observation: {learned:?}");
    setup.knobs.control.tao.budgets_bytes = learned.clone();
    assert!(setup.learning().expect("valid").is_none());
    let world = run(&setup);
    for (budget, learned) in world.nodes[0].control.levels().budgets().iter().zip(learned) {
        assert!(budget.abs_diff(learned) <= 20, "{budget} and {learned} differ by what was rounded off");
    }
    assert!(brief("none", "robinhood").learning().expect("valid").is_none());
}

#[test]
fn setup_with_unknown_names_or_numbers_out_of_range_is_rejected() {
    let error = |setup: &Setup| World::new(setup).err().expect("refused").to_string();
    assert!(error(&Setup::new("none", "robin", 1)).contains("not known"));
    assert!(
        error(&Setup::new("nothing", "robinhood", 1)).contains("no scenario `nothing`; it has: none, onerf")
    );
    let mut setup = Setup::new("none", "robinhood", 1);
    setup.knobs.servers = Some(0);
    assert_eq!(error(&setup), "cannot simulate with servers = 0: the accepted range is 1 to 1024");
}

/// Statistics are read every second and used 2.5 s later.
#[test]
fn decisions_use_statistics_of_the_configured_age() {
    let stale = |stale| {
        let mut setup = brief("none", "robinhood");
        setup.knobs.control.delta = Duration::from_secs(1);
        setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
        setup.knobs.measure_min = Some(0.1);
        setup.knobs.stale = stale;
        World::new(&setup).expect("valid")
    };
    let budgets = |world: &World| world.nodes[0].control.levels().budgets().to_vec();
    let (mut fresh, mut late) = (stale(Duration::ZERO), stale(Duration::from_millis(2_500)));
    let start = budgets(&late);
    fresh.advance(Instant::from_millis(1_600)).expect("the books balance");
    assert_ne!(budgets(&fresh), start, "decided half a second after the first report");
    late.advance(Instant::from_millis(3_900)).expect("the books balance");
    assert_eq!((budgets(&late), late.family.told.len()), (start, 3), "asked after 1.5, 2.5 and 3.5 seconds");
    late.advance(Instant::from_millis(4_100)).expect("the books balance");
    assert_eq!(
        (budgets(&late), late.family.told.len()),
        (budgets(&fresh), 2),
        "both decided on the same statistics"
    );
}

/// A trace with one access per second, to these objects in order, which then ends, or fails if
/// `wrong`.
#[derive(Debug)]
struct Accesses {
    objects: Vec<(u64, Option<u32>)>,
    wrong: bool,
}

impl crate::Trace for Accesses {
    fn name(&self) -> String {
        "accesses".to_owned()
    }

    fn requests(&self, _: u32) -> Result<crate::Requests, TraceError> {
        let request = |(line, (id, bytes))| {
            let objects = vec![Object { id, bytes }];
            let queries = vec![RecordedQuery { backend: BackendId(0), objects }];
            Ok(RecordedRequest { at: Position::Line(line), time: line as i64, queries })
        };
        let wrong =
            self.wrong.then_some(Err(TraceError::Truncated { at: Position::Line(9), expected: "a line" }));
        Ok(Box::new((1..).zip(self.objects.clone()).map(request).chain(wrong)))
    }
}

/// Returns the setup of a server with room for `items` items of 1,000 bytes, which replays
/// `accesses`.
fn replay(items: u64, accesses: Accesses, minutes: f64) -> Setup {
    let cache = items * charge(8, 1_000) + 500;
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"small",
        "slo":{{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5}},"timeout_ms":1000,"hit_latency_ms":0.5,
        "profiles":{{"small":{{"app_servers":1,"cache_bytes_per_server":{cache},
            "alloc_granularity_bytes":1,"alloc_floor_bytes":0}}}},
        "backends":[{{"id":1,"name":"b01","service":{{"quantiles_ms":[[0,2],[1,3]],"workers":{{"small":1}}}}}}],
        "trace":{{"file":"accesses","format":"oracleGeneral"}},
        "scenarios":{{"none":{{"warmup_min":0,"measure_min":{minutes},"kind":"piecewise_linear","limits":{{}}}}}}}}"#
    );
    let model = Arc::new(Model::from_json(&document).expect("a valid model"));
    let trace: Option<Arc<dyn crate::Trace>> = Some(Arc::new(accesses));
    Setup { model, profile: "small".to_owned(), trace, ..Setup::new("none", "shared-lru", 1) }
}

#[test]
fn trace_is_replayed_in_order_and_object_sizes_are_freed_after_use() {
    let objects = || (0..600u64).map(|n| (n * n * 7_919 % 40, Some(1_000)));
    let setup = replay(20, Accesses { objects: objects().collect(), wrong: false }, 9.0);
    let world = run(&setup);
    let total = world.nodes[0].cache.total();
    let seen = objects().map(|(object, _)| object).take(world.queries() as usize);
    assert!((539..=541).contains(&world.queries()), "{}", world.queries());
    assert_eq!(total.hits, lru_hits(seen, 20));
    let results = world.results();
    assert!(results.complete && results.query_p99_ms["b01"].is_some_and(|ms| (2.4..3.6).contains(&ms)));
    assert!(world.family.sizes.as_ref().is_some_and(|sizes| sizes.len() <= 1));
}

#[test]
fn run_of_a_trace_cannot_be_forked() {
    let setup = replay(20, Accesses { objects: vec![(1, Some(1_000)); 60], wrong: false }, 1.0);
    let mut world = World::new(&setup).expect("valid");
    assert_eq!(setup.shares_warm_up(&setup), Ok(false));
    assert_eq!(world.fork(&setup).err(), Some(ForkError::Trace));
}

#[test]
fn uncacheable_object_is_fetched_each_time() {
    let objects = (0..120u64).map(|n| (n % 2, (n % 2 == 0).then_some(1_000))).collect();
    let world = run(&replay(20, Accesses { objects, wrong: false }, 1.5));
    let total = world.nodes[0].cache.total();
    assert_eq!((total.hits, total.misses), (44, 46));
}

#[test]
fn trace_that_ends_early_gives_incomplete_results() {
    for (wrong, message) in [
        (
            false,
            "the trace accesses ends after 0.99 simulated minutes of 9.00: give the scenario less time, such as --set minutes=WARM-UP+MEASURED, or a longer trace",
        ),
        (
            true,
            "accesses: the trace ends within a line at line 9: the file is truncated, or of another format",
        ),
    ] {
        let objects = vec![(1, Some(1_000)); 60];
        let mut world = World::new(&replay(20, Accesses { objects, wrong }, 9.0)).expect("valid");
        let halt = world.advance(world.end()).expect_err("it stops").to_string();
        assert_eq!(halt, message);
        assert_eq!(world.advance(world.end()).expect_err("it stays stopped").to_string(), message);
        let results = world.results();
        assert!(!results.complete && results.requests >= 58, "{}", results.requests);
        assert_eq!(results.slo_violation_ratio, 0.0, "nothing is observed after the end");
        assert_eq!(world.samples().len(), 11);
    }
    let setup = Setup { trace: None, ..replay(20, Accesses { objects: Vec::new(), wrong: false }, 1.0) };
    let error = World::new(&setup).err().expect("refused").to_string();
    assert_eq!(
        error,
        "cannot simulate without the trace accesses, which the requests are in: give it with the setup"
    );
}

#[test]
fn latency_of_a_sampled_run_is_close_to_that_of_the_full_run() {
    let mut setup = slow(1, 1, 80.0);
    let full = run(&setup).results();
    setup.knobs.sample = 4;
    let sampled = run(&setup).results();
    assert!((0.2..0.3).contains(&(sampled.requests as f64 / full.requests as f64)));
    // Without echoes, they would find the worker idle four times out of five and take little more
    // than 80 ms.
    assert!(
        full.p50_ms > 150.0 && (0.7..1.4).contains(&(sampled.p50_ms / full.p50_ms)),
        "{}",
        sampled.p50_ms
    );
}

#[test]
fn run_with_sampled_keys_has_smaller_caches_and_reports_full_size_allocations() {
    let mut setup = brief("none", "robinhood");
    (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.0), Some(0.1));
    let full = run(&setup);
    setup.knobs.sample = 4;
    let sampled = run(&setup);
    let of = |world: &World| world.nodes[0].cache.options().total_bytes;
    assert_eq!(of(&full) / 4, of(&sampled));
    let bytes = |world: &World| world.results().allocation_bytes.values().map(|one| one.mean).sum::<f64>();
    assert!((bytes(&sampled) / bytes(&full) - 1.0).abs() < 1e-3, "{} {}", bytes(&sampled), bytes(&full));
    let learned: u64 = sampled.learned_allocation(TaoMode::Mean).iter().sum();
    assert!(learned.abs_diff(of(&sampled)) <= 20, "{learned}");
    setup.knobs.sample = 0;
    let error = World::new(&setup).err().expect("refused").to_string();
    assert_eq!(error, "cannot simulate with sample = 0: the accepted range is 1 to 1024");
}
