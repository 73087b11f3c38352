//! Compression of the scenario's three hours.

use std::time::Duration;

use sherwood_model::Slo;
use sherwood_workload::onerf;

/// Length of the measured part of `onerf-spikes`.
const MEASURED: Duration = Duration::from_secs(180 * 60);
/// The scenario's warm-up, without limits.
const WARM_UP: Duration = Duration::from_secs(60 * 60);
/// The control interval of RobinHood's paper; also its SLO's observation step.
const DELTA: Duration = Duration::from_secs(5);
/// The window over which the SLO's percentile is taken, and requests are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The scenario's times divided by a common factor. Service times, request rates and the policies'
/// tax are those of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    /// Divisor of the scenario's times.
    pub(crate) factor: f64,
    /// Measured time of one policy.
    pub(crate) measured: Duration,
    /// Time before the measurement, without limits.
    pub(crate) warm_up: Duration,
    /// Time between decisions, and between observations of the SLO.
    pub(crate) delta: Duration,
    /// Window in which the SLO's percentile is taken and requests blocked by each backend are
    /// counted.
    pub(crate) window: Duration,
}

impl Times {
    /// Computes the times of a run whose measured part takes `measured`.
    pub(crate) fn of(measured: Duration) -> Self {
        let factor = MEASURED.as_secs_f64() / measured.as_secs_f64();
        let scaled = |time: Duration| time.div_f64(factor);
        Self { factor, measured, warm_up: scaled(WARM_UP), delta: scaled(DELTA), window: scaled(WINDOW) }
    }

    /// Minute of the scenario at the time `elapsed` since the start of the run; negative during the
    /// warm-up.
    pub(crate) fn minute(&self, elapsed: Duration) -> f64 {
        (elapsed.as_secs_f64() - self.warm_up.as_secs_f64()) * self.factor / 60.0
    }

    /// The workload's SLO over the compressed window.
    pub(crate) fn slo(&self, slo: &onerf::Slo) -> Slo {
        Slo { percentile: slo.percentile, bound: bound(slo), window: self.window, observe: self.delta }
    }
}

/// The SLO's latency bound; like service times it is not compressed.
pub(crate) fn bound(slo: &onerf::Slo) -> Duration {
    Duration::from_secs_f64(slo.limit_ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_of_five_minutes_compresses_three_hours_by_36() {
        let times = Times::of(Duration::from_secs(300));
        assert!((times.factor - 36.0).abs() < 1e-9);
        assert_eq!(times.warm_up, Duration::from_secs(100));
        assert_eq!(times.delta, Duration::from_secs(5).div_f64(36.0));
        assert!((times.minute(Duration::from_secs(100))).abs() < 1e-9);
        assert!((times.minute(Duration::from_secs(400)) - 180.0).abs() < 1e-9);
    }
}
