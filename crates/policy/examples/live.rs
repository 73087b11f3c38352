//! Measures the level between tenants as a driver calls it.
//!
//! `cargo run --release -p sherwood-policy --example live` prints a line of JSON for each number of
//! tenants: the median and the longest time in microseconds of a call that observes and takes a
//! step, and those of a call that decides. There are three resources, curves have 64 points, and
//! every tenant serves what its rates allow.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this measures time")]

use std::time::{Duration, Instant};

use sherwood_model::{BackendId, DemandCurve, ResourceKind, SplitMix64, TenantId};
use sherwood_policy::tenants::{
    MissCurve, Share, TenantControlOptions, TenantController, TenantObservation, TenantOptions,
    TenantPartition, TenantResource, TenantTerms, UnitCounts, by_name,
};

const BASE_BYTES: u64 = 2 << 30;
const POINTS: u64 = 64;
/// Virtual time that is measured, and that between two calls.
const TIME: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(250);

fn main() {
    for count in [2, 16, 128, 1_000] {
        let mut driver = Driver::new(count);
        let (mut steps, mut decisions) = (Vec::new(), Vec::new());
        while driver.now < sherwood_model::Instant::ZERO + TIME {
            let seen = driver.observe();
            let begun = Instant::now();
            let round = driver.controller.advance(driver.now, &seen);
            let time_us = begun.elapsed().as_secs_f64() * 1e6;
            let times = if round.decision.is_some() { &mut decisions } else { &mut steps };
            times.push(time_us);
        }
        let gain = driver.controller.latest().map_or(1.0, |decision| decision.division.gain);
        let ([step, step_max], [decision, decision_max]) = (summary(steps), summary(decisions));
        println!(
            r#"{{"case":"live","tenants":{count},"step_us":{step:.1},"step_us_max":{step_max:.1},"decision_us":{decision:.1},"decision_us_max":{decision_max:.1},"gain":{gain:.4}}}"#
        );
    }
}

fn summary(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() - 1]]
}

struct Driver {
    now: sherwood_model::Instant,
    controller: TenantController,
    seen: Vec<TenantObservation>,
}

impl Driver {
    fn new(count: u64) -> Self {
        let policy = by_name("hare", TenantOptions { chunk_bytes: BASE_BYTES / POINTS, conserving: true });
        let of = |name: &str, kind, each: f64| TenantResource {
            name: name.to_owned(),
            kind,
            total_per_s: each * count as f64,
        };
        let resources = vec![
            of("reads", ResourceKind::Reads(BackendId(0)), 1_000.0),
            of("writes", ResourceKind::Writes(BackendId(0)), 1_000.0),
            of("network", ResourceKind::Network, (3 << 20) as f64),
        ];
        let terms = (0..count).map(|index| TenantTerms {
            name: format!("tenant-{index}"),
            weight: 1.0,
            base: None,
            min: Share::default(),
        });
        let controller = TenantController::new(
            policy.expect("it is known"),
            TenantControlOptions::default(),
            resources,
            BASE_BYTES * count,
            terms.collect(),
        );
        let mut random = SplitMix64::new(1);
        let mut ratio = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut tenant = || {
            let range = (BASE_BYTES as f64 * (0.5 + 3.5 * ratio())) as u64;
            let (bend, low) = (1.0 + 6.0 * ratio(), 0.2 * ratio());
            let points = (0..=POINTS).map(|point| {
                let at = point as f64 / POINTS as f64;
                (range / POINTS * point, low + (1.0 - low) * libm::pow(1.0 - at, bend))
            });
            let partition = TenantPartition {
                backend: BackendId(0),
                budget_bytes: 0,
                used_bytes: 0,
                reads: Default::default(),
                curve: Some(MissCurve::exact(DemandCurve::new(points))),
            };
            TenantObservation { waiting: 1, partitions: vec![partition], ..TenantObservation::default() }
        };
        let seen = (0..count).map(|_| tenant()).collect();
        let now = sherwood_model::Instant::from_secs(1);
        Self { now, controller: controller.expect("it is valid"), seen }
    }

    /// Adds what each tenant does in the time until the next call.
    fn observe(&mut self) -> Vec<TenantObservation> {
        self.now += STEP;
        for (index, seen) in self.seen.iter_mut().enumerate() {
            let bytes = self.controller.bytes()[index];
            let rates = self.controller.rates().row(TenantId::from_index(index));
            let part = &mut seen.partitions[0];
            let misses = part.curve.as_ref().expect("it has a curve").misses_per_read.at(bytes);
            let reads = (rates[0] / misses * STEP.as_secs_f64()).floor();
            part.budget_bytes = bytes;
            part.used_bytes = bytes;
            part.reads.misses += (reads * misses) as u64;
            part.reads.hits += (reads * (1.0 - misses)) as u64;
            seen.counts.requests += reads as u64;
            seen.counts.units.resize(3, UnitCounts::default());
            seen.counts.units[0].add_read(0.0, reads, reads * misses);
            seen.counts.units[2].add_read(500.0 * reads, 1_000.0 * reads, 500.0 * reads * (1.0 + misses));
        }
        self.seen.clone()
    }
}
