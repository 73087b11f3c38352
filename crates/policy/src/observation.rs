//! Observations as plain data: the node fills them from its counters, the simulator from its state.

use std::time::Duration;

use sherwood_model::{BackendId, Band, RequestSnapshot, TenantId};

use crate::{MissLatency, MissRatioCurve, Needs};

/// All inputs of a policy at one time. Fields that a policy does not need (see [`Needs`]) may keep
/// their defaults; construct it with `..Observation::default()`, so that fields added later default
/// to empty.
///
/// Values are not trusted: NaN, negative or contradictory figures give no claim and never an
/// invalid plan.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Sum of the budgets of all partitions, in bytes.
    pub total_bytes: u64,
    /// Observations per partition, in the order of their ids.
    pub partitions: Vec<PartitionObservation>,
    /// Requests that finished in the RBC window, the time over which request blocking counts are
    /// taken.
    pub requests: u64,
    /// Shortest and longest latency of the requests that finished in the window; none without
    /// requests.
    pub latency_range: Option<(Duration, Duration)>,
    /// The quantile of the requests' latency required by [`Needs::quantile`]; none without
    /// requests.
    pub tail: Option<Duration>,
    /// Request blocking counts: for each percentile band of latency required by [`Needs::bands`],
    /// the number of requests whose last reply came from each backend.
    pub blocking: Vec<BandCounts>,
}

/// Observation of one partition. Counts cover the RBC window, the time over which request blocking
/// counts are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionObservation {
    /// Tenant that owns the partition.
    pub tenant: TenantId,
    /// Backend whose answers the partition caches.
    pub backend: BackendId,
    /// The budget in force in the cache, in bytes. During a resize it may lag behind the last plan.
    pub allocated_bytes: u64,
    /// Charged bytes of the partition's items; above `allocated_bytes` while it shrinks.
    pub used_bytes: u64,
    /// Least bytes that the operator lets policies give the partition (its minimum pin), 0 for
    /// none.
    pub min_bytes: u64,
    /// Most bytes that the operator lets policies give the partition (its maximum pin), none for no
    /// limit. Below `min_bytes` it counts as `min_bytes`.
    pub max_bytes: Option<u64>,
    /// True if the partition keeps its budget and decisions only report the one it would get.
    pub dry_run: bool,
    /// Look-ups in the partition answered from the cache.
    pub hits: u64,
    /// Look-ups sent to the backend; errors count here, never as hits.
    pub misses: u64,
    /// Queries, hits and misses together; partitions share their backend's request blocking count
    /// in this proportion.
    pub queries: u64,
    /// 99th percentile of query latency, of hits and misses together; none without queries.
    pub query_p99: Option<Duration>,
    /// Hit ratio gained per byte added at the present size, see [`hit_ratio_slope`]; none if not
    /// measured.
    pub hit_ratio_slope: Option<f64>,
    /// Look-ups since the previous decision that missed and would have hit with
    /// [`Needs::shadow_ratio`] of the total more; none if not measured. If one decision covers
    /// several caches, the sum over them.
    pub shadow_hits: Option<u64>,
    /// Miss ratio of the partition by its size; none if not measured.
    pub miss_ratio_curve: Option<MissRatioCurve>,
    /// Latency of the partition's backend for the misses of the window, failures included; none
    /// without misses.
    pub miss_latency: Option<MissLatency>,
}

impl PartitionObservation {
    /// Returns a partition without observations.
    #[must_use]
    pub fn new(tenant: TenantId, backend: BackendId) -> Self {
        Self {
            tenant,
            backend,
            allocated_bytes: 0,
            used_bytes: 0,
            min_bytes: 0,
            max_bytes: None,
            dry_run: false,
            hits: 0,
            misses: 0,
            queries: 0,
            query_p99: None,
            hit_ratio_slope: None,
            shadow_hits: None,
            miss_ratio_curve: None,
            miss_latency: None,
        }
    }

