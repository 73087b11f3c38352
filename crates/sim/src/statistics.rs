//! The statistics server: what all application servers reported, and what their controllers are told.
//!
//! RobinHood's servers share one thing, and only this: once a second each sends what finished, and each controller asks
//! before it decides. So a decision is made on what is up to a second old, and two servers differ only in what they hold.

use std::time::Duration;

use sherwood_model::{BackendId, FinishedRequest, Instant, LatencyWindow, RequestSnapshot};
use sherwood_policy::{CounterWindow, Needs, Observation, RequestLog};

/// What one server has to report; emptied once a second.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) requests: Vec<(Instant, FinishedRequest)>,
    /// Keys of a backend that ended with the same latency, and how many there were.
    pub(crate) queries: Vec<(Instant, BackendId, Duration, u64)>,
}

/// Soft state over all servers.
#[derive(Debug)]
pub(crate) struct Statistics {
    log: RequestLog,
    queries: Vec<LatencyWindow>,
    /// Hits and misses of each backend, over all servers, as last reported.
    counts: Vec<(u64, u64)>,
    counters: CounterWindow,
}

/// What a controller is told.
#[derive(Debug)]
pub(crate) struct Known {
    /// What the finished requests tell; partitions are each server's own.
    pub(crate) requests: Observation,
    pub(crate) backends: Vec<KnownBackend>,
}

/// What is known of a backend over the RBC window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownBackend {
    /// Hits and misses.
    pub(crate) counts: (u64, u64),
    pub(crate) query_p99: Option<Duration>,
}

impl Statistics {
    pub(crate) fn new(backends: usize, slo_window: Duration, rbc_window: Duration) -> Self {
        Self {
            log: RequestLog::new(slo_window, rbc_window),
            queries: vec![LatencyWindow::new(rbc_window); backends],
            counts: vec![(0, 0); backends],
            counters: CounterWindow::new(rbc_window),
        }
    }

    /// Takes one server's report and leaves it empty.
    pub(crate) fn receive(&mut self, now: Instant, report: &mut Report) {
        for (at, request) in report.requests.drain(..) {
            self.log.record(now, at, request);
        }
        for (at, backend, latency, keys) in report.queries.drain(..) {
            self.queries[backend.index()].record_times(at, latency, keys);
        }
    }

    /// Takes the hits and misses of each backend since the start, over all servers.
    pub(crate) fn count(&mut self, counts: Vec<(u64, u64)>) {
        self.counts = counts;
    }

    /// What is told to those who ask at `now`.
    pub(crate) fn known(&mut self, now: Instant, needs: &Needs) -> Known {
        let counts = self.counters.advance(now, self.counts.clone());
        let p99 = |window: &LatencyWindow| window.sketch(now).quantile(0.99);
        let known = |(counts, window)| KnownBackend { counts, query_p99: p99(window) };
        let backends: Vec<KnownBackend> = counts.into_iter().zip(&self.queries).map(known).collect();
        let mut requests = Observation::default();
        if needs.requests {
            let finished = RequestSnapshot::from(self.log.for_decision(now));
            requests.see_requests(&finished, needs, backends.len());
        }
        Known { requests, backends }
    }
}
