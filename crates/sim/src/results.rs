//! What came out of a run.

use std::collections::BTreeMap;
use std::ops::Add;

use serde::{Deserialize, Serialize};
use sherwood_model::{Slo, SloStanding};
use sherwood_workload::onerf::ModelError;

use crate::backend::{left_of, limit_at};
use crate::record::{BackendRecord, Recorder, ms};
use crate::setup::Setup;

/// The measured part of a run in figures; the fields of `sherwood sim run --json`. Maps are by
/// backend name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Part of the full system that was simulated.
    pub scale: f64,
    /// Requests that ended.
    pub requests: u64,
    /// Keys of those requests.
    pub queries: u64,
    /// Keys that failed or were refused, warm-up included.
    pub errors: u64,
    /// Largest latency that keeps the promise.
    pub slo_bound_ms: f64,
    /// Share of the observations above it.
    pub slo_violation_ratio: f64,
    /// Of request latency over the whole measurement, within 0.8%.
    pub p50_ms: f64,
    /// As `p50_ms`.
    pub p90_ms: f64,
    /// As `p50_ms`.
    pub p99_ms: f64,
    /// The largest percentile the SLO observed; `p99_ms` may be above it by what that is off.
    pub p99_max_ms: f64,
    /// How much of the blocking one backend did.
    pub dominant_rbc: DominantRbc,
    /// Share of the keys that were in a cache.
    pub hit_ratio: BTreeMap<String, f64>,
    /// P99 of query latency, hits and misses alike; none without queries.
    pub query_p99_ms: BTreeMap<String, Option<f64>>,
    /// Of a server's cache, on average over the servers.
    pub allocation_bytes: BTreeMap<String, Allocation>,
    /// Sum of the backends' largest allocations over the size of a cache: what a division that
    /// never changes would need.
    pub static_equivalent_ratio: f64,
    /// False when the run ended before its end.
    pub complete: bool,
}

/// The share of slow requests (the band that RobinHood looks at) that the backend blocked which
/// blocked most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DominantRbc {
    /// At minutes 50, 100 and 150, as far as the run goes.
    pub at: Vec<f64>,
    /// Over all observations.
    pub mean: f64,
    /// The largest observed.
    pub max: f64,
}

/// A backend's space over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Mean over all observations.
    pub mean: f64,
    /// The largest observed.
    pub max: f64,
}

/// One observation of the SLO and what else there was to see.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Minutes since the measurement began.
    pub minute: f64,
    /// Of the requests in the SLO's window; none when nothing ended in it.
    pub p50_ms: Option<f64>,
    /// As `p50_ms`.
    pub p90_ms: Option<f64>,
    /// As `p50_ms`.
    pub p99_ms: Option<f64>,
    /// Whether it was above the bound.
    pub violated: bool,
    /// One for each backend.
    pub backends: Vec<BackendSample>,
}

/// One backend at an observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackendSample {
    /// Share of its resource that is left.
    pub limit: f64,
    /// Calls that wait for a worker.
    pub waiting: u64,
    /// P99 of its queries, hits and misses alike, over the window that decisions look back on, as
    /// last reported; none without queries.
    pub query_p99_ms: Option<f64>,
    /// Share of the slow requests in the window that it blocked.
    pub blocking_ratio: f64,
    /// Share of its keys since the last observation that were in a cache; none without keys.
    pub hit_ratio: Option<f64>,
    /// Bytes it is allotted, on average over the servers.
    pub allocation_bytes: f64,
    /// Bytes it uses, likewise.
    pub used_bytes: f64,
}

/// What a scenario leaves of one backend over the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitLine {
    /// The backend's index in the model.
    pub backend: usize,
    /// Its name.
    pub name: String,
    /// Minutes of the measurement from 0 on, four in each, and the share of its resource that is
    /// left then.
    pub points: Vec<(f64, f64)>,
}

impl LimitLine {
    /// One for each backend that the scenario of `setup` limits at some time, in the order of their
    /// ids.
    ///
    /// # Errors
    /// When the model has no such scenario.
    pub fn of(setup: &Setup) -> Result<Vec<Self>, ModelError> {
        const POINTS_A_MINUTE: f64 = 4.0;
        let scenario = setup.scenario()?;
        let (limits, depth) = (scenario.limits(setup.knobs.walk), setup.limit_depth()?);
        let points = (scenario.measure_min * POINTS_A_MINUTE).min(f64::from(LIMIT_POINTS_MAX)) as u32;
        let left = |backend, minute| {
            let replicas = setup.model.backend(backend).service.replicas.at(&setup.profile);
            left_of(replicas, |replica| limit_at(&limits, backend, replica, minute, depth))
        };
        let line = |backend: sherwood_model::BackendId| Self {
            backend: backend.index(),
            name: setup.model.backend(backend).name.clone(),
            points: (0..=points)
                .map(|point| f64::from(point) / POINTS_A_MINUTE)
                .map(|minute| (minute, left(backend, minute)))
                .collect(),
        };
        Ok(limits.backends().map(line).collect())
    }
}

