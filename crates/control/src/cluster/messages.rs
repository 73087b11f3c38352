//! Messages by which nodes tell each other of requests and caches.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_model::{Band, CollectedRequests};
use sherwood_policy::MissRatioCurve;

use crate::Report;

/// Position of a message among those of its sender and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the sender's process; another one after each of its starts.
    pub incarnation: u64,
    /// Number of the message in its incarnation, ascending.
    pub number: u64,
}

impl Stamp {
    /// Returns true unless the `last` message of the sender is of the same incarnation and has the
    /// same or a later number.
    pub(super) fn is_after(self, last: Option<Self>) -> bool {
        last.is_none_or(|last| last.incarnation != self.incarnation || last.number < self.number)
    }
}

/// Statistics of one node, published once a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStatistics {
    /// Position among the node's messages of this kind.
    pub stamp: Stamp,
    /// Names of the backends that block the requests, by the ids that the requests have.
    pub backends: Vec<String>,
    /// Names of the tenants of the requests, by the ids that the requests have.
    pub tenants: Vec<String>,
    /// Requests that finished since the message before, with ids of their own: a tenant or a
    /// blocking backend without a name above is unknown.
    pub requests: CollectedRequests,
    /// The node's cache. Deadlines are left out: each node chooses β by its own.
    pub report: Report,
}

/// Statistics of all nodes, merged by one of them and published once a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Position among the node's messages of this kind.
    pub stamp: Stamp,
    /// Nodes whose statistics are younger than 5 s, in the order of the configuration, each with
    /// its newest message that is contained.
    pub nodes: Vec<(String, Stamp)>,
    /// Finished requests of all tenants, and after them those of each tenant where tenants divide
    /// the cache.
    pub requests: Vec<RequestsSnapshot>,
    /// True if the miss ratio curves of partitions were merged.
    pub has_curves: bool,
    /// The [share of the total](sherwood_policy::Needs::shadow_ratio) that shadow queues cover;
    /// none if their hits were not estimated.
    pub shadow_ratio: Option<f64>,
    /// Partitions by name.
    pub partitions: BTreeMap<String, PartitionSnapshot>,
}

/// Finished requests of all nodes in the window of requests used for decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestsSnapshot {
    /// Name of the requests' tenant; none for those of all tenants.
    pub tenant: Option<String>,
    /// Number of requests.
    pub count: u64,
    /// Time that the requests cover.
    pub reach: Duration,
    /// Shortest and longest latency; none without requests.
    pub latency_range: Option<(Duration, Duration)>,
    /// The quantile of latency that was computed, 0 to 1; none if no policy needs one.
    pub quantile: Option<f64>,
    /// Latency at `quantile`; none without requests.
    pub tail: Option<Duration>,
    /// Blocking counts of the bands that were counted: number of requests by name of the blocking
    /// backend, 0 for others.
    pub blocking: Vec<(Band, BTreeMap<String, u64>)>,
}

/// A partition of all nodes' caches. Counts are those since the start of the node that merged them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionSnapshot {
    /// Look-ups that found an item.
    pub hits: u64,
    /// Look-ups that found no item.
    pub misses: u64,
    /// Look-ups that missed and would have hit in a larger partition; 0 if not estimated.
    pub shadow_hits: u64,
    /// Miss ratio by budget of a node; none if not merged, or without look-ups.
    pub curve: Option<MissRatioCurve>,
}

/// The reason why a message was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// The sender is not one of the configured nodes.
    #[error("its sender is not one of `[cluster] nodes`")]
    UnknownNode,
    /// A snapshot's sender is not one of the configured statistics nodes, or statistics came to a
    /// node that merges none.
    #[error("it is of no use here by `[cluster] statistics`")]
    NotStatistics,
    /// The message, or a later one of its sender, has come already.
    #[error("it, or a later one of its sender, has come already")]
    NotNewer,
    /// The message claims more requests than a node can have served.
    #[error("it claims more than {REQUESTS_MAX} requests of a second")]
    TooMany,
}

/// Most requests that a node can have served between two messages. The bound keeps sums of a window
/// far from their overflow.
pub(super) const REQUESTS_MAX: u64 = 1 << 32;
