//! What a request asks, and what of it has to be fetched.

use std::time::Duration;

use sherwood_model::{BackendId, Demand, PartitionId};

use crate::Staleness;

/// The keys a request wants from one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<K> {
    /// Who is asked for what misses.
    pub backend: BackendId,
    /// Where it is looked up first.
    pub partition: PartitionId,
    /// Any number of keys, repeated or not; each gets an answer of its own.
    pub keys: Vec<K>,
    /// On whose behalf and how urgently it is made. Failures of a best-effort query do not count
    /// against the request.
    pub demand: Demand,
    /// The backend's time-out, which a query that failed counts as.
    pub timeout: Duration,
    /// When a stale value will do.
    pub staleness: Staleness,
}

/// What one query wants fetched, for its backend's dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryFetch<K> {
    /// The query's position in the request.
    pub query: usize,
    /// Whom to ask.
    pub backend: BackendId,
    /// Where the values belong.
    pub partition: PartitionId,
    /// At least one key, no key twice, each with where its result goes. Ordered by key.
    pub keys: Vec<(K, Slot)>,
    /// The query's demand; best effort and without a deadline where the query does not wait.
    pub demand: Demand,
    /// True if the query waits for the results. If not, it was answered with stale values and the
    /// results only fill the cache: keys in flight, and keys whose fetch has just failed, need no
    /// fetch of their own.
    pub awaited: bool,
}

/// A key's place in its request, to be handed back with its result: its position among the keys of
/// all queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub(crate) u32);
