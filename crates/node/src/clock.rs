//! The daemon's clocks: one for decisions, one for people.

#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant as Monotonic, SystemTime, UNIX_EPOCH};

use sherwood_model::Instant;

use sherwood_listener as listener;

/// Turns the machine's monotonic clock into the pure rooms' [`Instant`], and back into wall time
/// for people.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Monotonic,
    origin_unix: Duration,
    /// Nanoseconds from the pure rooms' origin, where a test is what moves the clock.
    #[cfg(test)]
    driven: Option<&'static AtomicU64>,
}

impl Clock {
    /// A clock whose origin lies a year back, so that "a minute ago" exists from the first second
    /// on.
    #[must_use]
    pub fn start() -> Self {
        let origin_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            origin: Monotonic::now(),
            origin_unix,
            #[cfg(test)]
            driven: None,
        }
    }

    /// A clock that shows what was last written into `nanos`.
    #[cfg(test)]
    pub(crate) fn driven(nanos: &'static AtomicU64) -> Self {
        Self { driven: Some(nanos), ..Self::start() }
    }

    const HEAD_START: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Now, for the pure rooms.
    #[must_use]
    pub fn now(&self) -> Instant {
        #[cfg(test)]
        if let Some(nanos) = self.driven {
            return Instant::from_nanos(nanos.load(Relaxed));
        }
        Instant::ZERO + Self::HEAD_START + self.origin.elapsed()
    }

    /// Time since the clock was started.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Wall time of `at`, as a duration since 1970.
    #[must_use]
    pub fn unix(&self, at: Instant) -> Duration {
        (self.origin_unix + at.since(Instant::ZERO)).saturating_sub(Self::HEAD_START)
    }

    /// The moment of a wall time; what lies before the clock's origin by more than a year is the
    /// origin.
    #[must_use]
    pub fn at_unix(&self, unix: Duration) -> Instant {
        Instant::ZERO + (unix + Self::HEAD_START).saturating_sub(self.origin_unix)
    }
}

/// Milliseconds with a fraction, as answers show durations.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

/// The wall time follows the monotonic clock from the start on, so a step of the system's clock
/// while the node runs moves no expiry.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_and_back() {
        let clock = Clock::start();
        let now = clock.now();
        assert_eq!(clock.at_unix(clock.unix(now)), now);
        let minute = Duration::from_secs(60);
        assert_eq!(clock.at_unix(clock.unix(now) - minute), now - minute);
    }
}
