//! Queries of a request, and the fetches they need.

use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::Cache;
use sherwood_model::{BackendId, Demand, Instant, PartitionId};

use crate::{SharedValues, Staleness};

/// The keys a request wants from one backend.
#[derive(Clone, Debug)]
pub struct Query<K> {
    /// The backend that the keys are fetched from.
    pub backend: BackendId,
    /// The partition of the cache that the keys are looked up in.
    pub partition: PartitionId,
    /// Any number of keys, also repeated; each gets an answer of its own.
    pub keys: Vec<K>,
    /// The tenant and urgency of the query; its deadline's class is set when it is looked up.
    /// Failures of a best-effort query do not count as failures of the request.
    pub demand: Demand,
    /// The backend's timeout, the least latency that a failed query counts as.
    pub timeout: Duration,
    /// The stale values that the query accepts.
    pub staleness: Staleness,
    /// Trust in the cached values; none if no other node caches the backend's.
    pub shared: Option<Arc<SharedValues>>,
}

/// A fetch that one query needs, for its backend's dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryFetch<K> {
    /// The query's position in the request.
    pub query: usize,
    /// The backend to fetch from.
    pub backend: BackendId,
    /// The partition of the cache that the values go to.
    pub partition: PartitionId,
    /// At least one key, each once, with the slot its result belongs to. Ordered by key.
    pub keys: Vec<(K, Slot)>,
    /// The query's demand; best effort and without a deadline where the query does not wait.
    pub demand: Demand,
    /// True if the query waits for the results. If not, it was answered with stale values and the
    /// results only fill the cache. Such a fetch may leave out keys that are in flight already, and
    /// keys whose fetch has just failed.
    pub awaited: bool,
}

/// The position of a key among the keys of all queries of its request. It is handed back with the
/// key's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub(crate) u32);

/// Sets the class of a demand that has a deadline. The class is the partition's class for the time
/// from `started`, when the caller began to wait, to the deadline.
pub fn classify(demand: &mut Demand, cache: &Cache, partition: PartitionId, started: Instant) {
    if let Some(deadline) = demand.deadline {
        demand.class = cache.deadline_class(partition, deadline - started);
    }
}
