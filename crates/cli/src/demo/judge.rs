//! The SLO as clients see it.
//!
//! The node measures requests itself and decides by its own figures. The demo measures compliance
//! from outside: latencies count from the *intended* start of a request and include HTTP.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::{FinishedRequest, Instant, RequestWindow, Slo, SloMonitor, SloStanding, WindowOptions};

use super::lateness::{LATE_MAX, LateCounts};

/// Most points of the curve of SLO percentiles that are kept for the screen.
const CURVE_MAX: usize = 4_096;

/// Records finished requests and observes the SLO over them.
#[derive(Debug)]
pub(crate) struct Judge {
    window: RequestWindow,
    /// Delays between the intended and the actual start of requests, over the same window.
    lateness: RequestWindow,
    monitor: SloMonitor,
    /// End of the warm-up; none once it has passed.
    warm_up: Option<Duration>,
    end: Duration,
    curve: VecDeque<(Duration, Duration)>,
    late: LateCounts,
    errors: u64,
}

impl Judge {
    /// Creates a judge that counts observations for `measured` after the end of `warm_up`. Earlier
    /// observations appear only in the curve, and there are none later, while the last requests
    /// end.
    pub(crate) fn new(slo: Slo, warm_up: Duration, measured: Duration) -> Self {
        Self {
            end: warm_up + measured,
            window: RequestWindow::new(WindowOptions::of(slo.window)),
            lateness: RequestWindow::new(WindowOptions::of(slo.window)),
            monitor: SloMonitor::new(slo, at(Duration::ZERO)),
            warm_up: Some(warm_up),
            curve: VecDeque::new(),
            late: LateCounts::default(),
            errors: 0,
        }
    }

    /// Records a request that ended `elapsed` after the start of the run.
    pub(crate) fn finished(&mut self, elapsed: Duration, request: &Ended) {
        self.late.record(request.late);
        self.errors += u64::from(request.failed);
        let now = at(elapsed);
        self.observe(elapsed);
        self.window.record(now, now, FinishedRequest::new(request.latency, None));
        self.lateness.record(now, now, FinishedRequest::new(request.late, None));
    }

    /// Observes the SLO if an observation is due.
    pub(crate) fn observe(&mut self, elapsed: Duration) {
        if elapsed > self.end {
            return;
        }
        if let Some(warm_up) = self.warm_up.take_if(|warm_up| *warm_up <= elapsed) {
            self.monitor.restart(at(warm_up));
        }
        let (now, window) = (at(elapsed), &self.window);
        if let Some(seen) = self.monitor.observe(now, |last| window.snapshot(now, last)) {
            if self.curve.len() == CURVE_MAX {
                self.curve.pop_front();
            }
            self.curve.push_back((elapsed, seen));
        }
    }

    /// Returns the SLO's percentile over a window at `elapsed`, independent of due observations.
    fn current(&self, window: &RequestWindow, elapsed: Duration) -> Option<Duration> {
        let slo = self.monitor.slo();
        window.snapshot(at(elapsed), slo.window).quantile(slo.percentile / 100.0)
    }

    /// Returns the counts of the SLO's observations and violations since the warm-up.
    pub(crate) fn standing(&self) -> SloStanding {
        match self.warm_up {
            Some(_) => SloStanding::default(),
            None => self.monitor.standing(),
        }
    }

    /// Numbers of the finished requests and of the late ones among them.
    pub(crate) const fn late_counts(&self) -> LateCounts {
        self.late
    }

    /// Copies the judge's data to display, so that the lock on the judge is held only briefly.
    pub(crate) fn seen(&self, elapsed: Duration) -> JudgeView {
        JudgeView {
            current: self.current(&self.window, elapsed),
            late: self.current(&self.lateness, elapsed).filter(|late| *late > LATE_MAX),
            curve: self.curve.iter().copied().collect(),
            violation_ratio: self.standing().violation_ratio(),
            requests: (self.late.requests, self.errors),
        }
    }
}

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Time from the intended start to the end.
    pub(crate) latency: Duration,
    /// Delay of the actual start after the intended start.
    pub(crate) late: Duration,
    /// True when the request or one of its keys failed.
    pub(crate) failed: bool,
}

/// The judge's record of SLO compliance at one moment.
#[derive(Clone, Debug)]
pub(crate) struct JudgeView {
    /// The SLO's percentile now.
    pub(crate) current: Option<Duration>,
    /// P99 of the delay with which requests were sent, when it exceeds [`LATE_MAX`].
    pub(crate) late: Option<Duration>,
    /// Observations, oldest first: time and percentile.
    pub(crate) curve: Vec<(Duration, Duration)>,
    /// Share of the observations since the warm-up that violated the SLO.
    pub(crate) violation_ratio: f64,
    /// Finished requests, and the failed ones among them.
    pub(crate) requests: (u64, u64),
}

fn at(elapsed: Duration) -> Instant {
    // Starting at one hour lets the first windows reach back to before the start.
    Instant::from_secs(3_600) + elapsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slo_observations_of_the_warm_up_are_displayed_but_not_counted() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let slo = Slo { percentile: 99.0, bound: ms(150), window: s(2), observe: s(1) };
        let mut judge = Judge::new(slo, s(10), s(3_600));
        let ended = |latency| Ended { latency, late: Duration::ZERO, failed: false };
        (0..100).for_each(|i| judge.finished(ms(i * 100), &ended(ms(500))));
        assert_eq!(judge.standing(), SloStanding::default());
        assert_eq!(judge.seen(s(10)).curve.len(), 9, "one a second, from the first second on");
        (100..200).for_each(|i| judge.finished(ms(i * 100), &ended(ms(if i < 120 { 500 } else { 1 }))));
        let SloStanding { observations, violations, .. } = judge.standing();
        assert_eq!(
            (observations, violations),
            (9, 3),
            "two slow seconds, and one more in whose window they lie"
        );
        assert_eq!(judge.seen(s(20)).requests, (200, 0));
    }
    #[test]
    fn load_counts_as_late_until_late_requests_leave_the_window() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let slo = Slo { percentile: 99.0, bound: ms(150), window: s(2), observe: s(1) };
        let mut judge = Judge::new(slo, s(10), s(3_600));
        let mut late_at = |second, late| {
            judge.finished(s(second), &Ended { latency: ms(50), late, failed: false });
            judge.seen(s(second)).late
        };
        assert_eq!(late_at(10, ms(10)), None, "as late as is allowed");
        assert!(late_at(11, ms(25)) >= Some(ms(24)));
        assert_eq!(late_at(20, ms(1)), None);
    }
}
