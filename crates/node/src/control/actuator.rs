//! What a plan is carried out on.

use std::sync::Arc;
use std::thread::Thread;

use sherwood_cache::{Cache, PlanError};
use sherwood_model::{CachePlan, PartitionId};

use super::instances::Instance;

/// What one partition holds, and what happened in it since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Whether it can be resized now; when not, it stays as it is.
    pub(crate) reached: bool,
    /// Budget in force, bytes.
    pub(crate) allocated_bytes: u64,
    /// Charged bytes of its items.
    pub(crate) used_bytes: u64,
    /// Look-ups that ended in it.
    pub(crate) hits: u64,
    /// Look-ups that did not.
    pub(crate) misses: u64,
    /// Times it was seen to have been started anew, and so to have lost what it held.
    pub(crate) restarts: u64,
}

/// A cache whose partitions can be looked at and resized.
pub(crate) trait Actuator: Send + Sync {
    /// Bytes the budgets may sum to.
    fn total_bytes(&self) -> u64;

    /// Every partition, in the order of their ids.
    fn observe(&self) -> Vec<Held>;

    /// Least bytes a partition can be told to keep to; 0 where there is no such size.
    fn bytes_min(&self, partition: PartitionId) -> u64;

    /// Asks for the plan, which is reached some time afterwards.
    ///
    /// # Errors
    /// When the plan does not fit the cache; nothing has changed then.
    fn apply(&self, plan: &CachePlan) -> Result<(), ApplyError>;

    /// The budgets in force; none where partitions share, or where what is in force is for others
    /// to say.
    fn budgets(&self) -> Option<Vec<u64>>;

    /// Whether its partitions can share one LRU.
    fn can_share(&self) -> bool;
}

/// Why a plan is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// It does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It is for one cache.
    #[error(
        "caches that are instances of others cannot share one LRU; choose a policy that divides, such as robinhood"
    )]
    Sharing,
}

/// The node's own cache: a plan is in force at once, and the bytes over it are evicted in small
/// steps by the housekeeper.
pub(crate) struct OwnCache {
    cache: Arc<Cache>,
    partitions: usize,
    housekeeper: Thread,
}

impl OwnCache {
    /// Acts on `cache` of `partitions` partitions, and wakes `housekeeper` when there is something
    /// to evict.
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
                reached: true,
                allocated_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                hits: usage.hits,
                misses: usage.misses,
                restarts: 0,
            }
        };
        (0..self.partitions).map(held).collect()
    }

    fn bytes_min(&self, _: PartitionId) -> u64 {
        0
    }

    fn apply(&self, plan: &CachePlan) -> Result<(), ApplyError> {
        self.cache.apply(plan)?;
        self.housekeeper.unpark();
        Ok(())
    }

    fn budgets(&self) -> Option<Vec<u64>> {
        match self.cache.plan() {
            CachePlan::Budgets(budgets) => Some(budgets),
            CachePlan::Shared => None,
        }
    }

    fn can_share(&self) -> bool {
        true
    }
}

/// Instances of other caches, one for each partition: a plan leaves each a wish, which its own task
/// works off.
pub(crate) struct Instances {
    total_bytes: u64,
    each: Vec<Arc<Instance>>,
}

impl Instances {
    /// Divides `total_bytes` among the instances.
    #[must_use]
    pub(crate) fn new(total_bytes: u64, each: Vec<Arc<Instance>>) -> Self {
        Self { total_bytes, each }
    }
}

impl Actuator for Instances {
    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn observe(&self) -> Vec<Held> {
        let held = |instance: &Arc<Instance>| {
            let usage = instance.usage();
            Held {
                reached: instance.trouble().is_none(),
                allocated_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                hits: usage.hits,
                misses: usage.misses,
                restarts: instance.restarts(),
            }
        };
        self.each.iter().map(held).collect()
    }

    fn bytes_min(&self, partition: PartitionId) -> u64 {
        self.each[partition.index()].setup().kind.bytes_min()
    }

    fn apply(&self, plan: &CachePlan) -> Result<(), ApplyError> {
        let CachePlan::Budgets(budgets) = plan else { return Err(ApplyError::Sharing) };
        let (given, partitions) = (budgets.len(), self.each.len());
        if given != partitions {
            return Err(PlanError::Partitions { given, partitions }.into());
        }
        let sum: u128 = budgets.iter().copied().map(u128::from).sum();
        if sum > u128::from(self.total_bytes) {
            return Err(PlanError::OverTotal { sum, total_bytes: self.total_bytes }.into());
        }
        self.each.iter().zip(budgets).for_each(|(instance, &bytes)| instance.wish(bytes));
        Ok(())
    }

    fn budgets(&self) -> Option<Vec<u64>> {
        None
    }

    fn can_share(&self) -> bool {
        false
    }
}
