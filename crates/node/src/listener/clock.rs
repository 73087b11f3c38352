//! The machine's clock, read once per batch of input.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sherwood_model::Instant;

/// The clock of a node: our [`Instant`] since its origin, and the Unix time.
///
/// All parts of a node that share a cache share one clock, because items carry its instants.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
    origin_unix: Duration,
}

/// A moment as the memcached protocol needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For the cache.
    pub now: Instant,
    /// For expiry times that are dates: seconds since 1970.
    pub unix_secs: u64,
}

impl Clock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn start() -> Self {
        let origin_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: std::time::Instant::now(), origin_unix }
    }

    /// Now. The Unix time follows the monotonic clock from the origin on, so a step of the system's clock while the node
    /// runs moves no expiry.
    #[must_use]
    pub fn now(&self) -> Moment {
        let elapsed = self.origin.elapsed();
        Moment { now: Instant::ZERO + elapsed, unix_secs: (self.origin_unix + elapsed).as_secs() }
    }
}
