//! The station and the event queue against the closed forms of queueing theory.
//!
//! Each expectation is compared with the mean of independent runs, by the interval that holds it in 999 of 1,000 cases; seeds
//! are fixed, so a run either agrees or does not.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_model::Instant;
use sherwood_sim::{EventQueue, Station};
use sherwood_workload::onerf::Model;
use sherwood_workload::{Rng, rng_from_seed, uniform};

const RUNS: u64 = 20;
const CUSTOMERS: usize = 20_000;
/// Customers at the start of a run that find the queue shorter than it is in the long run.
const WARM_UP: usize = 2_000;
/// Student's t for 19 degrees of freedom, both sides of 0.1%.
const T: f64 = 3.883;

enum Event {
    Arrival,
    Done,
}

fn exponential(rng: &mut Rng, mean_s: f64) -> Duration {
    Duration::from_secs_f64(-libm::log(1.0 - uniform(rng)) * mean_s)
}

/// Mean time customers wait before a worker begins with them, in seconds, in one run.
fn waited(workers: u32, gap_s: f64, seed: u64, mut service: impl FnMut(&mut Rng) -> Duration) -> f64 {
    let (mut events, mut station) = (EventQueue::default(), Station::new(workers));
    let (mut arrivals, mut services) = (rng_from_seed(2 * seed), rng_from_seed(2 * seed + 1));
    let (mut arrived, mut begun, mut waited) = (0, 0, 0.0);
    events.schedule(Instant::ZERO, Event::Arrival);
    while let Some((now, event)) = events.take_before(Instant::NEVER) {
        let begins = match event {
            Event::Arrival => {
                arrived += 1;
                if arrived < CUSTOMERS {
                    events.schedule(now + exponential(&mut arrivals, gap_s), Event::Arrival);
                }
                station.arrive(now)
            }
            Event::Done => station.finish(),
        };
        if let Some(since) = begins {
            begun += 1;
            if begun > WARM_UP {
                waited += (now - since).as_secs_f64();
            }
            events.schedule(now + service(&mut services), Event::Done);
        }
    }
    assert_eq!((begun, station.waiting()), (CUSTOMERS, 0), "everybody was served");
    waited / (CUSTOMERS - WARM_UP) as f64
}

/// Compares the mean over all runs with `expected`.
fn assert_waits(expected: f64, run: impl Fn(u64) -> f64) {
    let means: Vec<f64> = (1..=RUNS).map(run).collect();
    let mean = means.iter().sum::<f64>() / RUNS as f64;
    let variance = means.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (RUNS - 1) as f64;
    let half = T * (variance / RUNS as f64).sqrt();
    assert!((mean - expected).abs() <= half, "{mean} ± {half}, expected {expected}");
    assert!(half < 0.15 * expected, "too wide to mean anything: {mean} ± {half}");
}

#[test]
fn one_worker_with_exponential_service_waits_as_m_m_1() {
    let (load, service_s) = (0.7, 0.01);
    let expected = load * service_s / (1.0 - load);
    assert_waits(expected, |seed| waited(1, service_s / load, seed, |rng| exponential(rng, service_s)));
}

#[test]
fn several_workers_wait_as_erlang_says() {
    let (workers, load, service_s) = (4, 0.8, 0.01);
    let offered = load * f64::from(workers);
    // Erlang's B by its recurrence, then C.
    let blocked = (1..=workers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    let expected = waits * service_s / (f64::from(workers) * (1.0 - load));
    assert_waits(expected, |seed| {
        waited(workers, service_s / offered, seed, |rng| exponential(rng, service_s))
    });
}

/// With the service times of the workload's own backends, so that their law is checked too.
#[test]
fn one_worker_of_a_backend_waits_as_pollaczek_and_khinchine_say() {
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
