//! The end of one key of a request.

use std::time::Duration;

use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, Instant};

/// The answer for one key, borrowed from its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a, V> {
    /// Outcome of the key, such as a hit or a timeout.
    pub status: Status,
    /// The value of a [`Status::Hit`], [`Status::Stale`] or [`Status::Miss`].
    pub value: Option<&'a V>,
    /// Time from the request's arrival to the end of the key.
    pub latency: Duration,
    /// True if the key ended later than the look-up in the cache.
    pub waited: bool,
    /// The demand of the key's query.
    pub demand: &'a Demand,
    /// True if the query has a deadline and the key ended after it, with a value or without.
    pub late: bool,
    /// Time for which the value of a [`Status::Stale`] had been past its lifetime when the key
    /// ended.
    pub stale_for: Option<Duration>,
    /// The reason why there is no value, for a [`Status::Rejected`], [`Status::Timeout`] or
    /// [`Status::Error`].
    pub error: Option<&'a FetchError>,
}

/// Outcomes of one key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The cache had a fresh value.
    Hit,
    /// The cache had a stale value, and the query accepted it.
    Stale,
    /// The backend returned the value.
    Miss,
    /// The backend has no value, by its answer or by a cached answer.
    NotFound,
    /// The dispatcher refused the fetch because one of its bounds was reached, or because of the
    /// tenant's rate or of its admission rule; for the latter, [`FetchError::expected`] is the time
    /// that an answer would have taken.
    Rejected,
    /// The backend did not answer in time.
    Timeout,
    /// The backend failed, or is known to be down.
    Error,
}

impl Status {
    /// Returns the outcome of a key whose fetch has ended with `error`.
    #[must_use]
    pub const fn of_error(error: &FetchError) -> Self {
        match error {
            FetchError::Timeout { .. } => Self::Timeout,
            FetchError::Overloaded { .. }
            | FetchError::OverRate(_)
            | FetchError::Rejected { .. }
            | FetchError::NotAdmitted { .. } => Self::Rejected,
            FetchError::Unavailable { .. } | FetchError::Failed { .. } => Self::Error,
        }
    }

    /// Returns true if the key ended without an answer, which counts as a failure of the request.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Hit | Self::Stale | Self::Miss | Self::NotFound => false,
            Self::Rejected | Self::Timeout | Self::Error => true,
        }
    }
}

/// The keys of one query that ended with the same latency, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyGroup {
    /// The backend of the query.
    pub backend: BackendId,
    /// Time from the request's arrival to the end of these keys.
    pub latency: Duration,
    /// Keys that were fresh in the cache.
    pub hits: u64,
    /// Number of keys, at least one.
    pub keys: u64,
}

/// The end of a key, in compact form: most keys are hits, which share one end time, and the larger
/// variants are boxed.
#[derive(Clone, Debug)]
pub(crate) enum End<V> {
    Hit(V),
    /// The cache has recorded that the key has no value.
    Absent,
    Stale(Box<Stale<V>>),
    Miss {
        value: V,
        at: Instant,
    },
    NotFound {
        at: Instant,
    },
    Failed(Box<Failed>),
}

/// A stale value that answers a key.
#[derive(Clone, Debug)]
pub(crate) struct Stale<V> {
    pub(crate) value: V,
    /// Time at which the value became stale.
    pub(crate) since: Instant,
    /// Time at which the key ended.
    pub(crate) at: Instant,
}

/// The error of a key without a value, and its time.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    error: FetchError,
    at: Instant,
}

impl<V> End<V> {
    /// Returns the end of a key whose fetch had this `result` at `at`.
    pub(crate) fn fetched(result: Result<Option<V>, FetchError>, at: Instant) -> Self {
        match result {
            Ok(Some(value)) => Self::Miss { value, at },
            Ok(None) => Self::NotFound { at },
            Err(error) => Self::Failed(Box::new(Failed { error, at })),
        }
    }

    pub(crate) const fn is_hit(&self) -> bool {
        matches!(self, Self::Hit(_) | Self::Absent)
    }

    /// Returns the time at which the key ended, in a request whose hits ended at `hits_at`.
    pub(crate) fn at(&self, hits_at: Instant) -> Instant {
        match self {
            Self::Hit(_) | Self::Absent => hits_at,
            Self::Stale(stale) => stale.at,
            Self::Miss { at, .. } | Self::NotFound { at } => *at,
            Self::Failed(failed) => failed.at,
        }
    }

    /// Returns the answer for the key of a query with this `demand`, in a request that arrived at
    /// `started` and whose hits ended at `hits_at`.
    pub(crate) fn answer<'a>(
        &'a self,
        started: Instant,
        hits_at: Instant,
        demand: &'a Demand,
    ) -> Answer<'a, V> {
        let (status, value, error) = match self {
            Self::Hit(value) => (Status::Hit, Some(value), None),
            Self::Stale(stale) => (Status::Stale, Some(&stale.value), None),
            Self::Miss { value, .. } => (Status::Miss, Some(value), None),
            Self::Absent | Self::NotFound { .. } => (Status::NotFound, None, None),
            Self::Failed(failed) => (Status::of_error(&failed.error), None, Some(&failed.error)),
        };
        let (waited, stale_for) = match self {
            Self::Hit(_) | Self::Absent => (false, None),
            Self::Stale(stale) => (stale.at > hits_at, Some(stale.at - stale.since)),
            Self::Miss { .. } | Self::NotFound { .. } | Self::Failed(_) => (true, None),
        };
        let at = self.at(hits_at);
        let late = demand.is_late(started, at);
        Answer { status, value, latency: at - started, waited, demand, late, stale_for, error }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sherwood_dispatch::{Bound, FailureKind, TenantRefusal};

    use super::*;

    #[test]
    fn every_fetch_error_has_a_status() {
        let status = |error: FetchError| {
            let end = End::<()>::fetched(Err(error.clone()), Instant::from_millis(5));
            let demand = Demand { deadline: Some(Instant::from_millis(4)), ..Demand::default() };
            let answer = end.answer(Instant::from_millis(3), Instant::ZERO, &demand);
            assert!(answer.late);
            assert_eq!((answer.value, answer.error), (None, Some(&error)));
            assert_eq!(answer.latency, Duration::from_millis(2));
            assert!(answer.status.is_failure());
            answer.status
        };
        let reason = || Arc::from("gone");
        assert_eq!(status(FetchError::Timeout { timeout: Duration::from_secs(1) }), Status::Timeout);
        assert_eq!(status(FetchError::Overloaded { bound: Bound::Waiters, limit: 1 }), Status::Rejected);
        assert_eq!(status(FetchError::NotAdmitted { replicas: 1 }), Status::Rejected);
        assert_eq!(status(FetchError::Rejected { expected: Duration::from_secs(1) }), Status::Rejected);
        assert_eq!(status(FetchError::Unavailable { replicas: 1, reason: reason() }), Status::Error);
        let refusal = TenantRefusal::TooLate { starts_in: Duration::from_secs(1) };
        assert_eq!(status(FetchError::OverRate(refusal)), Status::Rejected);
        let failed = FetchError::Failed { kind: FailureKind::Reset, reason: reason(), attempts: 1 };
        assert_eq!(status(failed), Status::Error);
    }
}
