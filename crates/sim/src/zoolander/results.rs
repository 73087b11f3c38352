//! Results of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_model::{Instant, LatencySketch};
use sherwood_policy::slo::StorePlan;

use super::setup::Setup;
use crate::record::ms;

/// Figures of a run; the fields of `sherwood sim run --json`. A request counts where it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Number of requests that ended.
    pub requests: u64,
    /// Share of the requests that took longer than the bound.
    pub violations: ByPhase,
    /// Share of the night in the violations of the whole day; 0 without violations.
    pub night_share: f64,
    /// 99th percentile of the latency of requests, within 0.8%.
    pub p99_ms: ByPhase,
    /// Calls beyond one for each access, divided by the accesses.
    pub extra_load_ratio: ByPhase,
    /// Hours of nodes that were in use.
    pub node_hours: f64,
    /// Number of requests of which an access reached its timeout.
    pub errors: u64,
    /// Decisions of the manager and their measured effects, in sentences.
    pub decisions: Vec<String>,
    /// False if the run stopped before its end.
    pub complete: bool,
}

/// A figure of the day, of the night, and of both together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByPhase {
    /// The day.
    pub day: f64,
    /// The night.
    pub night: f64,
    /// Day and night.
    pub whole: f64,
}

/// Figures of ten seconds of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start at the end of these ten.
    pub second: f64,
    /// Number of requests that ended.
    pub requests: u64,
    /// Number of those that took longer than the bound.
    pub violated: u64,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of duplicates of each.
    pub duplicates: u32,
    /// Number of duplicates that are asked at once.
    pub asked: u32,
}

/// Counters of a phase, or of both.
#[derive(Clone, Debug, Default)]
struct Counts {
    requests: u64,
    violated: u64,
    accesses: u64,
    calls: u64,
    /// Number of requests that ended within each of [`BOUNDS_MS`].
    within: [u64; BOUNDS_MS.len()],
    sketch: LatencySketch,
}

/// Bounds in milliseconds for which the share of requests within them is known.
pub(super) const BOUNDS_MS: [u64; 8] = [3, 5, 8, 15, 30, 60, 150, 300];

/// Requests that have ended, and those of them that took longer than the bound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) violated: u64,
}

/// Counters of a run, and samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    /// Counters of the day and of the night.
    phases: [Counts; 2],
    /// Requests since the last sample.
    recent: Tally,
    errors: u64,
    node_seconds: f64,
    samples: Vec<Sample>,
}

impl Recorder {
    /// Counts an access that begins.
    pub(super) fn access(&mut self, phase: usize) {
        self.phases[phase].accesses += 1;
    }

    /// Counts a call of a node.
    pub(super) fn call(&mut self, phase: usize) {
        self.phases[phase].calls += 1;
    }

    /// Counts a request of a phase that has ended after `latency`, and should have within `bound`.
    pub(super) fn ended(&mut self, phase: usize, latency: Duration, bound: Duration, is_error: bool) {
        let is_violated = is_error || latency > bound;
        let counts = &mut self.phases[phase];
        for (within, bound_ms) in counts.within.iter_mut().zip(BOUNDS_MS) {
            *within += u64::from(!is_error && latency <= Duration::from_millis(bound_ms));
        }
        counts.requests += 1;
        counts.violated += u64::from(is_violated);
        counts.sketch.record(latency);
        self.recent.requests += 1;
        self.recent.violated += u64::from(is_violated);
        self.errors += u64::from(is_error);
    }

    /// Counts the time for which nodes were in use.
    pub(super) fn used(&mut self, nodes: u16, time: Duration) {
        self.node_seconds += f64::from(nodes) * time.as_secs_f64();
    }

    /// Ends a sample of the run, in which the store was used by this plan, and returns its
    /// requests.
    pub(super) fn sample(&mut self, now: Instant, plan: &StorePlan) -> Tally {
        let recent = std::mem::take(&mut self.recent);
        let &StorePlan { partitions, duplicates, asked, .. } = plan;
        if recent.requests > 0 {
            self.samples.push(Sample {
                second: now.as_nanos() as f64 / 1e9,
                requests: recent.requests,
                violated: recent.violated,
                partitions,
                duplicates,
                asked,
            });
        }
        recent
    }

    /// The accesses of a phase, which are requests of their own, the share of them that ended
    /// within each of [`BOUNDS_MS`], and calls beyond one for each.
    pub(super) fn levels(&self, phase: usize) -> (u64, [f64; BOUNDS_MS.len()], f64) {
        let Counts { accesses, calls, within, .. } = &self.phases[phase];
        let extra = ratio(calls.saturating_sub(*accesses), *accesses);
        (*accesses, within.map(|within| ratio(within, *accesses)), extra)
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the results so far.
    pub(super) fn results(&self, setup: &Setup, decisions: &[String], complete: bool) -> Results {
        let [day, night] = &self.phases;
        let mut whole = day.clone();
        whole.requests += night.requests;
        whole.violated += night.violated;
        whole.accesses += night.accesses;
        whole.calls += night.calls;
        whole.sketch.merge(&night.sketch);
        let figure = |of: fn(&Counts) -> f64| ByPhase { day: of(day), night: of(night), whole: of(&whole) };
        Results {
            scenario: setup.scenario.name().to_owned(),
            policy: setup.policy.clone(),
            seed: setup.seed,
            requests: whole.requests,
            violations: figure(|counts| ratio(counts.violated, counts.requests)),
            night_share: ratio(night.violated, whole.violated),
            p99_ms: figure(|counts| counts.sketch.quantile(0.99).map_or(0.0, ms)),
            extra_load_ratio: figure(|counts| {
                ratio(counts.calls.saturating_sub(counts.accesses), counts.accesses)
            }),
            node_hours: self.node_seconds / 3_600.0,
            errors: self.errors,
            decisions: decisions.to_vec(),
            complete,
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
