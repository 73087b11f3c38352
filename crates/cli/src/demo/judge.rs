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
    /// When counting begins; none once it has.
    warm_up: Option<Duration>,
    end: Duration,
    curve: VecDeque<(Duration, Duration)>,
    requests: u64,
    errors: u64,
}

impl Judge {
    /// A judge of a run whose observations count from `warm_up` on, for `measured`; those before are for the curve only,
    /// and afterwards, while the last requests end, there are none.
    pub(crate) fn new(slo: Slo, warm_up: Duration, measured: Duration) -> Self {
        Self {
            end: warm_up + measured,
            window: RequestWindow::new(WindowOptions::of(slo.window)),
            monitor: SloMonitor::new(slo, at(Duration::ZERO)),
            warm_up: Some(warm_up),
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

    /// The percentile now, whether an observation is due or not.
    fn current(&self, elapsed: Duration) -> Option<Duration> {
        let slo = self.monitor.slo();
        self.window.snapshot(at(elapsed), slo.window).quantile(slo.percentile / 100.0)
    }

    /// How the SLO has fared since the warm-up.
    pub(crate) fn standing(&self) -> SloStanding {
        match self.warm_up {
            Some(_) => SloStanding::default(),
            None => self.monitor.standing(),
        }
    }

    /// All that is shown of it, copied, so that nobody else has to wait while the rest of the picture is put together.
    pub(crate) fn seen(&self, elapsed: Duration) -> Seen {
        Seen {
            current: self.current(elapsed),
            curve: self.curve.iter().copied().collect(),
            violation_ratio: self.standing().violation_ratio(),
            requests: (self.requests, self.errors),
        }
    }
}

/// What a judge has seen by one moment.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The SLO's percentile now.
    pub(crate) current: Option<Duration>,
    /// The observations, oldest first: when, and the percentile seen.
    pub(crate) curve: Vec<(Duration, Duration)>,
    /// Share of the observations since the warm-up that violated the SLO.
    pub(crate) violation_ratio: f64,
    /// Requests that ended, and those of them that failed.
    pub(crate) requests: (u64, u64),
}

fn at(elapsed: Duration) -> Instant {
    // An hour on, so that the first windows reach back to before the start.
    Instant::from_secs(3_600) + elapsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_is_shown_and_not_counted() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let slo = Slo { percentile: 99.0, bound: ms(150), window: s(2), observe: s(1) };
        let mut judge = Judge::new(slo, s(10), s(3_600));
        (0..100).for_each(|i| judge.finished(ms(i * 100), ms(500), false));
        assert_eq!(judge.standing(), SloStanding::default());
        assert_eq!(judge.seen(s(10)).curve.len(), 9, "one a second, from the first second on");
        (100..200).for_each(|i| judge.finished(ms(i * 100), ms(if i < 120 { 500 } else { 1 }), false));
        let SloStanding { observations, violations, .. } = judge.standing();
        assert_eq!(
            (observations, violations),
            (9, 3),
            "two slow seconds, and one more in whose window they lie"
        );
        assert_eq!(judge.seen(s(20)).requests, (200, 0));
    }
}
