//! Windows over recent requests and queries, lost with a restart.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::SloSetup;
use sherwood_model::history::Percentiles;
use sherwood_model::{
    BackendId, Band, CollectedRequests, FinishedRequest, Instant, LatencySketch, LatencyWindow, PartitionId,
    QueryWindows, RequestCollector, RequestSelection, RequestSnapshot, Slo, SloMonitor, SloStanding,
};
use sherwood_policy::{BAND_REQUESTS_MIN, RequestLog};

use crate::slos::{Counted, Outcomes, SharedOutcomes, Slos, within};

/// Windows over finished requests and over query latencies.
///
/// Updated once per request (and once per query for its sketch), each time under a lock of its own;
/// slower work such as sorting is done on copies outside of the locks.
#[derive(Debug)]
pub(crate) struct Telemetry {
    requests: Mutex<RequestLog>,
    slo: Mutex<SloMonitor>,
    /// The requests of the global SLO's window at its latest observation.
    observed: Mutex<Observed>,
    /// The bound of `slo`, nanoseconds, which every request is compared with.
    slo_bound_ns: AtomicU64,
    outcomes: SharedOutcomes,
    slos: Slos,
    queries: QueryWindows,
    backends: usize,
    /// Latencies of queries that missed the cache, kept only while a policy needs them.
    misses: Vec<Mutex<LatencyWindow>>,
    timing_misses: AtomicBool,
    rbc_window: Duration,
    /// The requests that other nodes are told of next; none without a cluster.
    collected: Option<Mutex<RequestCollector>>,
    finished: AtomicU64,
    /// Time of the last request that was told, not made of a batch, in nanoseconds; 0 before.
    told_ns: AtomicU64,
    keys: AtomicU64,
}

/// Request blocking counts (RBC): for each backend, the requests whose slowest query was to it.
#[derive(Debug)]
pub(crate) struct Rbc {
    /// Age of the oldest request that was counted.
    pub(crate) reach: Duration,
    /// Number of requests that each backend blocked.
    pub(crate) counts: Vec<u64>,
}

/// The requests of the global SLO's window at its latest observation, summed up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Their latency.
    pub(crate) latency: Percentiles,
    /// Number of requests that each backend blocked, by id, of a longer time if they are few; empty
    /// before the first observation.
    pub(crate) blocking: Vec<u64>,
}

impl Telemetry {
    /// Creates empty windows for `backends` backends; `of_partitions` has that of each partition.
    #[must_use]
    pub(crate) fn new(
        (backends, of_partitions): (usize, Vec<BackendId>),
        (slo, slos): (Slo, &[SloSetup]),
        rbc_window: Duration,
        now: Instant,
    ) -> Self {
        Self {
            requests: Mutex::new(RequestLog::new(slo.window, rbc_window)),
            slo: Mutex::new(SloMonitor::new(slo, now)),
            observed: Mutex::default(),
            slo_bound_ns: AtomicU64::new(nanos(slo.bound)),
            outcomes: SharedOutcomes::default(),
            slos: Slos::new(slos, now),
            queries: QueryWindows::new(backends, of_partitions, rbc_window),
            backends,
            misses: windows(backends, rbc_window),
            timing_misses: AtomicBool::new(false),
            rbc_window,
            collected: None,
            finished: AtomicU64::new(0),
            told_ns: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        }
    }

    /// Collects requests for other nodes from now on.
    #[must_use]
    pub(crate) fn collecting(self) -> Self {
        Self { collected: Some(Mutex::default()), ..self }
    }

    /// Returns the requests that were counted since the last call; none unless they are
    /// [collected](Self::collecting).
    pub(crate) fn collected(&self) -> CollectedRequests {
        let collected = self.collected.as_ref().map(|collected| lock(collected).take());
        collected.unwrap_or_default().into()
    }

    /// Records a request that the gateway, a report or a trace has told and that ended at `at`, in
    /// the global SLO and in those of `counted`; returns false when it is too old to count.
    pub(crate) fn request(
        &self,
        now: Instant,
        at: Instant,
        counted: Counted,
        request: FinishedRequest,
    ) -> bool {
        self.told_ns.fetch_max(now.as_nanos(), Relaxed);
        self.slos.record(now, at, counted, request);
        let counts = self.window().record(now, at, request);
        self.count(counts, request, 1);
        counts
    }

    /// Records `times` equal requests made of listeners' batches, their latency to 1/128 of it.
    pub(crate) fn batches(
        &self,
        now: Instant,
        at: Instant,
        counted: Counted,
        request: FinishedRequest,
        times: u64,
    ) {
        self.slos.record_times(now, at, counted, (request, times));
        let counts = self.window().record_times(now, at, request, times);
        self.count(counts, request, times);
    }

    /// Counts `times` requests, if their window does.
    fn count(&self, counts: bool, request: FinishedRequest, times: u64) {
        if counts {
            self.finished.fetch_add(times, Relaxed);
            let bound = Duration::from_nanos(self.slo_bound_ns.load(Relaxed));
            self.outcomes.count(within(request.latency_us, bound), times);
            if let Some(collected) = &self.collected {
                lock(collected).record(request, times);
            }
        }
    }

    /// Returns true if a request was told within the window of decisions, not made of a batch.
    pub(crate) fn has_told_requests(&self, now: Instant) -> bool {
        let told = self.told_ns.load(Relaxed);
        told > 0 && now.since(Instant::from_nanos(told)) <= self.rbc_window
    }

    /// Records that `partition`, or its backend, answered `keys` keys of the gateway after
    /// `latency`.
    pub(crate) fn query(&self, now: Instant, partition: PartitionId, latency: Duration, keys: u64) {
        self.keys.fetch_add(keys, Relaxed);
        self.latency(now, partition, latency, keys);
    }

