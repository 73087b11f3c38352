//! Latency and blocking backend of a finished request.

use std::time::Duration;

use crate::{BackendId, TenantId};

/// A finished request in 8 bytes: its tenant, its latency, and its blocking backend, that of its
/// slowest query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// Microseconds from arrival to the end of the last query, saturating at `u32::MAX` (71
    /// minutes).
    pub latency_us: u32,
    /// Tenant that sent the request; tenant 0 where there is one.
    pub tenant: TenantId,
    /// Id of the blocking backend, or [`NO_BACKEND`]: an `Option` would take two bytes more.
    blocking: u16,
}

/// Id that stands for no backend; a node has at most 4,096.
const NO_BACKEND: u16 = u16::MAX;

impl FinishedRequest {
    /// Returns a request of tenant 0 that took `latency` and whose slowest query was to `blocking`.
    #[must_use]
    pub fn new(latency: Duration, blocking: Option<BackendId>) -> Self {
        Self::of_micros(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX), blocking)
    }

    /// Returns a request of tenant 0 that took `latency_us` microseconds and whose slowest query
    /// was to `blocking`.
    #[must_use]
    pub fn of_micros(latency_us: u32, blocking: Option<BackendId>) -> Self {
        let blocking = blocking.map_or(NO_BACKEND, |backend| backend.0);
        Self { latency_us, tenant: TenantId(0), blocking }
    }

    /// Returns the request as one of `tenant`.
    #[must_use]
    pub fn of(self, tenant: TenantId) -> Self {
        Self { tenant, ..self }
    }

    /// Returns the request with the ids that `tenant` and `blocking` have elsewhere.
    #[must_use]
    pub fn with(self, tenant: TenantId, blocking: Option<BackendId>) -> Self {
        Self { tenant, ..Self::of_micros(self.latency_us, blocking) }
    }

    /// Backend of the slowest query, as computed by [`RequestEnd`]. None for a request without
    /// queries, which counts in percentiles but for no backend.
    #[must_use]
    pub fn blocking(self) -> Option<BackendId> {
        (self.blocking != NO_BACKEND).then_some(BackendId(self.blocking))
    }
}

/// The end of one query of a request, as far as the request's latency is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryEnd {
    /// Backend that was queried.
    pub backend: BackendId,
    /// Time from the *request's* arrival to the end of the query's last key.
    pub latency: Duration,
    /// The backend's timeout if a key of the query failed or was refused and the query was not best
    /// effort; none otherwise.
    pub failed: Option<Duration>,
}

/// Folds the ends of a request's queries, in the order they ended, into a [`FinishedRequest`].
///
/// A failed query counts at its backend's timeout or its real latency, whichever is larger, so that
/// failures never make the tail look better. The blocking backend is that of the slowest query so
/// counted, failed or not; among equals the first to end. A failed query therefore blocks the
/// request only if every other query was quicker than its timeout.
///
/// ```
/// use sherwood_model::{BackendId, QueryEnd, RequestEnd};
/// use std::time::Duration;
/// let ms = Duration::from_millis;
/// let mut end = RequestEnd::default();
/// end.add(QueryEnd { backend: BackendId(0), latency: ms(30), failed: None });
/// end.add(QueryEnd { backend: BackendId(1), latency: ms(2), failed: Some(ms(500)) });
/// let request = end.finish(ms(30));
/// assert_eq!((request.latency_us, request.blocking()), (500_000, Some(BackendId(1))));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestEnd {
    slowest: Option<(Duration, BackendId)>,
}

impl RequestEnd {
    /// Adds one ended query.
    pub fn add(&mut self, query: QueryEnd) {
        let QueryEnd { backend, latency, failed } = query;
        let counted = latency.max(failed.unwrap_or_default());
        if self.slowest.is_none_or(|(slowest, _)| counted > slowest) {
            self.slowest = Some((counted, backend));
        }
    }

    /// Returns the finished request, of tenant 0, given the time from its arrival to its end.
    #[must_use]
    pub fn finish(self, elapsed: Duration) -> FinishedRequest {
        match self.slowest {
            Some((slowest, backend)) => FinishedRequest::new(slowest.max(elapsed), Some(backend)),
            None => FinishedRequest::new(elapsed, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns latency (µs) and blocking backend of a request in which backend 0 fails at once with
    /// a timeout of 500 ms and backend 1 answers after `answered`.
    fn request_with_a_failure(answered: Duration) -> (u32, u16) {
        let mut end = RequestEnd::default();
        end.add(QueryEnd { backend: BackendId(0), latency: MS, failed: Some(500 * MS) });
        end.add(QueryEnd { backend: BackendId(1), latency: answered, failed: None });
        let finished = end.finish(answered);
        (finished.latency_us, finished.blocking().expect("there were queries").0)
    }

    #[test]
    fn failed_query_counts_at_its_timeout_and_slowest_query_names_the_blocking_backend() {
        assert_eq!(request_with_a_failure(300 * MS), (500_000, 0));
        assert_eq!(request_with_a_failure(500 * MS), (500_000, 0), "among equals the first to end");
        assert_eq!(request_with_a_failure(800 * MS), (800_000, 1));
    }

    #[test]
    fn finished_request_has_a_tenant_and_may_have_no_blocking_backend() {
        let request = FinishedRequest::new(MS, None).of(TenantId(7));
        assert_eq!((request.latency_us, request.tenant, request.blocking()), (1_000, TenantId(7), None));
    }
}
