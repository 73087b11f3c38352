//! Service level objectives and the count of their violations.

use std::time::Duration;

use crate::{Instant, RequestSnapshot};

/// A service level objective: the `percentile` of request latency over the last `window` is at most
/// `bound`, checked every `observe`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// Percentile of request latency that is limited, 0 to 100.
    pub percentile: f64,
    /// Largest latency that meets the SLO.
    pub bound: Duration,
    /// Time span over which the percentile is computed.
    pub window: Duration,
    /// Time between observations.
    pub observe: Duration,
}

/// Counts observations of an [`Slo`] and those that violated it.
///
/// A check that finds no request in the window is not counted: it neither meets nor violates the
/// SLO.
#[derive(Clone, Debug)]
pub struct SloMonitor {
    slo: Slo,
    due: Instant,
    standing: SloStanding,
}

/// Counts of an SLO's observations and violations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SloStanding {
    /// Latency at the SLO's percentile in the last observation.
    pub current: Option<Duration>,
    /// Largest latency at the SLO's percentile of all observations.
    pub max: Option<Duration>,
    /// Number of observations made.
    pub observations: u64,
    /// Number of observations whose latency was above the SLO's bound.
    pub violations: u64,
}

impl SloStanding {
    /// Share of the observations that violated the SLO, 0 to 1; 0 before the first.
    #[must_use]
    pub fn violation_ratio(&self) -> f64 {
        if self.observations == 0 { 0.0 } else { self.violations as f64 / self.observations as f64 }
    }
}

impl SloMonitor {
    /// Returns a monitor whose first observation is due one `observe` after `now`.
    #[must_use]
    pub fn new(slo: Slo, now: Instant) -> Self {
        Self { slo, due: now + slo.observe, standing: SloStanding::default() }
    }

    /// The monitored SLO.
    #[must_use]
    pub fn slo(&self) -> Slo {
        self.slo
    }

    /// Time of the next observation of the SLO.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Observes if an observation is due and returns the percentile; none if no observation is due
    /// or the window holds no request. `requests` returns the requests of the last given duration.
    /// Missed observations are skipped: the next one is due one `observe` after the scheduled time,
    /// or after `now` if that has passed as well.
    pub fn observe(
        &mut self,
        now: Instant,
        requests: impl FnOnce(Duration) -> RequestSnapshot,
    ) -> Option<Duration> {
        if now < self.due {
            return None;
        }
        let next = self.due + self.slo.observe;
        self.due = if next > now { next } else { now + self.slo.observe };
        let seen = requests(self.slo.window).quantile(self.slo.percentile / 100.0)?;
        let standing = &mut self.standing;
        standing.current = Some(seen);
        standing.max = standing.max.max(Some(seen));
        standing.observations += 1;
        standing.violations += u64::from(seen > self.slo.bound);
        Some(seen)
    }

    /// The counts of observations and violations so far.
    #[must_use]
    pub fn standing(&self) -> SloStanding {
        self.standing
    }

    /// Resets the counts of observations and violations, for a measurement that starts now.
    pub fn restart(&mut self, now: Instant) {
        *self = Self::new(self.slo, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendId, FinishedRequest, RequestWindow, WindowOptions};

    const SLO: Slo = Slo {
        percentile: 99.0,
        bound: Duration::from_millis(150),
        window: Duration::from_secs(60),
        observe: Duration::from_secs(5),
    };

    #[test]
    fn latency_percentile_above_the_slo_bound_is_a_violation() {
        let mut window = RequestWindow::new(WindowOptions::of(SLO.window));
        let mut monitor = SloMonitor::new(SLO, Instant::ZERO);
        let at = Instant::from_secs(5);
        assert_eq!(
            monitor.observe(at, |last| window.snapshot(at, last)),
            None,
            "an empty window is not an observation"
        );
        let slow = FinishedRequest::new(Duration::from_millis(151), Some(BackendId(0)));
        window.record(at, at, slow);
        assert_eq!(monitor.observe(at, |last| window.snapshot(at, last)), None, "not due yet");
        assert_eq!(
            monitor.observe(Instant::from_secs(10), |last| window.snapshot(Instant::from_secs(10), last)),
            Some(Duration::from_millis(151))
        );
        assert_eq!(
            monitor.observe(Instant::from_secs(80), |last| window.snapshot(Instant::from_secs(80), last)),
            None,
            "the request has left the window"
        );
        let SloStanding { observations, violations, .. } = monitor.standing();
        assert_eq!((observations, violations), (1, 1));
        assert!((monitor.standing().violation_ratio() - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn latency_percentile_equal_to_the_slo_bound_is_no_violation() {
        let mut window = RequestWindow::new(WindowOptions::of(SLO.window));
        let mut monitor = SloMonitor::new(SLO, Instant::ZERO);
        let at = Instant::from_secs(5);
        window.record(at, at, FinishedRequest::new(SLO.bound, None));
        assert!(monitor.observe(at, |last| window.snapshot(at, last)).is_some());
        assert_eq!(monitor.standing().violations, 0);
    }

    #[test]
    fn missed_slo_observations_are_skipped() {
        let mut window = RequestWindow::new(WindowOptions::of(SLO.window));
        let mut monitor = SloMonitor::new(SLO, Instant::ZERO);
        let late = Instant::from_secs(58);
        window.record(late, late, FinishedRequest::new(Duration::ZERO, None));
        assert!(monitor.observe(late, |last| window.snapshot(late, last)).is_some());
        assert_eq!(monitor.observe(late, |last| window.snapshot(late, last)), None);
        assert_eq!(monitor.due(), Instant::from_secs(63));
    }
}
