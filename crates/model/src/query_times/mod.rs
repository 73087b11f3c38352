//! Times of queries by partition, operation and outcome, as histograms of bounded number.
//!
//! Each thread writes histograms of its own with a [`Recorder`], while others read them without a
//! lock. Those of one [`QueryTimes`] have at most [`KINDS_MAX`] kinds of query together, so that
//! neither memory nor the number of time series that a monitoring system keeps depends on the
//! number of partitions.

mod histogram;
mod kinds;
mod recorder;
mod sampling;

pub use histogram::{CLASSIC_BOUNDS_NS, LatencyHistogram, NativeBuckets};
pub use kinds::KINDS_MAX;
pub use recorder::{QueryTimes, Recorder};
pub use sampling::Sampling;

use crate::PartitionId;

/// The kinds of operation that times are distinguished by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Reads a value.
    Get,
    /// Stores a value.
    Set,
    /// Removes a value.
    Delete,
    /// Changes a value, or the time at which it expires.
    Other,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Get, Self::Set, Self::Delete, Self::Other];

    /// Returns the operation's name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Other => "other",
        }
    }
}

/// Outcomes of a query for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryOutcome {
    /// The cache had the key.
    Hit,
    /// The cache did not have the key, and no backend was asked for it.
    Miss,
    /// The backend returned the value.
    Fetched,
    /// The backend has no value.
    NotFound,
    /// The cache had a stale value, which was returned.
    Stale,
    /// The value was stored in the cache.
    Stored,
    /// The value was not stored, since the present one did not allow it.
    NotStored,
    /// The backend acknowledged the write.
    Written,
    /// A bound, a rate or an admission rule refused the query.
    Rejected,
    /// The backend did not answer in time.
    Timeout,
    /// The backend failed, or is known to be down.
    Error,
}

impl QueryOutcome {
    /// All outcomes.
    pub const ALL: [Self; 11] = [
        Self::Hit,
        Self::Miss,
        Self::Fetched,
        Self::NotFound,
        Self::Stale,
        Self::Stored,
        Self::NotStored,
        Self::Written,
        Self::Rejected,
        Self::Timeout,
        Self::Error,
    ];

    /// Returns the outcome's name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Fetched => "fetched",
            Self::NotFound => "not_found",
            Self::Stale => "stale",
            Self::Stored => "stored",
            Self::NotStored => "not_stored",
            Self::Written => "written",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

/// The time that is measured of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryTime {
    /// Time for which keys waited until their call to a backend began.
    Queued,
    /// Time until the query ended with this outcome.
    Ended(QueryOutcome),
}

/// A kind of query, whose times are in one histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryKind {
    /// The partition of the keys; none for those of several, because their own histograms would be
    /// too many.
    pub partition: Option<PartitionId>,
    /// The operation on the keys.
    pub operation: Operation,
    /// The time that is measured.
    pub time: QueryTime,
}

impl QueryKind {
    /// Returns the kind of queries for keys of `partition` that end with `outcome`.
    #[must_use]
    pub const fn ended(partition: PartitionId, operation: Operation, outcome: QueryOutcome) -> Self {
        Self { partition: Some(partition), operation, time: QueryTime::Ended(outcome) }
    }

    /// Returns the kind of waits for a call with keys of `partition`.
    #[must_use]
    pub const fn queued(partition: PartitionId, operation: Operation) -> Self {
        Self { partition: Some(partition), operation, time: QueryTime::Queued }
    }
}
