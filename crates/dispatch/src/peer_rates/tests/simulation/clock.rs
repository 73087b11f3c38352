//! Clocks that run within 1% of the time, each from an origin of its own.

use std::time::Duration;

use sherwood_model::Instant;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The start of the process, and what its clock shows then.
    pub(super) started_at: Instant,
    pub(super) origin: Instant,
    /// Speed of the clock, in millionths of the time's.
    pub(super) speed: u64,
}

const MILLION: u64 = 1_000_000;

impl Clock {
    /// Returns what the clock shows at a time.
    pub(super) fn shows(&self, at: Instant) -> Instant {
        let passed = u128::from((at - self.started_at).as_nanos() as u64) * u128::from(self.speed);
        self.origin + Duration::from_nanos((passed / u128::from(MILLION)) as u64)
    }

    /// Returns the first time at which the clock shows at least `shown`.
    pub(super) fn time_of(&self, shown: Instant) -> Instant {
        let passed = u128::from((shown - self.origin).as_nanos() as u64) * u128::from(MILLION);
        self.started_at + Duration::from_nanos(passed.div_ceil(u128::from(self.speed)) as u64)
    }
}
