//! Results of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_model::{Instant, LatencySketch};

use super::setup::{Copies, Setup};
use crate::record::ms;

/// Figures of the measured part of a run; the fields of `sherwood sim run --json`. Latencies are
/// those of pages, and of the queries of each copy of a page, that ended in that part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed of every draw.
    pub seed: u64,
    /// Number of pages.
    pub requests: u64,
    /// Number of queries of all copies of pages, without copies of queries.
    pub queries: u64,
    /// Mean latency of pages.
    pub page_mean_ms: f64,
    /// 95th percentile of the latency of pages, within 0.8%.
    pub page_p95_ms: f64,
    /// 99th percentile of the latency of pages, within 0.8%.
    pub page_p99_ms: f64,
    /// Mean latency of queries.
    pub query_mean_ms: f64,
    /// 95th percentile of the latency of queries, within 0.8%.
    pub query_p95_ms: f64,
    /// 99th percentile of the latency of queries, within 0.8%.
    pub query_p99_ms: f64,
    /// Work of all attempts, divided by that of one attempt for each page and query, less 1.
    pub extra_load_ratio: f64,
    /// Number of copies of a page, and of a query.
    pub factors: [u8; 2],
    /// Number of pairs of factors that were tried, without that of ones.
    pub tries: u32,
    /// Number of pages that reached their timeout.
    pub errors: u64,
    /// False if the run stopped before its end.
    pub complete: bool,
}

/// Figures of ten seconds of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start at the end of these ten.
    pub second: f64,
    /// Mean latency of the pages that ended; 0 if there is none.
    pub page_mean_ms: f64,
    /// Mean latency of the queries that ended; 0 if there is none.
    pub query_mean_ms: f64,
    /// Number of copies of a page, and of a query.
    pub factors: [u8; 2],
}

/// Latencies of pages or queries.
#[derive(Clone, Debug, Default)]
struct Latencies {
    sum: Duration,
    count: u64,
    sketch: LatencySketch,
}

impl Latencies {
    fn mean_ms(&self) -> f64 {
        ms(self.sum) / self.count.max(1) as f64
    }

    fn quantile_ms(&self, quantile: f64) -> f64 {
        self.sketch.quantile(quantile).map_or(0.0, ms)
    }
}

/// Counters of a run, from the beginning of the measurement on, and samples of all of it.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    measured_from: Instant,
    /// Latencies of each tier in the measured part, and since the last sample.
    measured: [Latencies; 2],
    sampled: [Latencies; 2],
    errors: u64,
    /// Time of cores that attempts have taken.
    served: Duration,
    /// Time of cores that one attempt for each page and each query would have taken.
    needed: Duration,
    samples: Vec<Sample>,
}

impl Recorder {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            measured_from: setup.measured_from(),
            measured: Default::default(),
            sampled: Default::default(),
            errors: 0,
            served: Duration::ZERO,
            needed: Duration::ZERO,
            samples: Vec::new(),
        }
    }

    /// Counts a page (tier 0) or a query (tier 1) that has ended after `latency`.
    pub(super) fn ended(&mut self, now: Instant, tier: usize, latency: Duration) {
        let measured = (now >= self.measured_from).then_some(&mut self.measured[tier]);
        for latencies in measured.into_iter().chain([&mut self.sampled[tier]]) {
            latencies.sum += latency;
            latencies.count += 1;
            latencies.sketch.record(latency);
        }
    }

    /// Counts a page that has ended, with the work that one attempt for it and each of its queries
    /// takes.
    pub(super) fn page(&mut self, now: Instant, needed: Duration, is_error: bool) {
        if now >= self.measured_from {
            self.needed += needed;
            self.errors += u64::from(is_error);
        }
    }

    /// Counts the work of attempts that have ended.
    pub(super) fn served(&mut self, now: Instant, work: Duration) {
        if now >= self.measured_from {
            self.served += work;
        }
    }

    /// Ends ten seconds of the run.
    pub(super) fn sample(&mut self, now: Instant, factors: [u8; 2]) {
        let [page, query] = std::mem::take(&mut self.sampled);
        self.samples.push(Sample {
            second: now.as_nanos() as f64 / 1e9,
            page_mean_ms: page.mean_ms(),
            query_mean_ms: query.mean_ms(),
            factors,
        });
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(super) fn results(&self, setup: &Setup, copies: Copies, complete: bool) -> Results {
        let Copies { factors, tries } = copies;
        let [page, query] = &self.measured;
        let load = self.served.as_secs_f64() / self.needed.as_secs_f64();
        Results {
            scenario: setup.scenario.name.to_owned(),
            policy: setup.policy.clone(),
            seed: setup.seed,
            requests: page.count,
            queries: query.count,
            page_mean_ms: page.mean_ms(),
            page_p95_ms: page.quantile_ms(0.95),
            page_p99_ms: page.quantile_ms(0.99),
            query_mean_ms: query.mean_ms(),
            query_p95_ms: query.quantile_ms(0.95),
            query_p99_ms: query.quantile_ms(0.99),
            extra_load_ratio: if self.needed.is_zero() { 0.0 } else { load - 1.0 },
            factors,
            tries,
            errors: self.errors,
            complete,
        }
    }
}
