//! Counts of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_model::{Instant, LatencySketch, TenantId};
use sherwood_workload::tenants::Scenario;

use super::results::Holdings;
use crate::record::ms;

/// Figures of the measured part of a run, by tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Length of the measured part, in seconds.
    pub seconds: f64,
    /// The tenants in the order of the scenario.
    pub tenants: Vec<TenantMeasured>,
}

/// Figures of a tenant's requests that ended in the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantMeasured {
    /// The tenant's name.
    pub name: String,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that were answered in each ten seconds, the last ones incomplete left out.
    pub by_10s: Vec<u64>,
    /// Requests that were refused or failed.
    pub refused: u64,
    /// Reads that were hits, a joined fetch left out.
    pub hits: u64,
    /// Reads.
    pub reads: u64,
    /// Median latency of the answered requests, within 0.8%.
    pub p50_ms: f64,
    /// 99th percentile of their latency.
    pub p99_ms: f64,
    /// 99.9th percentile of their latency.
    pub p999_ms: f64,
}

/// State of a run at the end of ten seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start of the measurement; negative in the warm-up.
    pub second: f64,
    /// Least throughput, in multiples of its baseline, that the last decision predicts.
    pub gain: f64,
    /// Upper bound of that, if the policy has one.
    pub bound: Option<f64>,
    /// The tenants in the order of the scenario.
    pub tenants: Vec<TenantSample>,
}

/// State of a tenant at the end of ten seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantSample {
    /// Requests per second that were answered in these ten seconds.
    pub throughput: f64,
    /// Share of the reads that were hits.
    pub hit_ratio: f64,
    /// The tenant's cache and rates.
    pub holdings: Holdings,
}

/// Length of the shortest time over which throughput is judged.
pub(super) const BUCKET: Duration = Duration::from_secs(10);

/// Counters of a run.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    measured_from: Instant,
    tenants: Vec<Counters>,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug, Default)]
struct Counters {
    all: Counts,
    /// Counts of the present ten seconds.
    bucket: Counts,
    by_10s: Vec<u64>,
    latencies: LatencySketch,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    refused: u64,
    hits: u64,
    reads: u64,
}

impl Recorder {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            measured_from: Instant::ZERO + scenario.warm_up.0,
            tenants: vec![Counters::default(); scenario.tenants.len()],
            samples: Vec::new(),
        }
    }

    /// Counts a request that ended after `latency`, or was refused.
    pub(super) fn request(&mut self, now: Instant, tenant: TenantId, latency: Duration, answered: bool) {
        let is_measured = now >= self.measured_from;
        let counters = &mut self.tenants[tenant.index()];
        counters.add(is_measured, |counts| {
            counts.requests += u64::from(answered);
            counts.refused += u64::from(!answered);
        });
        if is_measured && answered {
            counters.latencies.record(latency);
        }
    }

    /// Counts a read.
    pub(super) fn read(&mut self, now: Instant, tenant: TenantId, hit: bool) {
        self.tenants[tenant.index()].add(now >= self.measured_from, |counts| {
            counts.reads += 1;
            counts.hits += u64::from(hit);
        });
    }

    /// Ends ten seconds. `holdings` are those of each tenant now.
    pub(super) fn end_bucket(
        &mut self,
        now: Instant,
        gain: f64,
        bound: Option<f64>,
        holdings: Vec<Holdings>,
    ) {
        let is_measured = now > self.measured_from;
        let tenants = self.tenants.iter_mut().zip(holdings).map(|(counters, holdings)| {
            let Counts { requests, hits, reads, .. } = std::mem::take(&mut counters.bucket);
            if is_measured {
                counters.by_10s.push(requests);
            }
            TenantSample {
                throughput: requests as f64 / BUCKET.as_secs_f64(),
                hit_ratio: hits as f64 / reads.max(1) as f64,
                holdings,
            }
        });
        let tenants = tenants.collect();
        let second = now.as_nanos() as f64 / 1e9 - self.measured_from.as_nanos() as f64 / 1e9;
        self.samples.push(Sample { second, gain, bound, tenants });
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the figures of the measured part up to `now`.
    pub(super) fn measured(&self, now: Instant, scenario: &Scenario) -> Measured {
        let tenant = |(counters, name): (&Counters, &String)| {
            let Counters { all, by_10s, latencies, .. } = counters;
            let quantile = |quantile| latencies.quantile(quantile).map_or(0.0, ms);
            TenantMeasured {
                name: name.clone(),
                requests: all.requests,
                by_10s: by_10s.clone(),
                refused: all.refused,
                hits: all.hits,
                reads: all.reads,
                p50_ms: quantile(0.5),
                p99_ms: quantile(0.99),
                p999_ms: quantile(0.999),
            }
        };
        let names = scenario.tenants.iter().map(|tenant| &tenant.name);
        Measured {
            seconds: now.since(self.measured_from).as_secs_f64(),
            tenants: self.tenants.iter().zip(names).map(tenant).collect(),
        }
    }
}

impl Counters {
    fn add(&mut self, is_measured: bool, add: impl Fn(&mut Counts)) {
        add(&mut self.bucket);
        if is_measured {
            add(&mut self.all);
        }
    }
}
