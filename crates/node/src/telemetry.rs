//! What the node remembers of the requests and queries that passed: soft state, lost with a
//! restart.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_model::{
    BackendId, Band, FinishedRequest, Instant, LatencySketch, LatencyWindow, RequestSelection,
    RequestSnapshot, Slo, SloMonitor, SloStanding,
};
use sherwood_policy::RequestLog;

use crate::slos::{Counted, SloSetup, Slos};

/// Windows over finished requests and over query latencies per backend.
///
/// Entered once per request (and once per query for its sketch), each time under a lock of its own;
/// what takes longer, such as sorting, is done on copies outside of the locks.
#[derive(Debug)]
pub(crate) struct Telemetry {
    requests: Mutex<RequestLog>,
    slo: Mutex<SloMonitor>,
    slos: Slos,
    queries: Vec<Mutex<LatencyWindow>>,
    /// Those of the queries that the cache did not answer, kept only while a policy asks for them.
    misses: Vec<Mutex<LatencyWindow>>,
    timing_misses: AtomicBool,
    rbc_window: Duration,
    finished: AtomicU64,
    keys: AtomicU64,
}

/// Request blocking counts.
#[derive(Debug)]
pub(crate) struct Rbc {
    /// How far back the requests go that were looked at.
    pub(crate) reach: Duration,
    /// One for each backend.
    pub(crate) counts: Vec<u64>,
}

impl Telemetry {
    /// Empty windows for `backends` backends.
    #[must_use]
    pub(crate) fn new(
        backends: usize,
        (slo, slos): (Slo, &[SloSetup]),
        rbc_window: Duration,
        now: Instant,
    ) -> Self {
        Self {
            requests: Mutex::new(RequestLog::new(slo.window, rbc_window)),
            slo: Mutex::new(SloMonitor::new(slo, now)),
            slos: Slos::new(slos, now),
            queries: windows(backends, rbc_window),
            misses: windows(backends, rbc_window),
            timing_misses: AtomicBool::new(false),
            rbc_window,
            finished: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        }
    }

    /// Takes note of a request that ended at `at`, for all and for the SLOs it is `counted` in;
    /// false when that is too long ago to count.
    pub(crate) fn request(
        &self,
        now: Instant,
        at: Instant,
        counted: Counted,
        request: FinishedRequest,
    ) -> bool {
        self.slos.record(now, at, counted, request);
        let counts = self.window().record(now, at, request);
        self.finished.fetch_add(counts.into(), Relaxed);
        counts
    }

    /// Takes note of `keys` keys that `backend`, or its cache partition, answered `latency` after
    /// they were asked for.
    pub(crate) fn query(&self, now: Instant, backend: BackendId, latency: Duration, keys: u64) {
        self.keys.fetch_add(keys, Relaxed);
        if let Some(window) = self.queries.get(backend.index()) {
            lock(window).record_times(now, latency, keys);
        }
    }

    /// Takes note of `keys` keys that `backend` answered `latency` after they were asked for, or
    /// failed to, if that is asked for.
    pub(crate) fn miss(&self, now: Instant, backend: BackendId, latency: Duration, keys: u64) {
        if self.timing_misses.load(Relaxed)
            && let Some(window) = self.misses.get(backend.index())
        {
            lock(window).record_times(now, latency, keys);
        }
    }

    /// Whether to take note of misses from now on. What was noted is dropped when it is no longer.
    pub(crate) fn time_misses(&self, wanted: bool) {
        if self.timing_misses.swap(wanted, Relaxed) && !wanted {
            self.misses.iter().for_each(|window| *lock(window) = LatencyWindow::new(self.rbc_window));
        }
    }

    /// The latencies of the misses of `backend` in the RBC window.
    #[must_use]
    pub(crate) fn miss_sketch(&self, now: Instant, backend: BackendId) -> LatencySketch {
        self.misses.get(backend.index()).map(|window| lock(window).sketch(now)).unwrap_or_default()
    }

    /// The requests that decisions look at: those of the RBC window, or more where it holds too
    /// few.
    #[must_use]
    pub(crate) fn snapshot(&self, now: Instant) -> RequestSnapshot {
        self.selection(now).into()
    }

    fn selection(&self, now: Instant) -> RequestSelection {
        self.window().for_decision(now)
    }

    /// The latencies of the queries to `backend` in the RBC window.
    #[must_use]
    pub(crate) fn query_sketch(&self, now: Instant, backend: BackendId) -> LatencySketch {
        self.queries.get(backend.index()).map(|window| lock(window).sketch(now)).unwrap_or_default()
    }

    /// Returns the blocking counts of the requests in the band.
    #[must_use]
    pub(crate) fn rbc(&self, now: Instant, band: Band) -> Rbc {
        let selection = self.selection(now);
        let reach = selection.reach();
        Rbc { reach, counts: RequestSnapshot::from(selection).blocking_counts(band, self.queries.len()) }
    }

    /// Returns the SLOs of classes and tenants.
    #[must_use]
    pub(crate) fn slos(&self) -> &Slos {
        &self.slos
    }

    /// Observes all SLOs that are due, and returns when one is due next.
    pub(crate) fn observe_slo(&self, now: Instant) -> Instant {
        let mut slo = lock(&self.slo);
        if slo.due() <= now {
            slo.observe(now, |last| {
                let selection = self.window().last(now, last);
                selection.into()
            });
        }
        let due = slo.due();
        drop(slo);
        self.slos.observe(now).map_or(due, |other| due.min(other))
    }

    /// The SLO and how it has fared.
    #[must_use]
    pub(crate) fn slo(&self) -> (Slo, SloStanding) {
        let slo = lock(&self.slo);
        (slo.slo(), slo.standing())
    }

    /// Starts the SLO's counts anew.
    pub(crate) fn restart_slo(&self, now: Instant) {
        lock(&self.slo).restart(now);
    }

    /// Returns the length of the RBC window.
    #[must_use]
    pub(crate) fn rbc_window(&self) -> Duration {
        self.rbc_window
    }

    /// Requests that entered the window, keys that ended, with a failure or without, and requests
    /// dropped as too old, since the start.
    #[must_use]
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        (self.finished.load(Relaxed), self.keys.load(Relaxed), self.window().dropped())
    }

    fn window(&self) -> MutexGuard<'_, RequestLog> {
        lock(&self.requests)
    }
}

fn windows(backends: usize, span: Duration) -> Vec<Mutex<LatencyWindow>> {
    (0..backends).map(|_| Mutex::new(LatencyWindow::new(span))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panics while held")
}
