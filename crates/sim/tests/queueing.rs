//! Replica queue, event queue and the whole simulation, compared with closed forms of queueing
//! theory.
//!
//! Each expectation is compared with the mean of independent runs by a confidence interval of
//! 99.9%; seeds are fixed, so the result is deterministic.

use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng as _;
use sherwood_dispatch::{QueueOptions, QueuedCall, ReplicaQueue};
use sherwood_model::{Demand, Instant};
use sherwood_sim::{EventQueue, Setup, World};
use sherwood_workload::onerf::Model;
use sherwood_workload::{Rng, rng_from_seed, uniform};

const RUNS: u64 = 20;
const CUSTOMERS: usize = 20_000;
/// Customers at the start of a run that find the queue shorter than in the long run.
const WARM_UP: usize = 2_000;
/// Quantile of Student's t for 19 degrees of freedom and a two-sided level of 0.1%.
const T: f64 = 3.883;

enum Event {
    Arrival,
    Done,
}

fn exponential(rng: &mut Rng, mean_s: f64) -> Duration {
    Duration::from_secs_f64(-libm::log(1.0 - uniform(rng)) * mean_s)
}

/// Mean waiting time of customers before service in one run, in seconds.
fn waited(workers: u32, gap_s: f64, seed: u64, mut service: impl FnMut(&mut Rng) -> Duration) -> f64 {
    let mut events = EventQueue::default();
    let mut queue = ReplicaQueue::new(QueueOptions::fifo(workers, u32::MAX));
    let (mut arrivals, mut services) = (rng_from_seed(2 * seed), rng_from_seed(2 * seed + 1));
    let (mut arrived, mut begun, mut waited) = (0, 0, 0.0);
    events.schedule(Instant::ZERO, Event::Arrival);
    while let Some((now, event)) = events.take_before(Instant::NEVER) {
        match event {
            Event::Arrival => {
                arrived += 1;
                if arrived < CUSTOMERS {
                    events.schedule(now + exponential(&mut arrivals, gap_s), Event::Arrival);
                }
                assert!(queue.enqueue(now, now, &Demand::default(), QueuedCall::default()), "there is room");
            }
            Event::Done => queue.complete(now, None),
        }
        if let Some(since) = queue.start_next(now) {
            begun += 1;
            if begun > WARM_UP {
                waited += (now - since).as_secs_f64();
            }
            events.schedule(now + service(&mut services), Event::Done);
        }
    }
    assert_eq!((begun, queue.queued()), (CUSTOMERS, 0), "all customers were served");
    waited / (CUSTOMERS - WARM_UP) as f64
}

/// Compares the mean waiting time over all runs with `expected`.
fn assert_waits(expected: f64, run: impl Fn(u64) -> f64) {
    let means: Vec<f64> = (1..=RUNS).map(run).collect();
    let mean = means.iter().sum::<f64>() / RUNS as f64;
    let variance = means.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (RUNS - 1) as f64;
    let half = T * (variance / RUNS as f64).sqrt();
    assert!((mean - expected).abs() <= half, "{mean} ± {half}, expected {expected}");
    assert!(half < 0.15 * expected, "too wide to mean anything: {mean} ± {half}");
}

#[test]
fn exponential_service_with_one_worker_waits_like_m_m_1() {
    let (load, service_s) = (0.7, 0.01);
    let expected = load * service_s / (1.0 - load);
    assert_waits(expected, |seed| waited(1, service_s / load, seed, |rng| exponential(rng, service_s)));
}

#[test]
fn several_workers_wait_like_erlang_c() {
    let (workers, load, service_s) = (4, 0.8, 0.01);
    let offered = load * f64::from(workers);
    // Erlang's B by its recurrence, then Erlang's C.
    let blocked = (1..=workers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    let expected = waits * service_s / (f64::from(workers) * (1.0 - load));
    assert_waits(expected, |seed| {
        waited(workers, service_s / offered, seed, |rng| exponential(rng, service_s))
    });
}

/// The service times are those of a workload's backend, so that their distribution is checked, too.
#[test]
fn backend_service_waits_like_pollaczek_khinchine() {
    let model = Model::onerf();
    let backend = &model.backends()[1];
    let (items, limit, load) = (10, 0.5, 0.6);
    let law = &backend.service;
    let service_s = (law.base_ms + law.per_item_ms * f64::from(items)) / 1e3 / limit;
    let expected = load * service_s * (1.0 + law.cv * law.cv) / (2.0 * (1.0 - load));
    assert_waits(expected, |seed| {
        waited(1, service_s / load, seed, |rng| backend.service_time(items, limit, rng.next_u64()))
    });
}

/// Requests per second in the simulations.
const RATE: f64 = 60.0;

/// Mean waiting time of calls for a simulated service's only worker, in seconds, by Little's law:
/// the number of waiting calls, observed ten times a second, divided by the arrival rate. No object
/// is read twice, so every request is a call.
fn waited_in_a_simulation(service_s: f64, cv: f64, seed: u64) -> f64 {
    let base_ms = service_s * 1e3;
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"queue","slo":{{"percentile":99,"limit_ms":150,"window_s":1,"every_s":0.1}},
        "timeout_ms":3600000,"hit_latency_ms":0.5,"max_batch":1,
        "profiles":{{"one":{{"app_servers":1,"request_rate":{RATE},"cache_bytes_per_server":100000,
            "alloc_granularity_bytes":1,"alloc_floor_bytes":0}}}},
        "backends":[{{"id":1,"name":"b","objects":{{"one":1}},"zipf_alpha":0,"unique_fraction":1,
            "size":{{"dist":"lognormal","mean_bytes":100,"ln_mu":4.6,"ln_sigma":0,"min":100,"max":100}},
            "service":{{"base_ms":{base_ms},"per_item_ms":0,"cv":{cv},"workers":{{"one":1}}}}}}],
        "request_types":[[1,[[1,1]]]],
        "scenarios":{{"calm":{{"warmup_min":0.2,"measure_min":4,"kind":"piecewise_linear","limits":{{}}}}}}}}"#
    );
    let model = Arc::new(Model::from_json(&document).expect("a valid model"));
    let setup = Setup { model, profile: "one".to_owned(), ..Setup::new("calm", "shared-lru", seed) };
    let mut world = World::new(&setup).expect("a valid setup");
    world.advance(world.end()).expect("the books balance");
    let (results, samples) = (world.results(), world.samples());
    assert_eq!((results.hit_ratio["b"], results.errors), (0.0, 0), "every key is new");
    let waiting: u64 = samples.iter().map(|sample| sample.backends[0].waiting).sum();
    waiting as f64 / samples.len() as f64 / RATE
}

#[test]
fn simulation_with_one_worker_waits_like_pollaczek_khinchine() {
    let load = 0.6;
    let service_s = load / RATE;
    // Constant times, and times as variable as exponential ones, which wait like M/M/1.
    for cv in [0.0, 1.0] {
        let expected = load * service_s * (1.0 + cv * cv) / (2.0 * (1.0 - load));
        assert_waits(expected, |seed| waited_in_a_simulation(service_s, cv, seed));
    }
}
