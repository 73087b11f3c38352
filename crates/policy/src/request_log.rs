//! Finished requests, as decisions and the SLO look back on them.

use std::time::Duration;

use sherwood_model::{FinishedRequest, Instant, RequestSelection, RequestWindow, WindowOptions};

/// With fewer requests in the window a percentile band holds fewer than two; the window then
/// reaches further back.
const BAND_REQUESTS_MIN: u64 = 200;
/// Slots at most in the part of the window that is kept however busy it is.
const SLOTS_MAX: u32 = 600;
/// How many times its length the RBC window may reach back for [`BAND_REQUESTS_MIN`].
const REACH_MAX: u32 = 10;

/// One window over finished requests that serves two questions: who blocked the slow ones, over the
/// RBC window, and how the promise was kept, over the SLO's.
///
/// Memory is that of a [`RequestWindow`] that reaches back ten RBC windows while requests are few.
#[derive(Clone, Debug)]
pub struct RequestLog {
    requests: RequestWindow,
    rbc_window: Duration,
}

impl RequestLog {
    /// An empty log for an SLO over `slo_window` and decisions over `rbc_window`.
    ///
    /// # Panics
    /// When both windows are zero.
    #[must_use]
    pub fn new(slo_window: Duration, rbc_window: Duration) -> Self {
        let span = slo_window.max(rbc_window * REACH_MAX);
        // Fine enough for the shorter window, and never so fine that the longer one has thousands
        // of slots.
        let fine = WindowOptions::of(slo_window.min(rbc_window)).slot;
        let slot = fine.max(slo_window.max(rbc_window) / SLOTS_MAX);
        let keep = slo_window.max(rbc_window);
        let requests = RequestWindow::new(WindowOptions { slot, keep, ..WindowOptions::of(span) });
        Self { requests, rbc_window }
    }

    /// Takes note of a request that ended at `at`; false when that is too long ago to count.
    pub fn record(&mut self, now: Instant, at: Instant, request: FinishedRequest) -> bool {
        self.requests.record(now, at, request)
    }

    /// The requests that decisions look at: those of the RBC window, or more where it holds too
    /// few.
    #[must_use]
    pub fn for_decision(&self, now: Instant) -> RequestSelection {
        self.requests.select_at_least(now, self.rbc_window, BAND_REQUESTS_MIN)
    }

    /// The requests of the last `last`.
    #[must_use]
    pub fn last(&self, now: Instant, last: Duration) -> RequestSelection {
        self.requests.select(now, last)
    }

    /// How far back decisions look where requests are many.
    #[must_use]
    pub fn rbc_window(&self) -> Duration {
        self.rbc_window
    }

    /// Requests that came too late to count, since the start.
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
    fn decisions_look_back_further_while_requests_are_few_and_the_slo_does_not() {
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
