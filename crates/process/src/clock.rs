//! The daemon's clocks: monotonic time for decisions, wall time for display.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use sherwood_listener as listener;
use sherwood_model::Instant;

/// Converts the monotonic clock into the pure crates' [`Instant`], and instants into wall time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Difference of [`Instant`] and the system's monotonic clock, nanoseconds, modulo 2^64.
    offset_nanos: u64,
    origin_unix: Duration,
    /// Present time set by a test, in nanoseconds from the origin of [`Instant`]; none if the clock
    /// shows the system's time.
    driven: Option<&'static AtomicU64>,
}

impl Clock {
    /// Starts a clock whose origin is a year back, so that "a minute ago" exists from the first
    /// second on.
    #[must_use]
    pub fn start() -> Self {
        let origin_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = Instant::ZERO + Self::HEAD_START;
        Self { offset_nanos: origin.as_nanos().wrapping_sub(monotonic_nanos()), origin_unix, driven: None }
    }

    /// Creates a clock that shows the value of `nanos`, so that a test sets the time.
    #[must_use]
    pub fn driven(nanos: &'static AtomicU64) -> Self {
        Self { driven: Some(nanos), ..Self::start() }
    }

    const HEAD_START: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The present time, for the pure crates.
    #[must_use]
    pub fn now(&self) -> Instant {
        if let Some(nanos) = self.driven {
            return Instant::from_nanos(nanos.load(Relaxed));
        }
        self.shown_by_system()
    }

    /// Returns the time of the system's clock: one addition, without a duration in between, since
    /// listeners ask in every turn, in a cluster more than once.
    fn shown_by_system(&self) -> Instant {
        Instant::from_nanos(monotonic_nanos().wrapping_add(self.offset_nanos))
    }

    /// Time since the clock was started.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.shown_by_system().since(Instant::ZERO + Self::HEAD_START)
    }

    /// Wall time of `at`, as a duration since 1970.
    #[must_use]
    pub fn unix(&self, at: Instant) -> Duration {
        (self.origin_unix + at.since(Instant::ZERO)).saturating_sub(Self::HEAD_START)
    }

    /// Returns the instant of a wall time; the origin for times before it.
    #[must_use]
    pub fn at_unix(&self, unix: Duration) -> Instant {
        Instant::ZERO + (unix + Self::HEAD_START).saturating_sub(self.origin_unix)
    }
}

/// Returns the system's monotonic clock, nanoseconds, which goes on while the machine is suspended:
/// other nodes count that time, too. The standard library's instants keep seconds and nanoseconds
/// apart, and their difference takes forty instructions, once a turn.
fn monotonic_nanos() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The present wall time, and the instants around it as wall times: intervals between them are
/// exact. Unlike [`Clock::unix`] it follows the system's clock, as the spans of other processes do.
#[derive(Clone, Copy, Debug)]
pub struct WallTime {
    now: Instant,
    wall: SystemTime,
}

impl WallTime {
    /// Reads the system's clock.
    #[must_use]
    pub fn now(clock: &Clock) -> Self {
        Self { now: clock.now(), wall: SystemTime::now() }
    }

    /// Wall time of `at`.
    #[must_use]
    pub fn of(&self, at: Instant) -> SystemTime {
        if at <= self.now { self.wall - (self.now - at) } else { self.wall + (at - self.now) }
    }
}

/// Milliseconds with a fraction, the unit of durations in answers.
pub fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

/// Wall time follows the monotonic clock from the start on, so a step of the system's clock moves
/// no expiry.
impl listener::Clock for Clock {
    fn now(&self) -> Instant {
        self.now()
    }

    fn unix(&self, at: Instant) -> Duration {
        self.unix(at)
    }

    fn at_unix(&self, unix: Duration) -> Instant {
        self.at_unix(unix)
    }

    fn cpu_times(&self) -> listener::CpuTimes {
        crate::cpu::times()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_converts_back_to_the_same_instant() {
        let clock = Clock::start();
        let now = clock.now();
        assert_eq!(clock.at_unix(clock.unix(now)), now);
        let minute = Duration::from_secs(60);
        assert_eq!(clock.at_unix(clock.unix(now) - minute), now - minute);
    }
}
