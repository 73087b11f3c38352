//! Recording of a run: finished requests, the SLO and the usage of the caches.

use std::time::Duration;

use sherwood_model::{
    Band, CachePlan, FinishedRequest, Instant, LatencySketch, RequestSnapshot, RequestWindow, Slo,
    SloMonitor, WindowOptions,
};

use crate::key::Key;
use crate::partitions::Partitions;
use crate::results::{BackendSample, Results, Sample};
use crate::setup::Setup;
use crate::statistics::LatencyGroup;
use crate::world::Node;

/// Recorder of a run, which sees every finished request.
#[derive(Clone)]
pub(crate) struct Recorder {
    window: RequestWindow,
    monitor: SloMonitor,
    partitions: Partitions,
    measured_from: Instant,
    /// Latencies of the requests that finished during the measurement.
    pub(crate) latencies: LatencySketch,
    /// Measurements of the run by backend.
    pub(crate) backends: Vec<BackendRecord>,
    samples: Vec<Sample>,
}

/// Measurements of one backend over a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendRecord {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) latencies: LatencySketch,
    /// Hits and misses of the backend's keys up to the last observation of the SLO.
    seen: (u64, u64),
}

/// State of the backends at an observation of the SLO.
pub(crate) struct Backlog {
    /// Share of each backend's resource that limits leave.
    pub(crate) limits: Vec<f64>,
    /// Number of calls waiting for a worker.
    pub(crate) waiting: Vec<usize>,
    pub(crate) query_p99: Vec<Option<Duration>>,
    /// Number of bytes of the full-size caches that a simulated byte represents.
    pub(crate) stands_for: f64,
}

impl Recorder {
    pub(crate) fn new(slo: Slo, partitions: Partitions, measured_from: Instant) -> Self {
        Self {
            window: RequestWindow::new(WindowOptions::of(slo.window)),
            monitor: SloMonitor::new(slo, measured_from),
            partitions,
            measured_from,
            latencies: LatencySketch::default(),
            backends: vec![BackendRecord::default(); partitions.backends()],
            samples: Vec::new(),
        }
    }

    /// Time of the next observation of the SLO.
    pub(crate) fn due(&self) -> Instant {
        self.monitor.due()
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Records a finished request.
    pub(crate) fn request(&mut self, now: Instant, finished: FinishedRequest) {
        self.window.record(now, now, finished);
        if now >= self.measured_from {
            self.latencies.record(Duration::from_micros(finished.latency_us.into()));
        }
    }

    /// Records keys of a backend that finished with equal latency.
    pub(crate) fn keys(&mut self, now: Instant, ended: LatencyGroup) {
        let LatencyGroup { backend, latency, hits, keys } = ended;
        if now >= self.measured_from {
            let record = &mut self.backends[backend.index()];
            record.hits += hits;
            record.misses += keys - hits;
            record.latencies.record_times(latency, keys);
        }
    }

    /// Observes the SLO and takes a sample.
    pub(crate) fn observe(&mut self, now: Instant, nodes: &[Node<Key>], backlog: Backlog) {
        let Self { window, monitor, .. } = self;
        let mut seen = RequestSnapshot::default();
        let bound = monitor.slo().bound;
        let p99 = monitor.observe(now, |last| {
            seen = window.snapshot(now, last);
            seen.clone()
        });
        let blocking = seen.blocking_counts(Band::TAIL, self.backends.len());
        let blocked = blocking.iter().sum::<u64>().max(1) as f64;
        let held = held(nodes, self.partitions, backlog.stands_for);
        let mut backends = Vec::with_capacity(blocking.len());
        for (index, record) in self.backends.iter_mut().enumerate() {
            let (hits, misses) = (record.hits - record.seen.0, record.misses - record.seen.1);
            record.seen = (record.hits, record.misses);
            let (allocation, used) = held[index];
            backends.push(BackendSample {
                limit: backlog.limits[index],
                waiting: backlog.waiting[index] as u64,
                query_p99_ms: backlog.query_p99[index].map(ms),
                blocking_ratio: blocking[index] as f64 / blocked,
                hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
                allocation_bytes: allocation,
                used_bytes: used,
            });
        }
        let quantile = |quantile| seen.quantile(quantile).map(ms);
        self.samples.push(Sample {
            minute: (now - self.measured_from).as_secs_f64() / 60.0,
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: p99.map(ms),
            violated: p99.is_some_and(|seen| seen > bound),
            backends,
        });
    }

    /// Returns the results of the run so far.
    pub(crate) fn results(&self, setup: &Setup, complete: bool, errors: u64) -> Results {
        Results::new(setup, self, self.monitor.slo(), self.monitor.standing(), complete, errors)
    }
}

/// Returns the mean allocation and usage of each backend over the servers. The allocation is the
/// one in force, which may be on its way to the decided one; where partitions share the cache, it
/// is the usage.
fn held(nodes: &[Node<Key>], partitions: Partitions, stands_for: f64) -> Vec<(f64, f64)> {
    let mut sums = vec![(0, 0); partitions.backends()];
    for Node { cache, .. } in nodes {
        let is_shared = cache.plan() == CachePlan::Shared;
        for partition in partitions.all() {
            let usage = cache.usage(partition);
            let (allocation, used) = &mut sums[partitions.pair(partition).1.index()];
            *allocation += if is_shared { usage.used_bytes } else { usage.budget_bytes };
            *used += usage.used_bytes;
        }
    }
    let each = stands_for / nodes.len() as f64;
    sums.into_iter().map(|(allocation, used)| (allocation as f64 * each, used as f64 * each)).collect()
}

pub(crate) fn ms(latency: Duration) -> f64 {
    latency.as_secs_f64() * 1e3
}
