//! The plan of a decision: a division of the cache, and rates of the resources behind it.

use std::time::Duration;

use crate::{BackendId, PartitionId, Percent, Rates};

/// A division of the cache and, with several tenants, of the resources behind it.
///
/// A driver applies the rates before the cache: a tenant that gives cache receives units for it
/// first.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The division of the cache.
    pub cache: CachePlan,
    /// The rates of each tenant; none if the node has one tenant, which nothing limits.
    pub rates: Option<Rates>,
    /// Parts of the plan for single backends. Backends that are left out keep their settings.
    pub backends: Vec<BackendPlan>,
}

/// The part of a plan that concerns one backend. A field that is none leaves its setting unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendPlan {
    /// The backend.
    pub backend: BackendId,
    /// The percentile of past latencies with which admission control estimates a query's latency
    /// (β).
    pub beta: Option<Percent>,
    /// The copies of each request.
    pub copies: Option<Copies>,
    /// The layout of a replicated store.
    pub layout: Option<StoreLayout>,
}

impl BackendPlan {
    /// Returns a plan that leaves all settings of a backend unchanged.
    #[must_use]
    pub fn unchanged(backend: BackendId) -> Self {
        Self { backend, beta: None, copies: None, layout: None }
    }
}

/// The layout of a replicated store, and the way in which its duplicates are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLayout {
    /// Partitions of the keys.
    pub partitions: u16,
    /// Duplicates of each partition.
    pub duplicates: u8,
    /// Duplicates that an access asks at once, at least 1.
    pub asked: u8,
    /// Time after which one more duplicate is asked; none if none is.
    pub hedge: Option<Duration>,
}

/// The number of copies of each request to a backend, which have different replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Copies of a request, the first attempt included; at least 1.
    pub factor: u8,
}

impl From<CachePlan> for Plan {
    /// Returns a plan that divides the cache, limits no rate and leaves backends as they are.
    fn from(cache: CachePlan) -> Self {
        Self { cache, rates: None, backends: Vec::new() }
    }
}

/// Division of the cache's total budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePlan {
    /// A budget in bytes for each partition, in the order of their ids. Their sum is at most the
    /// total.
    Budgets(Vec<u64>),
    /// No division: partitions share the total, and the victim is the least recently used item of
    /// the whole cache. Switching to and from this plan moves and flushes nothing.
    Shared,
}

impl CachePlan {
    /// The budget of `partition` in bytes; none under [`Shared`](Self::Shared) or for an unknown
    /// id.
    #[must_use]
    pub fn budget(&self, partition: PartitionId) -> Option<u64> {
        match self {
            Self::Budgets(budgets) => budgets.get(partition.index()).copied(),
            Self::Shared => None,
        }
    }
}
