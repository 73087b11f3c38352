//! Results of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_model::LatencySketch;
use sherwood_model::Percent;

use super::SCENARIO;
use super::clients::Drawn;
use super::setup::{Setup, Tenants};
use crate::record::ms;

/// Figures of the measured part of a run; the fields of `sherwood sim run --json`. Ratios are of
/// all requests, hits and rejected ones included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Requests that ended, and those that were still waiting after their deadline at the end.
    pub requests: u64,
    /// Share of the requests that were answered after their deadline.
    pub deadline_miss_ratio: f64,
    /// Share of the requests that were rejected at once.
    pub rejection_ratio: f64,
    /// Share of the requests that were hits.
    pub hit_ratio_overall: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Median latency of the requests that were not rejected, within 0.8%.
    pub p50_ms: f64,
    /// 90th percentile of latency, over the same requests as `p50_ms`.
    pub p90_ms: f64,
    /// 99th percentile of latency, over the same requests as `p50_ms`.
    pub p99_ms: f64,
    /// Figures by the requests' deadlines, ascending.
    pub by_deadline: Vec<ByDeadline>,
    /// Figures by tenant, if there are several or the steady one of them is alone.
    pub tenants: Vec<ByTenant>,
    /// False if the run stopped before its end.
    pub complete: bool,
}

/// Figures of the requests with a deadline from `lo_ms` to below `hi_ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByDeadline {
    /// Least deadline.
    pub lo_ms: f64,
    /// Deadline below which the range ends.
    pub hi_ms: f64,
    /// Number of these requests, and their shares by outcome.
    #[serde(flatten)]
    pub shares: Shares,
}

/// Number of requests in a group, and their shares by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Number of requests.
    pub requests: u64,
    /// Share of them that were answered after their deadline.
    pub miss_ratio: f64,
    /// Share of them that were hits.
    pub hit_ratio: f64,
    /// Share of them that were rejected.
    pub rejection_ratio: f64,
}

/// Figures of a tenant's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByTenant {
    /// The tenant's name.
    pub name: String,
    /// Number of the tenant's requests, and their shares by outcome.
    #[serde(flatten)]
    pub shares: Shares,
}

/// Names of the tenants, in the order of their numbers.
const TENANTS: [&str; 2] = ["steady", "bursting"];

/// Figures of one second of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start at the end of that second.
    pub second: f64,
    /// Share of the requests that were answered after their deadline.
    pub deadline_miss_ratio: f64,
    /// Share of the requests that were rejected.
    pub rejection_ratio: f64,
    /// Share of the requests that were hits.
    pub hit_ratio: f64,
    /// Percentile of latency with which admission forecasts (β), at the end of that second.
    pub beta: f64,
    /// Multipliers of the cache's deadline classes at the end of that second, the shortest
    /// deadlines first.
    pub multipliers: Vec<f64>,
}

/// End of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Hit,
    Answered,
    Rejected,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    missed: u64,
    rejected: u64,
    hits: u64,
}

/// Counters of a run, from the beginning of the measurement on, and samples of all of it.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    by_deadline: [Counts; BOUNDS_MS.len() - 1],
    by_tenant: [Counts; TENANTS.len()],
    /// Numbers of requests since the start that met their deadline, and that missed it; rejected
    /// requests are not counted.
    ended: (u64, u64),
    latencies: LatencySketch,
    second: Counts,
    samples: Vec<Sample>,
}

/// Bounds of the ranges of deadlines: of equal width below and above 100 ms.
const BOUNDS_MS: [u16; 19] =
    [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000];

impl Counts {
    fn count(&mut self, outcome: Outcome, is_missed: bool) {
        self.requests += 1;
        self.missed += u64::from(is_missed);
        self.rejected += u64::from(outcome == Outcome::Rejected);
        self.hits += u64::from(outcome == Outcome::Hit);
    }

    fn add(mut self, other: &Self) -> Self {
        self.requests += other.requests;
        self.missed += other.missed;
        self.rejected += other.rejected;
        self.hits += other.hits;
        self
    }

    fn shares(&self) -> Shares {
        let ratio = |count: u64| count as f64 / self.requests.max(1) as f64;
        Shares {
            requests: self.requests,
            miss_ratio: ratio(self.missed),
            hit_ratio: ratio(self.hits),
            rejection_ratio: ratio(self.rejected),
        }
    }
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            by_deadline: Default::default(),
            by_tenant: Default::default(),
            ended: (0, 0),
            latencies: LatencySketch::default(),
            second: Counts::default(),
            samples: Vec::new(),
        }
    }

    /// Counts a request that ended after `latency`.
    pub(super) fn count(&mut self, drawn: &Drawn, latency: Duration, outcome: Outcome, measured: bool) {
        let within = drawn.within;
        let is_missed = outcome != Outcome::Rejected && latency > within;
        self.second.count(outcome, is_missed);
        match outcome {
            Outcome::Rejected => {}
            _ if is_missed => self.ended.1 += 1,
            _ => self.ended.0 += 1,
        }
        if measured {
            self.by_tenant[drawn.tenant.index()].count(outcome, is_missed);
            let above = BOUNDS_MS.partition_point(|bound| Duration::from_millis((*bound).into()) <= within);
            let range = above.saturating_sub(1).min(self.by_deadline.len() - 1);
            self.by_deadline[range].count(outcome, is_missed);
            if outcome != Outcome::Rejected {
                self.latencies.record(latency);
            }
        }
    }

    /// Ends a second of the run.
    pub(super) fn sample(&mut self, second: f64, beta: Percent, multipliers: Vec<f64>) {
        let Shares { miss_ratio, rejection_ratio, hit_ratio, .. } = std::mem::take(&mut self.second).shares();
        self.samples.push(Sample {
            second,
            deadline_miss_ratio: miss_ratio,
            rejection_ratio,
            hit_ratio,
            beta: beta.percent(),
            multipliers,
        });
    }

    /// Returns the numbers of requests since the start that met their deadline, and that missed it;
    /// rejected requests are not counted.
    pub(super) fn ended(&self) -> (u64, u64) {
        self.ended
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(super) fn results(&self, setup: &Setup, complete: bool) -> Results {
        let total = self.by_deadline.iter().fold(Counts::default(), Counts::add).shares();
        let quantile = |quantile| self.latencies.quantile(quantile).map_or(0.0, ms);
        let by_deadline = BOUNDS_MS.windows(2).zip(&self.by_deadline).map(|(bounds, counts)| ByDeadline {
            lo_ms: bounds[0].into(),
            hi_ms: bounds[1].into(),
            shares: counts.shares(),
        });
        let by_tenant = TENANTS
            .iter()
            .zip(&self.by_tenant)
            .map(|(name, counts)| ByTenant { name: (*name).to_owned(), shares: counts.shares() });
        let tenants = match setup.knobs.tenants {
            Tenants::One => 0,
            Tenants::Steady => 1,
            Tenants::Two => 2,
        };
        Results {
            scenario: SCENARIO.to_owned(),
            policy: setup.policy.clone(),
            seed: setup.seed,
            requests: total.requests,
            deadline_miss_ratio: total.miss_ratio,
            rejection_ratio: total.rejection_ratio,
            hit_ratio_overall: total.hit_ratio,
            requests_per_s: total.requests as f64 / setup.knobs.measure.as_secs_f64(),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            by_deadline: by_deadline.collect(),
            tenants: by_tenant.take(tenants).collect(),
            complete,
        }
    }
}
