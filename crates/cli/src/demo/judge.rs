//! The user's view: what the load saw, judged by the SLO.
//!
//! The node has its own idea of how requests fare, and decides by it. Whether it keeps its promise is judged from outside:
//! latencies count from when a request was *meant* to be sent, and include HTTP.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::{FinishedRequest, Instant, RequestWindow, Slo, SloMonitor, SloStanding, WindowOptions};

/// Points of the curve that are kept for the screen.
const CURVE_MAX: usize = 4_096;

/// Watches finished requests and observes the SLO over them.
#[derive(Debug)]
pub(crate) struct Judge {
    window: RequestWindow,
    monitor: SloMonitor,
    curve: VecDeque<(Duration, Duration)>,
    requests: u64,
    errors: u64,
}

impl Judge {
    /// A judge of a run whose first observation counts after `warm_up`.
    pub(crate) fn new(slo: Slo, warm_up: Duration) -> Self {
        Self {
            window: RequestWindow::new(WindowOptions::of(slo.window)),
            monitor: SloMonitor::new(slo, at(warm_up)),
            curve: VecDeque::new(),
            requests: 0,
            errors: 0,
        }
    }

    /// Takes note of a request that ended `elapsed` after the start of the run.
    pub(crate) fn finished(&mut self, elapsed: Duration, latency: Duration, failed: bool) {
        self.requests += 1;
        self.errors += u64::from(failed);
        let now = at(elapsed);
        self.observe(elapsed);
        self.window.record(now, now, FinishedRequest::new(latency, None));
    }

    /// Observes the SLO if that is due.
    pub(crate) fn observe(&mut self, elapsed: Duration) {
        let (now, window) = (at(elapsed), &self.window);
        if let Some(seen) = self.monitor.observe(now, |last| window.snapshot(now, last)) {
            if self.curve.len() == CURVE_MAX {
                self.curve.pop_front();
            }
            self.curve.push_back((elapsed, seen));
        }
    }

    /// The percentile now, whether an observation is due or not.
    pub(crate) fn current(&self, elapsed: Duration) -> Option<Duration> {
        let slo = self.monitor.slo();
        self.window.snapshot(at(elapsed), slo.window).quantile(slo.percentile / 100.0)
    }

    /// How the SLO has fared since the warm-up.
    pub(crate) fn standing(&self) -> SloStanding {
        self.monitor.standing()
    }

    /// The observations, oldest first: when, and the percentile seen.
    pub(crate) fn curve(&self) -> impl Iterator<Item = (Duration, Duration)> {
        self.curve.iter().copied()
    }

    /// Requests that ended, and those of them that failed.
    pub(crate) fn requests(&self) -> (u64, u64) {
        (self.requests, self.errors)
    }
}

fn at(elapsed: Duration) -> Instant {
    // An hour on, so that the first windows reach back to before the start.
    Instant::from_secs(3_600) + elapsed
}
