//! The clock from which a listener reads monotonic and wall time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_model::Instant;

/// A monotonic clock with the wall time, in which clients give expiry times.
pub trait Clock: Send + Sync {
    /// Returns the monotonic time, in which the cache keeps its times.
    fn now(&self) -> Instant;

    /// Returns the wall time, since 1970, at the monotonic time `at`.
    fn unix(&self, at: Instant) -> Duration;

    /// Returns the monotonic time of a wall time; the clock's origin if the wall time lies before
    /// it.
    fn at_unix(&self, unix: Duration) -> Instant;

    /// Returns the processor time of the process so far; zero where it is unknown.
    fn cpu_times(&self) -> CpuTimes {
        CpuTimes::default()
    }

    /// Returns the monotonic and the wall time now.
    fn moment(&self) -> Moment {
        let now = self.now();
        Moment { now, unix_secs: self.unix(now).as_secs() }
    }
}

/// Processor time of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time spent in the program's own code.
    pub user: Duration,
    /// Time spent in the kernel on behalf of the program.
    pub system: Duration,
}

/// A moment, in monotonic time and in wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The monotonic time of the moment.
    pub now: Instant,
    /// The wall time of the moment in whole seconds since 1970.
    pub unix_secs: u64,
}

/// A clock that stands still until it is set, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    nanos: AtomicU64,
    origin_unix: Duration,
}

impl ManualClock {
    /// Creates a clock that shows `now`, with the wall time `origin_unix` at [`Instant::ZERO`].
    #[must_use]
    pub fn new(now: Instant, origin_unix: Duration) -> Self {
        Self { nanos: AtomicU64::new(now.as_nanos()), origin_unix }
    }

    /// Sets the monotonic time; the wall time follows.
    pub fn set(&self, now: Instant) {
        self.nanos.store(now.as_nanos(), Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Relaxed))
    }

    fn unix(&self, at: Instant) -> Duration {
        self.origin_unix + at.since(Instant::ZERO)
    }

    fn at_unix(&self, unix: Duration) -> Instant {
        Instant::ZERO + unix.saturating_sub(self.origin_unix)
    }
}
