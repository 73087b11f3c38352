//! How one key ended.

use std::time::Duration;

use sherwood_dispatch::FetchError;

/// The end of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<V> {
    /// Which end.
    pub status: Status,
    /// The value of a [`Status::Hit`] or [`Status::Miss`].
    pub value: Option<V>,
    /// Time from the request's arrival to this end.
    pub latency: Duration,
    /// Why there is no value, of a [`Status::Rejected`], [`Status::Timeout`] or [`Status::Error`].
    pub error: Option<FetchError>,
}

/// The ways a key can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The cache had it.
    Hit,
    /// The backend had it.
    Miss,
    /// The backend says that it does not exist.
    NotFound,
    /// It was refused for want of room, and the backend was not asked.
    Rejected,
    /// The backend did not answer in time.
    Timeout,
    /// The backend failed, or is known to be down.
    Error,
}

impl Status {
    /// Whether the key ended without the backend's word, which counts against the request.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Hit | Self::Miss | Self::NotFound => false,
            Self::Rejected | Self::Timeout | Self::Error => true,
        }
    }
}

impl<V> Answer<V> {
    pub(crate) fn hit(value: V, latency: Duration) -> Self {
        Self { status: Status::Hit, value: Some(value), latency, error: None }
    }

    pub(crate) fn fetched(result: Result<Option<V>, FetchError>, latency: Duration) -> Self {
        match result {
            Ok(Some(value)) => Self { status: Status::Miss, value: Some(value), latency, error: None },
            Ok(None) => Self { status: Status::NotFound, value: None, latency, error: None },
            Err(error) => Self { status: status_of(&error), value: None, latency, error: Some(error) },
        }
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
            let answer = Answer::<()>::fetched(Err(error.clone()), Duration::ZERO);
            assert_eq!((answer.value, answer.error), (None, Some(error)));
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
