//! What a decision asks of the cache.

use crate::PartitionId;

/// How the cache's total budget is to be divided from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePlan {
    /// A budget in bytes for each partition, in the order of their ids. Their sum is at most the
    /// total.
    Budgets(Vec<u64>),
    /// No division: partitions share the total, and the victim is the least recently used item of
    /// all. Switching to and from this plan moves and flushes nothing.
    Shared,
}

impl CachePlan {
    /// The budget of `partition` in bytes, or none where all share.
    #[must_use]
    pub fn budget(&self, partition: PartitionId) -> Option<u64> {
        match self {
            Self::Budgets(budgets) => budgets.get(partition.index()).copied(),
            Self::Shared => None,
        }
    }
}
