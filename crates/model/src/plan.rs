//! The division of the cache that a decision asks for.

use crate::PartitionId;

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
