//! Results of a run.

use std::collections::BTreeMap;
use std::ops::Add;

use serde::{Deserialize, Serialize};
use sherwood_model::{Slo, SloStanding};
use sherwood_workload::onerf::ModelError;

use crate::backend::{left_of, limit_at};
use crate::record::{BackendRecord, Recorder, ms};
use crate::setup::Setup;

/// Figures of the measured part of a run; the fields of `sherwood sim run --json`. Maps are by
/// backend name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Simulated part of the full system, above 0 and at most 1.
    pub scale: f64,
    /// Number of requests that ended.
    pub requests: u64,
    /// Number of keys of those requests.
    pub queries: u64,
    /// Number of keys that failed or were refused, including the warm-up.
    pub errors: u64,
    /// Largest latency that meets the SLO.
    pub slo_bound_ms: f64,
    /// Share of the observations above the bound.
    pub slo_violation_ratio: f64,
    /// Median request latency over the whole measurement, within 0.8%.
    pub p50_ms: f64,
    /// 90th percentile of request latency, over the same requests as `p50_ms`.
    pub p90_ms: f64,
    /// 99th percentile of request latency, over the same requests as `p50_ms`.
    pub p99_ms: f64,
    /// Largest 99th percentile at an observation of the SLO, in its window; `p99_ms` may exceed it
    /// by its error.
    pub p99_max_ms: f64,
    /// Share of the slow requests that the dominant backend blocked: it was the last to answer more
    /// of them than any other.
    pub dominant_rbc: DominantRbc,
    /// Share of the keys found in a cache.
    pub hit_ratio: BTreeMap<String, f64>,
    /// P99 of query latency, of hits and misses together; none without queries.
    pub query_p99_ms: BTreeMap<String, Option<f64>>,
    /// Allocation in a server's cache, averaged over the servers.
    pub allocation_bytes: BTreeMap<String, Allocation>,
    /// Sum of the backends' largest allocations divided by the size of a cache: the size that a
    /// static division would need.
    pub static_equivalent_ratio: f64,
    /// False if the run stopped before its end.
    pub complete: bool,
}

/// Share of the slow requests (in RobinHood's band) that were blocked by the backend that blocked
/// most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DominantRbc {
    /// Share at minutes 50, 100 and 150, as far as the run extends.
    pub at: Vec<f64>,
    /// Mean share over all observations.
    pub mean: f64,
    /// Largest share observed.
    pub max: f64,
}

/// Allocation of a backend over time, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Mean allocation over all observations.
    pub mean: f64,
    /// Largest allocation observed.
    pub max: f64,
}

/// An observation of the SLO, and further measurements at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Minutes since the measurement began.
    pub minute: f64,
    /// Median over the requests in the SLO's window; none if nothing ended in it.
    pub p50_ms: Option<f64>,
    /// 90th percentile of request latency in the SLO's window, as `p50_ms`.
    pub p90_ms: Option<f64>,
    /// 99th percentile of request latency in the SLO's window, as `p50_ms`.
    pub p99_ms: Option<f64>,
    /// True if the SLO's percentile was above its bound.
    pub violated: bool,
    /// Measurements of each backend.
    pub backends: Vec<BackendSample>,
}

/// Measurements of a backend at an observation of the SLO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackendSample {
    /// Share of the backend's resource that its limit leaves.
    pub limit: f64,
    /// Number of calls waiting for a worker.
    pub waiting: u64,
    /// P99 of the latency of queries to the backend, of hits and misses together, over the window
    /// of requests used for decisions, as last reported; none without queries.
    pub query_p99_ms: Option<f64>,
    /// Share of the slow requests in the window that the backend blocked: it answered last.
    pub blocking_ratio: f64,
    /// Share of the backend's keys since the last observation that were found in a cache; none
    /// without keys.
    pub hit_ratio: Option<f64>,
    /// Bytes allocated to the backend, averaged over the servers.
    pub allocation_bytes: f64,
    /// Bytes that the backend's items use, averaged over the servers.
    pub used_bytes: f64,
}

/// The limit of a backend during the measurement, as points of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitLine {
    /// The backend's index in the model.
    pub backend: usize,
    /// Name of the backend.
    pub name: String,
    /// Minutes of the measurement from 0 on, four points per minute, with the share of the resource
    /// left then.
    pub points: Vec<(f64, f64)>,
}

impl LimitLine {
    /// Returns a line for each backend that the scenario of `setup` limits at some time, in the
    /// order of their ids.
    ///
    /// # Errors
    /// If the model has no such scenario.
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

/// Largest number of points of a limit's line: a quarter of a year.
const LIMIT_POINTS_MAX: u32 = 1 << 19;

/// Minutes at which the papers report the dominant backend.
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
        let p99_max_ms = standing.max.map(ms);
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
            // The sketch rounds up, and minutes are observed exactly.
            p99_ms: p99_max_ms.map_or(quantile(0.99), |max| quantile(0.99).min(max)),
            p99_max_ms: p99_max_ms.unwrap_or(0.0),
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
            // A sum over nothing would be -0.
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

/// Part of the full system that a profile is; 1 for profiles of other systems.
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
    fn dominant_share_without_observations_is_not_negative_zero() {
        let none = DominantRbc::new(&[]);
        assert_eq!((none.at.len(), none.mean.to_bits(), none.max.to_bits()), (0, 0, 0));
    }

    #[test]
    fn limit_lines_show_the_scenarios_limits_at_the_depth_of_the_setting() {
        let mut setup = Setup::new("onerf-spikes", "robinhood", 1);
        let lines = LimitLine::of(&setup).unwrap();
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["b01", "b05", "b06", "b08"]);
        let at = |lines: &[LimitLine], minute: usize| lines[2].points[minute * 4];
        assert_eq!((at(&lines, 0), at(&lines, 49), lines[2].points.len()), ((0.0, 1.0), (49.0, 0.36), 721));
        // With half the depth, the time added to service times is halved.
        setup.knobs.limit_depth = 0.5;
        let slowdown = 1.0 / at(&LimitLine::of(&setup).unwrap(), 49).1;
        assert!((slowdown - (1.0 + 0.5 * (1.0 / 0.36 - 1.0))).abs() < 1e-9, "{slowdown}");
    }
}
