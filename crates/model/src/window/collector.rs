//! Finished requests of a short time, in a bounded form that can be sent to other nodes.

use super::table::Table;
use crate::{FinishedRequest, LatencyBucket, TenantId};

/// Largest number of requests that are collected one by one, 8 bytes each.
const EACH_MAX: usize = 4_096;
/// Largest size of an encoded table, bytes.
const TABLE_BYTES_MAX: usize = 64 << 10;
/// Bytes that a pair of tenant and blocking backend takes in an encoded table: its ids, and the
/// lengths of its cells.
const PAIR_BYTES: usize = 24;
/// Bytes of the difference between two buckets, of a pair's cells in ascending order.
const BUCKET_BYTES: usize = 2;
/// Largest number of pairs of tenant and blocking backend; further requests of a pair count for no
/// backend. A pair takes at most 36 bytes where all its latencies are in one group, so that these
/// and one of no backend for each tenant of a node (1,024) fit into a table.
const PAIRS_MAX: usize = 760;
/// Largest number of pairs, with those of no backend; further requests count for no tenant.
const SENDERS_MAX: usize = 1_791;
/// Groups of 2^11 neighbouring buckets: one group.
const COARSEST: u32 = 11;

/// Collects the finished requests of a short time, such as a second.
///
/// Up to 4,096 single requests are kept one by one. Further ones, and equal requests that are
/// recorded together, are counted in a table with a relative latency error of at most 1/128, of at
/// most 16,384 cells and one for each pair of tenant and backend. Requests of the 760 first such
/// pairs keep their backend, those of further ones count for no backend.
///
/// Recording takes constant time up to 4,096 requests, and logarithmic time in the cells of the
/// table beyond. Memory: at most 32 KiB and a table of about half a megabyte.
#[derive(Clone, Debug, Default)]
pub struct RequestCollector {
    each: Vec<FinishedRequest>,
    table: Table,
    /// Number of pairs of tenant and blocking backend in the table.
    pairs: usize,
}

/// Finished requests, in no particular order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectedRequests {
    /// All requests, one by one.
    Each(Vec<FinishedRequest>),
    /// Numbers of requests by tenant, blocking backend and latency, in this order. Each latency is
    /// the [middle](LatencyBucket::middle_us) of a bucket.
    Counted(Vec<RequestCount>),
}

/// Equal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    /// Any of the requests.
    pub request: FinishedRequest,
    /// Number of the requests.
    pub times: u64,
}

impl Default for CollectedRequests {
    /// Returns no requests.
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

impl RequestCollector {
    /// Records `times` equal requests.
    pub fn record(&mut self, request: FinishedRequest, times: u64) {
        if times == 1 && self.each.len() < EACH_MAX {
            self.each.push(request);
        } else {
            self.count(request, times);
        }
    }

    /// Returns the requests recorded since the last call, to be converted into
    /// [`CollectedRequests`] after a lock is released.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    fn count(&mut self, mut request: FinishedRequest, times: u64) {
        if !self.table.has(request.tenant, request.blocking()) {
            if self.pairs >= PAIRS_MAX {
                request = request.with(request.tenant, None);
            }
            if self.pairs >= SENDERS_MAX && !self.table.has(request.tenant, None) {
                request = request.with(TenantId(u16::MAX), None);
            }
            self.pairs += usize::from(!self.table.has(request.tenant, request.blocking()));
        }
        self.table.add(request, times);
    }
}

/// Counts the requests in a table if there are more than 4,096, or equal ones were recorded
/// together. A table that would take more than 64 KiB encoded has coarser buckets, of a relative
/// error of 3/128, 5/128 and so on, up to one group of all latencies. All cells of up to 600 pairs
/// of tenant and backend keep their precision while their counts are below 128. O(n log n).
impl From<RequestCollector> for CollectedRequests {
    fn from(mut collected: RequestCollector) -> Self {
        if collected.table.is_empty() {
            return Self::Each(collected.each);
        }
        for request in std::mem::take(&mut collected.each) {
            collected.count(request, 1);
        }
        let cells = collected.table.iter().map(|(tenant, blocking, latency_us, times)| RequestCount {
            request: FinishedRequest::of_micros(latency_us, blocking).of(tenant),
            times,
        });
        let mut counts: Vec<RequestCount> = cells.collect();
        for power in 1..=COARSEST {
            if encoded_bytes_max(&counts) <= TABLE_BYTES_MAX {
                break;
            }
            counts = coarse(&counts, power);
        }
        Self::Counted(counts)
    }
}

impl CollectedRequests {
    /// Number of the requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Each(each) => each.len() as u64,
            Self::Counted(counts) => counts.iter().fold(0, |sum, equal| sum.saturating_add(equal.times)),
        }
    }

    /// Returns each request changed by `change`, in the same order.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(FinishedRequest) -> FinishedRequest) -> Self {
        match self {
            Self::Each(each) => Self::Each(each.into_iter().map(change).collect()),
            Self::Counted(counts) => {
                let changed = |of: RequestCount| RequestCount { request: change(of.request), ..of };
                Self::Counted(counts.into_iter().map(changed).collect())
            }
        }
    }

    /// The requests that are kept one by one, or none.
    #[must_use]
    pub fn each(&self) -> &[FinishedRequest] {
        match self {
            Self::Each(each) => each,
            Self::Counted(_) => &[],
        }
    }

    /// The requests that are counted, or none.
    #[must_use]
    pub fn counted(&self) -> &[RequestCount] {
        match self {
            Self::Each(_) => &[],
            Self::Counted(counts) => counts,
        }
    }
}

