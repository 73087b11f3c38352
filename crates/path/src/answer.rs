//! How one key ended.

use std::time::Duration;

use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Instant};

/// The end of one key, as its request keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a, V> {
    /// Which end.
    pub status: Status,
    /// The value of a [`Status::Hit`], [`Status::Stale`] or [`Status::Miss`].
    pub value: Option<&'a V>,
    /// Time from the request's arrival to this end.
    pub latency: Duration,
    /// Whether it was waited for: it did not end with the look-up.
    pub waited: bool,
    /// How long past its freshness the value of a [`Status::Stale`] was at this end.
    pub stale_for: Option<Duration>,
    /// Why there is no value, of a [`Status::Rejected`], [`Status::Timeout`] or [`Status::Error`].
    pub error: Option<&'a FetchError>,
}

/// The ways a key can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The cache had it.
    Hit,
    /// The cache had it, no longer fresh, and its query took it.
    Stale,
    /// The backend had it.
    Miss,
    /// The backend says that it does not exist, or has said so a while ago.
    NotFound,
    /// It was refused for want of room, and the backend was not asked.
    Rejected,
    /// The backend did not answer in time.
    Timeout,
    /// The backend failed, or is known to be down.
    Error,
}

impl Status {
    /// Whether the key ended without an answer, which counts against the request.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Hit | Self::Stale | Self::Miss | Self::NotFound => false,
            Self::Rejected | Self::Timeout | Self::Error => true,
        }
    }
}

/// Keys of one query that ended after the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// The query's backend.
    pub backend: BackendId,
    /// Time from the request's arrival to their end.
    pub latency: Duration,
    /// Those of `keys` that were in the cache and fresh.
    pub hits: u64,
    /// How many they are, at least one.
    pub keys: u64,
}

/// How a key ended, in little room: most are hits, which all end at one time, and the few others
/// have their memory elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum End<V> {
    Hit(V),
    /// The cache has the word that there is no value.
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

/// A value no longer fresh.
#[derive(Clone, Debug)]
pub(crate) struct Stale<V> {
    pub(crate) value: V,
    /// Since when it is not.
    pub(crate) since: Instant,
    /// When the key ended.
    pub(crate) at: Instant,
}

/// Why a key has no value, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    error: FetchError,
    at: Instant,
}

impl<V> End<V> {
    /// The end of a key whose fetch had this `result` at `at`.
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

    /// When it ended, in a request whose hits ended at `hits_at`.
    pub(crate) fn at(&self, hits_at: Instant) -> Instant {
        match self {
            Self::Hit(_) | Self::Absent => hits_at,
            Self::Stale(stale) => stale.at,
            Self::Miss { at, .. } | Self::NotFound { at } => *at,
            Self::Failed(failed) => failed.at,
        }
    }

    /// What its request answers, that arrived at `started` and whose hits ended at `hits_at`.
    pub(crate) fn answer(&self, started: Instant, hits_at: Instant) -> Answer<'_, V> {
        let (status, value, error) = match self {
            Self::Hit(value) => (Status::Hit, Some(value), None),
            Self::Stale(stale) => (Status::Stale, Some(&stale.value), None),
            Self::Miss { value, .. } => (Status::Miss, Some(value), None),
            Self::Absent | Self::NotFound { .. } => (Status::NotFound, None, None),
            Self::Failed(failed) => (status_of(&failed.error), None, Some(&failed.error)),
        };
        let (waited, stale_for) = match self {
            Self::Hit(_) | Self::Absent => (false, None),
            Self::Stale(stale) => (stale.at > hits_at, Some(stale.at - stale.since)),
            Self::Miss { .. } | Self::NotFound { .. } | Self::Failed(_) => (true, None),
        };
        Answer { status, value, latency: self.at(hits_at) - started, waited, stale_for, error }
    }
}

fn status_of(error: &FetchError) -> Status {
    match error {
        FetchError::Timeout { .. } => Status::Timeout,
        FetchError::Overloaded { .. } | FetchError::NotAdmitted { .. } => Status::Rejected,
        FetchError::Unavailable { .. } | FetchError::Failed { .. } => Status::Error,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sherwood_dispatch::{Bound, FailureKind};

    use super::*;

    #[test]
    fn every_error_has_a_status() {
        let status = |error: FetchError| {
            let end = End::<()>::fetched(Err(error.clone()), Instant::from_millis(5));
            let answer = end.answer(Instant::from_millis(3), Instant::ZERO);
            assert_eq!((answer.value, answer.error), (None, Some(&error)));
            assert_eq!(answer.latency, Duration::from_millis(2));
            assert!(answer.status.is_failure());
            answer.status
        };
        let reason = || Arc::from("gone");
        assert_eq!(status(FetchError::Timeout { timeout: Duration::from_secs(1) }), Status::Timeout);
        assert_eq!(status(FetchError::Overloaded { bound: Bound::Waiters, limit: 1 }), Status::Rejected);
        assert_eq!(status(FetchError::NotAdmitted { replicas: 1 }), Status::Rejected);
        assert_eq!(status(FetchError::Unavailable { replicas: 1, reason: reason() }), Status::Error);
        let failed = FetchError::Failed { kind: FailureKind::Reset, reason: reason(), attempts: 1 };
        assert_eq!(status(failed), Status::Error);
    }
}
