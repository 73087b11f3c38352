//! Finished requests for decisions and for the SLO.

use std::time::Duration;

use sherwood_model::{FinishedRequest, Instant, RequestSelection, RequestWindow, WindowOptions};

/// Least number of requests for a decision: with fewer, which a percentile band holds fewer than
/// two of, the selection covers a longer time.
pub const BAND_REQUESTS_MIN: u64 = 200;
/// Largest number of slots in the part of the log's window that is kept under any load.
const SLOTS_MAX: u32 = 600;
/// Longest selection of requests for a decision, in RBC windows (the time that decisions cover
/// while requests are many).
const REACH_MAX: u32 = 10;

/// A window over finished requests that serves both decisions (blocking counts over the RBC
/// window) and the SLO (a percentile over the SLO's window).
///
/// Memory is that of a [`RequestWindow`] whose span is the longer of ten RBC windows and the SLO's
/// window.
#[derive(Clone, Debug)]
pub struct RequestLog {
    requests: RequestWindow,
    rbc_window: Duration,
}

impl RequestLog {
    /// Returns an empty log for an SLO over `slo_window` and decisions over `rbc_window`.
    ///
    /// # Panics
    /// If both windows are zero.
    #[must_use]
    pub fn new(slo_window: Duration, rbc_window: Duration) -> Self {
        let span = slo_window.max(rbc_window * REACH_MAX);
        // As fine as the shorter window requires, with at most [`SLOTS_MAX`] slots for the longer
        // one.
        let fine = WindowOptions::of(slo_window.min(rbc_window)).slot;
        let slot = fine.max(slo_window.max(rbc_window) / SLOTS_MAX);
        let keep = slo_window.max(rbc_window);
        let requests = RequestWindow::new(WindowOptions { slot, keep, ..WindowOptions::of(span) });
        Self { requests, rbc_window }
    }

    /// Records a request that ended at `at`; returns false if it ended too long ago and was
    /// dropped.
    pub fn record(&mut self, now: Instant, at: Instant, request: FinishedRequest) -> bool {
        self.requests.record(now, at, request)
    }

    /// Records `times` equal requests, like [`record`](Self::record).
    pub fn record_times(&mut self, now: Instant, at: Instant, request: FinishedRequest, times: u64) -> bool {
        self.requests.record_times(now, at, request, times)
    }

    /// The requests of the RBC window (the time that decisions normally cover), or of a longer time
    /// if it holds too few for a decision.
    #[must_use]
    pub fn for_decision(&self, now: Instant) -> RequestSelection {
        self.requests.select_at_least(now, self.rbc_window, BAND_REQUESTS_MIN)
    }

    /// The requests of each of `tenants` tenants for a decision about its own partitions; the time
    /// that a tenant's cover is as long as its own number requires.
    #[must_use]
    pub fn for_decision_by_tenant(&self, now: Instant, tenants: usize) -> Vec<RequestSelection> {
        self.requests.select_by_tenant(now, self.rbc_window, BAND_REQUESTS_MIN, tenants)
    }

    /// The requests that ended within the time `last` before `now`.
    #[must_use]
    pub fn last(&self, now: Instant, last: Duration) -> RequestSelection {
        self.requests.select(now, last)
    }

    /// The RBC window: the time that decisions, and their request blocking counts, cover while
    /// requests are many.
    #[must_use]
    pub fn rbc_window(&self) -> Duration {
        self.rbc_window
    }

    /// Number of requests that were too old when recorded, since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.requests.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherwood_model::BackendId;

    #[test]
    fn request_selection_for_decisions_extends_while_requests_are_few() {
        let (slo, rbc) = (Duration::from_secs(60), Duration::from_secs(5));
        let mut log = RequestLog::new(slo, rbc);
        let request = FinishedRequest::new(Duration::from_millis(1), Some(BackendId(0)));
        for second in 0..60 {
            let at = Instant::from_secs(second);
            (0..10).for_each(|_| assert!(log.record(at, at, request)));
        }
        let now = Instant::from_secs(60);
        let seen = log.for_decision(now);
        assert!((200..=420).contains(&seen.count()), "{}", seen.count());
        assert!(log.last(now, rbc).count() <= 60);
        assert_eq!((log.rbc_window(), log.dropped()), (rbc, 0));
    }
}
