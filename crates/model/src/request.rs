//! What remains of a request when it has ended: how long its user waited, and for whom.

use std::time::Duration;

use crate::BackendId;

/// A finished request as it is kept: its latency and its blocking backend, 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// Microseconds from arrival to the end of the last query, saturating at `u32::MAX` (71
    /// minutes).
    pub latency_us: u32,
    /// Backend of the slowest query as [`RequestEnd`] counts, or none for a request without
    /// queries, which shifts percentiles but blames nobody.
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
    /// The backend's time-out when a key of the query failed or was refused and the query was not
    /// best effort.
    pub failed: Option<Duration>,
}

/// Folds the ends of a request's queries, in the order they ended, into a [`FinishedRequest`].
///
/// A failed query counts at its backend's time-out or its real latency, whichever is larger, so
/// that failures never make the tail look better. The blocking backend is that of the slowest query
/// so counted, failed or not; among equals the first to end. So a failure takes the blame only from
/// queries that were quicker than its time-out.
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What comes of a failure of backend 0, at once and with a time-out of 500 ms, beside an
    /// answer of backend 1.
    fn beside_a_failure(answered: Duration) -> (u32, u16) {
        let mut end = RequestEnd::default();
        end.add(QueryEnd { backend: BackendId(0), latency: MS, failed: Some(500 * MS) });
        end.add(QueryEnd { backend: BackendId(1), latency: answered, failed: None });
        let FinishedRequest { latency_us, blocking } = end.finish(answered);
        (latency_us, blocking.expect("there were queries").0)
    }

    #[test]
    fn the_slowest_query_blocks_and_a_failed_one_is_as_slow_as_its_time_out() {
        assert_eq!(beside_a_failure(300 * MS), (500_000, 0));
        assert_eq!(beside_a_failure(500 * MS), (500_000, 0), "among equals the first to end");
        assert_eq!(beside_a_failure(800 * MS), (800_000, 1));
    }
}
