//! Requests as a listener makes them of its clients' batches.

use std::time::Duration;

use sherwood_model::{BackendId, FinishedRequest};
use sherwood_path::LatencyGroup;

/// The batches of one request: for each backend, the time until its last key was answered.
#[derive(Debug, Default)]
pub(crate) struct Batches(Vec<(BackendId, Duration)>);

impl Batches {
    /// Adds keys of the request.
    pub(crate) fn add(&mut self, LatencyGroup { backend, latency, .. }: LatencyGroup) {
        match self.0.iter_mut().find(|(known, _)| *known == backend) {
            Some((_, last)) => *last = latency.max(*last),
            None => self.0.push((backend, latency)),
        }
    }

    /// Returns each batch as a request of its own, blocked by its backend.
    pub(crate) fn requests(self) -> impl Iterator<Item = FinishedRequest> {
        self.0.into_iter().map(|(backend, latency)| FinishedRequest::new(latency, Some(backend)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_of_a_request_has_one_batch_that_ends_with_its_last_key() {
        let mut batches = Batches::default();
        for (backend, ms) in [(0, 3), (1, 5), (0, 9), (0, 1)] {
            let latency = Duration::from_millis(ms);
            batches.add(LatencyGroup { backend: BackendId(backend), latency, hits: 0, keys: 1 });
        }
        let requests: Vec<_> = batches.requests().map(|of| (of.latency_us, of.blocking())).collect();
        assert_eq!(requests, [(9_000, Some(BackendId(0))), (5_000, Some(BackendId(1)))]);
    }
}
