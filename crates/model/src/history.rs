//! The recent past of a node: readings of its state become points of two series, a fine one for
//! minutes and a coarse one for an hour.
//!
//! A node has a reading taken every [`FINE_STEP`]. A point has the differences of the counters
//! since the previous point, and the values of everything else at its end. Memory is bounded: a
//! point keeps the [`SERIES_MAX`] most important backends, partitions and tenants by number, which
//! is at most 4.3 KB, and the sum of the others; [`POINTS_MAX`] points of both series take at most
//! 4.5 MB.

mod point;
mod reading;
mod timeline;

use std::time::Duration;

pub use point::{BackendPoint, Largest, Point, SERIES_MAX, SloPoint};
pub use reading::{BackendReading, DeadlineCounters, Percentiles, Reading};
pub use timeline::{Series, Timeline, chosen};

use crate::{BackendId, Instant};

/// Time between the points of the fine series.
pub const FINE_STEP: Duration = Duration::from_secs(1);
/// Points of the fine series: five minutes.
pub const FINE_MAX: usize = 300;
/// Time between the points of the coarse series.
pub const COARSE_STEP: Duration = Duration::from_secs(5);
/// Points of the coarse series: an hour.
pub const COARSE_MAX: usize = 720;
/// Points of both series.
pub const POINTS_MAX: usize = FINE_MAX + COARSE_MAX;

/// Both series of a node.
#[derive(Clone, Debug)]
pub struct History {
    fine: Timeline,
    coarse: Timeline,
}

impl Default for History {
    fn default() -> Self {
        Self { fine: Timeline::new(FINE_STEP, FINE_MAX), coarse: Timeline::new(COARSE_STEP, COARSE_MAX) }
    }
}

impl History {
    /// Adds a reading to the series in which a point is due. `query_p99` returns the P99 of the
    /// latency of a backend's queries; it is asked for the backends that a point keeps.
    pub fn record(&mut self, reading: &Reading, query_p99: impl Fn(BackendId) -> Option<Duration>) {
        self.fine.record(reading, &query_p99);
        self.coarse.record(reading, &query_p99);
    }

    /// The time at which the next reading is due: now, before the first.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.fine.due()
    }

    /// The last five minutes, a point a second.
    #[must_use]
    pub fn fine(&self) -> &Timeline {
        &self.fine
    }

    /// The last hour, a point every five seconds.
    #[must_use]
    pub fn coarse(&self) -> &Timeline {
        &self.coarse
    }
}

#[cfg(test)]
mod tests;