    /// Bytes that no policy takes from the partition: its minimum pin, or its budget in a dry run.
    pub(crate) fn held_bytes(&self) -> u64 {
        if self.dry_run { self.allocated_bytes } else { self.min_bytes }
    }

    /// The partition with its pins, and without observations.
    pub(crate) fn pins_only(&self) -> Self {
        let Self { min_bytes, max_bytes, dry_run, .. } = *self;
        Self { min_bytes, max_bytes, dry_run, ..Self::new(self.tenant, self.backend) }
    }

    /// Share of the look-ups that were hits, 0 to 1; none without look-ups.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let look_ups = self.hits as f64 + self.misses as f64;
        (look_ups > 0.0).then(|| self.hits as f64 / look_ups)
    }
}

/// For one percentile band of request latency: the number of requests that each backend blocked,
/// its reply being the last.
#[derive(Clone, Debug, PartialEq)]
pub struct BandCounts {
    /// The percentile band of request latency whose requests are counted.
    pub band: Band,
    /// Requests blocked by each backend, in the order of the backends' ids; missing elements count
    /// as 0.
    pub counts: Vec<u64>,
}

impl Observation {
    /// Fills in the statistics of a window of finished requests: their number, their range and tail
    /// of latency, and the request blocking counts of every band in `needs`, for `backends`
    /// backends.
    pub fn see_requests(&mut self, window: &RequestSnapshot, needs: &Needs, backends: usize) {
        self.requests = window.count();
        self.latency_range = window.range();
        self.tail = needs.quantile.and_then(|quantile| window.quantile(quantile));
        let count = |&band| BandCounts { band, counts: window.blocking_counts(band, backends) };
        self.blocking = needs.bands.iter().map(count).collect();
    }

    /// Returns an observation with only the statistics of these finished requests; see
    /// [`see_requests`](Self::see_requests).
    #[must_use]
    pub fn of_requests(finished: &RequestSnapshot, needs: &Needs, backends: usize) -> Self {
        let mut seen = Self::default();
        seen.see_requests(finished, needs, backends);
        seen
    }

    /// Replaces the statistics of requests by those of another observation.
    pub fn take_requests(&mut self, of: &Self) {
        let Self { total_bytes, ref mut partitions, .. } = *self;
        let partitions = std::mem::take(partitions);
        *self = Self { total_bytes, partitions, ..of.without_partitions() };
    }

    /// The observation of all requests, without partitions.
    pub(crate) fn without_partitions(&self) -> Self {
        let Self { total_bytes, partitions: _, requests, latency_range, tail, ref blocking } = *self;
        Self {
            total_bytes,
            partitions: Vec::new(),
            requests,
            latency_range,
            tail,
            blocking: blocking.clone(),
        }
    }

    /// Request blocking counts of `band` by backend; empty if the band was not counted.
    #[must_use]
    pub fn blocking(&self, band: Band) -> &[u64] {
        self.blocking.iter().find(|counted| counted.band == band).map_or(&[], |counted| &counted.counts)
    }
}

/// Step in size over which a partition's slope is measured, as a share of the total; the value of
/// RobinHood's authors.
pub const SLOPE_STEP_RATIO: f64 = 0.01;

/// Hit ratio gained per byte between two simulated sizes, each (bytes, hit ratio); 0 if the larger
/// size gains nothing.
///
/// ```
/// let mib = 1 << 20;
/// let slope = sherwood_policy::hit_ratio_slope((1_600 * mib, 0.60), (1_920 * mib, 0.62));
/// assert!((slope - 5.96e-11).abs() < 1e-13);
/// assert_eq!(sherwood_policy::hit_ratio_slope((5, 0.6), (5, 0.7)), 0.0);
/// ```
#[must_use]
pub fn hit_ratio_slope(smaller: (u64, f64), larger: (u64, f64)) -> f64 {
    let (bytes, gain) = (larger.0.saturating_sub(smaller.0), larger.1 - smaller.1);
    if bytes > 0 && gain > 0.0 && gain.is_finite() { gain / bytes as f64 } else { 0.0 }
}