/// Points of a line of limits, at most: a quarter of a year of them.
const LIMIT_POINTS_MAX: u32 = 1 << 19;

/// Minutes at which the papers look at the dominant backend.
const DOMINANT_AT_MIN: [f64; 3] = [50.0, 100.0, 150.0];

impl Results {
    pub(crate) fn new(
        setup: &Setup,
        recorder: &Recorder,
        slo: Slo,
        standing: SloStanding,
        complete: bool,
        errors: u64,
    ) -> Self {
        let names = setup.model.backends().iter().map(|backend| backend.name.clone());
        let records = || names.clone().zip(&recorder.backends);
        let (samples, latencies) = (recorder.samples(), &recorder.latencies);
        let quantile = |quantile| latencies.quantile(quantile).map_or(0.0, ms);
        let keys = |record: &BackendRecord| record.hits + record.misses;
        let allocations = allocations(samples, recorder.backends.len());
        let largest: f64 = allocations.iter().map(|allocation| allocation.max).sum();
        let cache_bytes = setup.profile().map_or(0.0, |profile| profile.cache_bytes_per_server as f64)
            * setup.knobs.cache_ratio;
        Self {
            scenario: setup.scenario.clone(),
            policy: setup.policy.clone(),
            seed: setup.seed,
            scale: scale(&setup.profile),
            requests: latencies.count(),
            queries: recorder.backends.iter().map(keys).sum(),
            errors,
            slo_bound_ms: ms(slo.bound),
            slo_violation_ratio: standing.violation_ratio(),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            p99_max_ms: standing.max.map_or(0.0, ms),
            dominant_rbc: DominantRbc::new(samples),
            hit_ratio: records()
                .map(|(name, record)| (name, record.hits as f64 / keys(record).max(1) as f64))
                .collect(),
            query_p99_ms: records()
                .map(|(name, record)| (name, record.latencies.quantile(0.99).map(ms)))
                .collect(),
            allocation_bytes: names.clone().zip(allocations).collect(),
            static_equivalent_ratio: largest / cache_bytes,
            complete,
        }
    }
}

impl DominantRbc {
    fn new(samples: &[Sample]) -> Self {
        let dominant = |sample: &Sample| {
            sample.backends.iter().map(|backend| backend.blocking_ratio).fold(0.0, f64::max)
        };
        let at = |minute: &f64| samples.iter().find(|sample| sample.minute >= minute - 1e-9).map(dominant);
        Self {
            at: DOMINANT_AT_MIN.iter().filter_map(at).collect(),
            // A sum of nothing would be -0.
            mean: samples.iter().map(dominant).fold(0.0, Add::add) / samples.len().max(1) as f64,
            max: samples.iter().map(dominant).fold(0.0, f64::max),
        }
    }
}

fn allocations(samples: &[Sample], backends: usize) -> Vec<Allocation> {
    let mut allocations = vec![Allocation::default(); backends];
    for sample in samples {
        for (allocation, backend) in allocations.iter_mut().zip(&sample.backends) {
            allocation.mean += backend.allocation_bytes / samples.len() as f64;
            allocation.max = allocation.max.max(backend.allocation_bytes);
        }
    }
    allocations
}

/// Part of the full system that a profile is; one of another name is of a system of its own.
fn scale(profile: &str) -> f64 {
    match profile {
        "s100" | "demo" => 0.01,
        "s10" => 0.1,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_observation_there_is_no_negative_share() {
        let none = DominantRbc::new(&[]);
        assert_eq!((none.at.len(), none.mean.to_bits(), none.max.to_bits()), (0, 0, 0));
    }

    #[test]
    fn limits_are_those_that_calls_meet() {
        let mut setup = Setup::new("onerf-spikes", "robinhood", 1);
        let lines = LimitLine::of(&setup).unwrap();
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["b01", "b05", "b06", "b08"]);
        let at = |lines: &[LimitLine], minute: usize| lines[2].points[minute * 4];
        assert_eq!((at(&lines, 0), at(&lines, 49), lines[2].points.len()), ((0.0, 1.0), (49.0, 0.36), 721));
        // Half as deep: what it adds to service times is halved.
        setup.knobs.limit_depth = 0.5;
        let slowdown = 1.0 / at(&LimitLine::of(&setup).unwrap(), 49).1;
        assert!((slowdown - (1.0 + 0.5 * (1.0 / 0.36 - 1.0))).abs() < 1e-9, "{slowdown}");
    }
}
