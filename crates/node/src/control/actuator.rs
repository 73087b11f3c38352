//! What a plan is carried out on.

use std::sync::Arc;
use std::thread::Thread;

use sherwood_cache::{Cache, PlanError};
use sherwood_model::{CachePlan, PartitionId};

/// What one partition holds, and what happened in it since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Budget in force, bytes.
    pub(crate) allocated_bytes: u64,
    /// Charged bytes of its items.
    pub(crate) used_bytes: u64,
    /// Look-ups that ended in it.
    pub(crate) hits: u64,
    /// Look-ups that did not.
    pub(crate) misses: u64,
}

/// A cache whose partitions can be looked at and resized.
pub(crate) trait Actuator: Send + Sync {
    /// Bytes the budgets may sum to.
    fn total_bytes(&self) -> u64;

    /// Every partition, in the order of their ids.
    fn observe(&self) -> Vec<Held>;

    /// Asks for the plan, which is reached some time afterwards.
    ///
    /// # Errors
    /// When the plan does not fit the cache; nothing has changed then.
    fn apply(&self, plan: &CachePlan) -> Result<(), PlanError>;
}

/// The node's own cache: a plan is in force at once, and the bytes over it are evicted in small steps by the housekeeper.
pub(crate) struct OwnCache {
    cache: Arc<Cache>,
    partitions: usize,
    housekeeper: Thread,
}

impl OwnCache {
    /// Acts on `cache` of `partitions` partitions, and wakes `housekeeper` when there is something to evict.
    #[must_use]
    pub(crate) fn new(cache: Arc<Cache>, partitions: usize, housekeeper: Thread) -> Self {
        Self { cache, partitions, housekeeper }
    }
}

impl Actuator for OwnCache {
    fn total_bytes(&self) -> u64 {
        self.cache.total().budget_bytes
    }

    fn observe(&self) -> Vec<Held> {
        let held = |index| {
            let usage = self.cache.usage(PartitionId::from_index(index));
            Held {
                allocated_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                hits: usage.hits,
                misses: usage.misses,
            }
        };
        (0..self.partitions).map(held).collect()
    }

    fn apply(&self, plan: &CachePlan) -> Result<(), PlanError> {
        self.cache.apply(plan)?;
        self.housekeeper.unpark();
        Ok(())
    }
}