    /// Records the latency of `keys` keys, which may not be the gateway's.
    pub(crate) fn latency(&self, now: Instant, partition: PartitionId, latency: Duration, keys: u64) {
        self.queries.record(now, partition, latency, keys);
    }

    /// Records that `backend` answered `keys` keys, or failed to, after `latency`, if misses are
    /// being timed.
    pub(crate) fn miss(&self, now: Instant, backend: BackendId, latency: Duration, keys: u64) {
        if self.timing_misses.load(Relaxed)
            && let Some(window) = self.misses.get(backend.index())
        {
            lock(window).record_times(now, latency, keys);
        }
    }

    /// Switches the timing of misses on or off; switching off drops the recorded ones.
    pub(crate) fn time_misses(&self, wanted: bool) {
        if self.timing_misses.swap(wanted, Relaxed) && !wanted {
            self.misses.iter().for_each(|window| *lock(window) = LatencyWindow::new(self.rbc_window));
        }
    }

    /// Returns the latencies of the misses of `backend` in the window of requests used for
    /// decisions.
    #[must_use]
    pub(crate) fn miss_sketch(&self, now: Instant, backend: BackendId) -> LatencySketch {
        self.misses.get(backend.index()).map(|window| lock(window).sketch(now)).unwrap_or_default()
    }

    /// Returns the requests used for decisions: those of the last [`Self::rbc_window`], or older
    /// ones too if these are too few.
    #[must_use]
    pub(crate) fn snapshot(&self, now: Instant) -> RequestSnapshot {
        self.selection(now).into()
    }

    /// Returns the requests used for decisions within each of `tenants` tenants, its own.
    #[must_use]
    pub(crate) fn snapshots(&self, now: Instant, tenants: usize) -> Vec<RequestSnapshot> {
        let selections = self.window().for_decision_by_tenant(now, tenants);
        selections.into_iter().map(RequestSnapshot::from).collect()
    }

    fn selection(&self, now: Instant) -> RequestSelection {
        self.window().for_decision(now)
    }

    /// Returns the latencies of the queries to `backend` in the window of requests used for
    /// decisions.
    #[must_use]
    pub(crate) fn query_sketch(&self, now: Instant, backend: BackendId) -> LatencySketch {
        self.queries.of_backend(now, backend)
    }

    /// Returns the latencies of the queries of a partition in that window; none if the node has too
    /// many partitions to tell them apart.
    #[must_use]
    pub(crate) fn partition_sketch(&self, now: Instant, partition: PartitionId) -> Option<LatencySketch> {
        self.queries.of_partition(now, partition)
    }

    /// Returns the number of requests that each backend blocked (by the slowest query), counting
    /// those with latencies between the percentiles of `band`.
    #[must_use]
    pub(crate) fn rbc(&self, now: Instant, band: Band) -> Rbc {
        let selection = self.selection(now);
        let reach = selection.reach();
        Rbc { reach, counts: RequestSnapshot::from(selection).blocking_counts(band, self.backends) }
    }

    /// Returns the SLOs of classes and tenants.
    #[must_use]
    pub(crate) fn slos(&self) -> &Slos {
        &self.slos
    }

    /// Observes all SLOs that are due, and returns when one is due next. The blocking counts of the
    /// global one are taken in `band`.
    pub(crate) fn observe_slo(&self, now: Instant, band: Band) -> Instant {
        let mut slo = lock(&self.slo);
        if slo.due() <= now {
            slo.observe(now, |last| {
                let selection = self.window().last(now, last);
                let requests: RequestSnapshot = selection.into();
                let blocking = if requests.count() < BAND_REQUESTS_MIN {
                    self.rbc(now, band).counts
                } else {
                    requests.blocking_counts(band, self.backends)
                };
                *lock(&self.observed) = Observed { latency: Percentiles::from(&requests), blocking };
                requests
            });
        }
        let due = slo.due();
        drop(slo);
        self.slos.observe(now).map_or(due, |other| due.min(other))
    }

    /// Returns the global SLO and its observations.
    #[must_use]
    pub(crate) fn slo(&self) -> (Slo, SloStanding) {
        let slo = lock(&self.slo);
        (slo.slo(), slo.standing())
    }

    /// Returns the outcomes of all requests under the global SLO, each by the bound in force when
    /// it ended.
    #[must_use]
    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes.read()
    }

    /// Replaces the global SLO by one with the same window; its counts of observations start anew.
    pub(crate) fn set_slo(&self, slo: Slo, now: Instant) {
        self.slo_bound_ns.store(nanos(slo.bound), Relaxed);
        *lock(&self.slo) = SloMonitor::new(slo, now);
    }

    /// Returns the requests of the global SLO's window at its latest observation, summed up.
    #[must_use]
    pub(crate) fn observed(&self) -> Observed {
        lock(&self.observed).clone()
    }

    /// Resets the counts of the global SLO.
    pub(crate) fn restart_slo(&self, now: Instant) {
        lock(&self.slo).restart(now);
    }

    /// Returns the length of the window in which request blocking counts (RBC) are taken.
    #[must_use]
    pub(crate) fn rbc_window(&self) -> Duration {
        self.rbc_window
    }

    /// Returns three totals since the start: requests that entered the window, keys that were
    /// answered or failed, and requests dropped as too old.
    #[must_use]
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        (self.finished.load(Relaxed), self.keys.load(Relaxed), self.window().dropped())
    }

    fn window(&self) -> MutexGuard<'_, RequestLog> {
        lock(&self.requests)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn windows(backends: usize, span: Duration) -> Vec<Mutex<LatencyWindow>> {
    (0..backends).map(|_| Mutex::new(LatencyWindow::new(span))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panics while held")
}