/// Returns the counts, in the order of tenants, backends and latencies, in groups of 2^`power`
/// buckets.
fn coarse(counts: &[RequestCount], power: u32) -> Vec<RequestCount> {
    let mut grouped: Vec<RequestCount> = Vec::new();
    for &RequestCount { request, times } in counts {
        let latency_us = LatencyBucket::of(request.latency_us).coarse(power).middle_us();
        let request = FinishedRequest::of_micros(latency_us, request.blocking()).of(request.tenant);
        match grouped.last_mut() {
            Some(last) if last.request == request => last.times += times,
            _ => grouped.push(RequestCount { request, times }),
        }
    }
    grouped
}

/// Returns an upper bound of the bytes of encoded counts, in the order of tenants and backends.
fn encoded_bytes_max(counts: &[RequestCount]) -> usize {
    let pairs = counts.chunk_by(|a, b| pair(a) == pair(b)).count();
    let count_bytes = |equal: &RequestCount| (u64::BITS - equal.times.leading_zeros()).div_ceil(7).max(1);
    let cells: usize = counts.iter().map(|equal| BUCKET_BYTES + count_bytes(equal) as usize).sum();
    pairs * PAIR_BYTES + cells
}

fn pair(equal: &RequestCount) -> (TenantId, Option<crate::BackendId>) {
    (equal.request.tenant, equal.request.blocking())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::BackendId;

    fn request(latency_us: u32, backend: u16) -> FinishedRequest {
        FinishedRequest::of_micros(latency_us, Some(BackendId(backend)))
    }

    fn collected(requests: impl IntoIterator<Item = (FinishedRequest, u64)>) -> CollectedRequests {
        let mut collector = RequestCollector::default();
        requests.into_iter().for_each(|(request, times)| collector.record(request, times));
        let requests = collector.take().into();
        assert_eq!(CollectedRequests::from(collector), CollectedRequests::default(), "all were taken");
        requests
    }

    #[test]
    fn up_to_4096_requests_are_kept_one_by_one_and_more_are_counted() {
        let requests = |count: u32| (0..count).map(|i| (request(i * 1_000, (i % 3) as u16), 1));
        let few = collected(requests(4_096));
        assert_eq!(few.each().to_vec(), requests(4_096).map(|(request, _)| request).collect::<Vec<_>>());
        let many = collected(requests(4_097));
        assert_eq!((many.each().len(), many.count()), (0, 4_097));
        let equal = collected([(request(7, 1), 1), (request(7, 1), 5)]);
        assert_eq!(
            equal,
            CollectedRequests::Counted(vec![RequestCount { request: request(7, 1), times: 6 }])
        );
    }

    #[test]
    fn requests_of_more_pairs_than_a_table_has_count_for_no_backend_and_then_for_no_tenant() {
        let pairs = (0..3_000_u16).map(|i| (request(u32::from(i) * 50_000, i).of(TenantId(i)), 1 << 34));
        let requests = collected(pairs);
        assert!(encoded_bytes_max(requests.counted()) <= TABLE_BYTES_MAX);
        assert_eq!(requests.count(), 3_000 << 34);
        let blocked = requests.counted().iter().filter(|equal| equal.request.blocking().is_some());
        assert_eq!(blocked.count(), PAIRS_MAX);
        let of_none = requests.counted().iter().filter(|equal| equal.request.tenant == TenantId(u16::MAX));
        assert_eq!(of_none.map(|equal| equal.times).sum::<u64>(), ((3_000 - SENDERS_MAX) as u64) << 34);
    }

    #[test]
    fn table_of_twenty_backends_over_four_powers_of_two_keeps_its_precision() {
        let latencies = (0..20_u16).flat_map(|backend| (0..1_000).map(move |i| (backend, 10_000 + 150 * i)));
        let requests = collected(latencies.map(|(backend, latency)| (request(latency, backend), 1)));
        let buckets: Vec<_> = requests.counted().iter().map(|equal| equal.request.latency_us).collect();
        assert!(buckets.iter().all(|&latency| LatencyBucket::of(latency).middle_us() == latency));
        let narrowest = buckets.windows(2).filter(|two| two[0] < two[1]).map(|two| two[1] - two[0]).min();
        assert_eq!(narrowest, Some(128), "the width of a bucket of 10 ms");
    }

    proptest! {
        #[test]
        fn collected_requests_are_all_counted_within_the_size_of_a_table(
            seeds in prop::collection::vec((any::<u32>(), 0_u16..900, 0_u16..3, 1_u64..1 << 20), 1..6_000),
        ) {
            let requests: Vec<_> =
                seeds.iter().map(|&(latency, backend, tenant, times)| (request(latency, backend).of(TenantId(tenant)), times)).collect();
            let collected = collected(requests.clone());
            prop_assert_eq!(collected.count(), requests.iter().map(|(_, times)| times).sum::<u64>());
            prop_assert!(encoded_bytes_max(collected.counted()) <= TABLE_BYTES_MAX);
            let each_once = collected.counted().windows(2).all(|two| two[0].request != two[1].request);
            prop_assert!(each_once);
        }
    }

    #[test]
    fn latency_of_a_collected_request_is_in_microseconds() {
        let request = FinishedRequest::new(Duration::from_millis(3), None);
        assert_eq!(collected([(request, 1)]).each(), [FinishedRequest::of_micros(3_000, None)]);
    }
}
