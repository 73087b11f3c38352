//! Observations of a driver, as plain data.

use std::time::Duration;

use sherwood_model::{AttemptTimes, BackendId, Instant, Percent, StoreLayout, TenantId};
use sherwood_policy::replication::TierSeen;
use sherwood_policy::tenants::TenantObservation;
use sherwood_policy::{MissLatency, MissRatioCurve, Observation};

use crate::DeadlineCounts;

/// Observations at one time. Parts that the loop does not [need](crate::ControlLoop::needs) are
/// none.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Observations of the cache, for a decision among partitions.
    pub cache: Option<CacheSeen>,
    /// Observations of each tenant, for a step of the division among tenants.
    pub tenants: Option<Vec<TenantObservation>>,
    /// Observations of the tiers of an application, for a decision about copies.
    pub replication: Option<Vec<ReplicationSeen>>,
    /// Observations of the managed stores, since the ones before.
    pub stores: Option<Vec<StoreSeen>>,
}

/// A replicated store since the observation before.
#[derive(Clone, Debug)]
pub struct StoreSeen {
    /// The store's backend.
    pub backend: BackendId,
    /// The layout in force, or on the way.
    pub layout: StoreLayout,
    /// True if the layout is in force: all duplicates are filled, and no other is left.
    pub is_settled: bool,
    /// The store's accesses.
    pub attempts: AttemptTimes,
}

/// A backend that is a tier of an application, since the start of the measuring window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicationSeen {
    /// The backend.
    pub backend: BackendId,
    /// The backend's requests in the window.
    pub tier: TierSeen,
}

/// Observations of the cache, the requests and the admissions by a driver.
#[derive(Clone, Debug, Default)]
pub struct CacheSeen {
    /// The time at which the counters were read; not later than the decision.
    pub at: Instant,
    /// Sum of the budgets of all partitions, bytes.
    pub total_bytes: u64,
    /// Each partition, in the order of their ids.
    pub partitions: Vec<PartitionSeen>,
    /// Finished requests of the decision window, as
    /// [`Observation::see_requests`](sherwood_policy::Observation::see_requests) returns them: one
    /// observation of all requests, or one for each tenant where tenants divide the cache. Empty if
    /// no policy needs them.
    pub requests: Vec<Observation>,
    /// Losses of cached items.
    pub losses: LossesSeen,
    /// Backends whose admission has a target of missed deadlines.
    pub admissions: Vec<AdmissionSeen>,
}

/// A partition, with counters since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionSeen {
    /// Tenant that owns the partition.
    pub tenant: TenantId,
    /// Backend whose answers the partition caches.
    pub backend: BackendId,
    /// True if the partition can be resized now; otherwise it keeps its size.
    pub reached: bool,
    /// Budget in force, bytes.
    pub allocated_bytes: u64,
    /// Bytes charged for the partition's items.
    pub used_bytes: u64,
    /// Look-ups that found an item.
    pub hits: u64,
    /// Look-ups that found no item.
    pub misses: u64,
    /// Restarts of the partition's external cache, each of which lost its items.
    pub restarts: u64,
    /// 99th percentile of the latency of queries to the backend; none without queries.
    pub query_p99: Option<Duration>,
    /// Hit ratio gained per additional byte at the present size; none if not measured.
    pub hit_ratio_slope: Option<f64>,
    /// Look-ups since the previous decision that would have hit in a larger partition
    /// ([`Merger`](crate::Merger)); none if not measured.
    pub shadow_hits: Option<u64>,
    /// Miss ratio by size; none if not measured.
    pub miss_ratio_curve: Option<MissRatioCurve>,
    /// Latency of the backend's misses; none if not measured.
    pub miss_latency: Option<MissLatency>,
}

impl PartitionSeen {
    /// Returns the observation of an empty partition that can be resized and of which nothing was
    /// measured.
    #[must_use]
    pub fn new(tenant: TenantId, backend: BackendId) -> Self {
        Self {
            tenant,
            backend,
            reached: true,
            allocated_bytes: 0,
            used_bytes: 0,
            hits: 0,
            misses: 0,
            restarts: 0,
            query_p99: None,
            hit_ratio_slope: None,
            shadow_hits: None,
            miss_ratio_curve: None,
            miss_latency: None,
        }
    }
}

/// Losses of cached items that were ordered by an operator or client, such as flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossesSeen {
    /// Number of orders since the start.
    pub orders: u64,
    /// The latest time at which an ordered loss takes effect: a flush may be scheduled.
    pub due: Instant,
}

impl AdmissionSeen {
    /// Returns the backend's β and its deadlines that ended since the start. The caller counts the
    /// requests answered in time (`met`) and late (`missed`), because a dispatcher cannot know
    /// whether an answer came in time for its waiter; the dispatcher counts the rejected ones.
    #[must_use]
    pub fn of(backend: BackendId, stats: &sherwood_dispatch::Stats, (met, missed): (u64, u64)) -> Self {
        let ended = DeadlineCounts { met, missed, rejected: stats.counters.rejected_with_deadline };
        Self { backend, beta: stats.beta, ended }
    }
}

/// A backend whose admission has a target of missed deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionSeen {
    /// The backend.
    pub backend: BackendId,
    /// The percentile β in force: the percentile of latencies that admission takes as its estimate.
    pub beta: Percent,
    /// Deadlines that ended since the start.
    pub ended: DeadlineCounts,
}
