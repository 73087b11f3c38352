//! What remains of a request when it has ended: how long its user waited, and for whom.

use std::time::Duration;

use crate::BackendId;

/// A finished request as it is kept: its latency and its blocking backend, 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// Microseconds from arrival to the end of the last query, saturating at `u32::MAX` (71 minutes).
    pub latency_us: u32,
    /// Backend of the slowest query, or none for a request without queries, which shifts percentiles but blames nobody.
    pub blocking: Option<BackendId>,
}

impl FinishedRequest {
    /// A request that took `latency` and was blocked by `blocking`.
    #[must_use]
    pub fn new(latency: Duration, blocking: Option<BackendId>) -> Self {
        Self { latency_us: u32::try_from(latency.as_micros()).unwrap_or(u32::MAX), blocking }
    }
}

/// How one query of a request ended, as far as the request's latency is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryEnd {
    /// Who was asked.
    pub backend: BackendId,
    /// Time from the *request's* arrival until the query's last key ended.
    pub latency: Duration,
    /// The backend's time-out when a key of the query failed or was refused and the query was not best effort.
    pub failed: Option<Duration>,
}

/// Folds the ends of a request's queries, in the order they ended, into a [`FinishedRequest`].
///
/// The blocking backend is that of the slowest query; among equals the first to end. A failed query counts at its
/// backend's time-out or its real latency, whichever is larger, so that failures never make the tail look better.
///
/// ```
/// use sherwood_model::{BackendId, QueryEnd, RequestEnd};
/// use std::time::Duration;
/// let ms = Duration::from_millis;
/// let mut end = RequestEnd::default();
/// end.add(QueryEnd { backend: BackendId(0), latency: ms(30), failed: None });
/// end.add(QueryEnd { backend: BackendId(1), latency: ms(2), failed: Some(ms(500)) });
/// let request = end.finish(ms(30));
/// assert_eq!((request.latency_us, request.blocking), (500_000, Some(BackendId(1))));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestEnd {
    slowest: Option<(Duration, BackendId)>,
}

impl RequestEnd {
    /// Takes note of one more query that ended.
    pub fn add(&mut self, query: QueryEnd) {
        let QueryEnd { backend, latency, failed } = query;
        let counted = latency.max(failed.unwrap_or_default());
        if self.slowest.is_none_or(|(slowest, _)| counted > slowest) {
            self.slowest = Some((counted, backend));
        }
    }

    /// The finished request, given the time from its arrival to its end.
    #[must_use]
    pub fn finish(self, elapsed: Duration) -> FinishedRequest {
        match self.slowest {
            Some((slowest, backend)) => FinishedRequest::new(slowest.max(elapsed), Some(backend)),
            None => FinishedRequest::new(elapsed, None),
        }
    }
}
