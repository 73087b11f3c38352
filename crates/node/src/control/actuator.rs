//! The caches that plans are applied to.

use std::sync::Arc;
use std::thread::Thread;

use sherwood_cache::{Cache, PlanError, ResizeError};
use sherwood_model::{BackendPlan, CachePlan, PartitionId, Plan};

use super::instances::Instance;
use super::rates::PlanRates;
use crate::backend::BackendDriver;

/// A partition's size, and its counters since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// True if the partition can be resized now; otherwise it keeps its size.
    pub(crate) reached: bool,
    /// Budget of the partition that is in force, bytes.
    pub(crate) allocated_bytes: u64,
    /// Bytes charged for the partition's items.
    pub(crate) used_bytes: u64,
    /// Look-ups in the partition that found an item.
    pub(crate) hits: u64,
    /// Look-ups in the partition that found no item.
    pub(crate) misses: u64,
    /// Restarts of the partition's external cache that were detected; each lost its items.
    pub(crate) restarts: u64,
}

/// A cache whose partitions can be observed and resized.
pub(crate) trait Actuator: Send + Sync {
    /// Upper bound of the sum of the budgets, bytes.
    fn total_bytes(&self) -> u64;

    /// Checks that the total can be changed to this one.
    ///
    /// # Errors
    /// When it cannot.
    fn check_total(&self, total_bytes: u64) -> Result<(), ApplyError>;

    /// Changes the total, and requests a plan that fits it.
    ///
    /// # Errors
    /// When the total or the plan cannot be; nothing has changed then.
    fn resize(&self, total_bytes: u64, plan: &Plan) -> Result<(), ApplyError>;

    /// Returns the state of every partition, in the order of their ids.
    fn observe(&self) -> Vec<Held>;

    /// Smallest budget that a partition can be given, bytes; 0 if there is no such limit.
    fn bytes_min(&self, partition: PartitionId) -> u64;

    /// Requests the plan, which takes effect some time later.
    ///
    /// # Errors
    /// When the plan does not fit the cache; nothing has changed then.
    fn apply(&self, plan: &Plan) -> Result<(), ApplyError>;

    /// Returns the budgets in force; none if the partitions share one LRU or if the actuator does
    /// not know them.
    fn budgets(&self) -> Option<Vec<u64>>;

    /// Returns whether the partitions can share one LRU.
    fn can_share(&self) -> bool;
}

/// The reason a plan is not applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The plan does not fit the cache.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The cache cannot have the total.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The total is that of separate caches.
    #[error("the total of caches that are instances of others is changed by a restart")]
    TotalOfInstances,
    /// The plan shares one LRU, and the partitions are separate caches.
    #[error(
        "caches that are instances of others cannot share one LRU; choose a policy that divides, such as robinhood"
    )]
    Sharing,
}

/// The backends of a node by their ids; none for a backend without a store.
pub(crate) struct Backends(pub(crate) Vec<Option<Arc<BackendDriver>>>);

impl Backends {
    /// Applies the plans of backends. Plans for backends without a store are ignored.
    fn apply(&self, plans: &[BackendPlan]) {
        for plan in plans {
            if let Some(Some(backend)) = self.0.get(plan.backend.index()) {
                backend.drive(|state, _, _| state.machine.apply(plan));
            }
        }
    }
}

/// The node's own cache. A plan is in force at once; the housekeeper evicts the bytes above it in
/// small steps.
pub(crate) struct OwnCache {
    cache: Arc<Cache>,
    partitions: usize,
    housekeeper: Thread,
    rates: PlanRates,
    backends: Backends,
}

impl OwnCache {
    /// Returns an actuator that applies plans to `cache`, which has `partitions` partitions, to the
    /// `rates` of tenants and to `backends`. It wakes `housekeeper` when there is something
    /// to evict.
    #[must_use]
    pub(crate) fn new(
        (cache, partitions): (Arc<Cache>, usize),
        housekeeper: Thread,
        rates: PlanRates,
        backends: Backends,
    ) -> Self {
        Self { cache, partitions, housekeeper, rates, backends }
    }
}

impl Actuator for OwnCache {
    fn total_bytes(&self) -> u64 {
        self.cache.total_bytes()
    }

    fn check_total(&self, total_bytes: u64) -> Result<(), ApplyError> {
        Ok(self.cache.check_total(total_bytes)?)
    }

    fn resize(&self, total_bytes: u64, plan: &Plan) -> Result<(), ApplyError> {
        self.cache.resize(total_bytes, &plan.cache)?;
        if let Some(rates) = &plan.rates {
            self.rates.set(rates);
        }
        self.housekeeper.unpark();
        Ok(())
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

    fn apply(&self, plan: &Plan) -> Result<(), ApplyError> {
        self.cache.check(&plan.cache)?;
        // A donor of cache has its compensation first.
        if let Some(rates) = &plan.rates {
            self.rates.set(rates);
        }
        self.cache.apply(&plan.cache)?;
        self.backends.apply(&plan.backends);
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

/// External cache instances, one for each partition. A plan sets each instance's wanted size; the
/// instance's task then resizes it.
pub(crate) struct Instances {
    total_bytes: u64,
    each: Vec<Arc<Instance>>,
    backends: Backends,
}

impl Instances {
    /// Divides `total_bytes` among the instances.
    #[must_use]
    pub(crate) fn new(total_bytes: u64, each: Vec<Arc<Instance>>, backends: Backends) -> Self {
        Self { total_bytes, each, backends }
    }
}

impl Actuator for Instances {
    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn check_total(&self, _: u64) -> Result<(), ApplyError> {
        Err(ApplyError::TotalOfInstances)
    }

    fn resize(&self, _: u64, _: &Plan) -> Result<(), ApplyError> {
        Err(ApplyError::TotalOfInstances)
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

    fn apply(&self, plan: &Plan) -> Result<(), ApplyError> {
        let CachePlan::Budgets(budgets) = &plan.cache else { return Err(ApplyError::Sharing) };
        let (given, partitions) = (budgets.len(), self.each.len());
        if given != partitions {
            return Err(PlanError::Partitions { given, partitions }.into());
        }
        let sum: u128 = budgets.iter().copied().map(u128::from).sum();
        if sum > u128::from(self.total_bytes) {
            return Err(PlanError::OverTotal { sum, total_bytes: self.total_bytes }.into());
        }
        self.each.iter().zip(budgets).for_each(|(instance, &bytes)| instance.wish(bytes));
        self.backends.apply(&plan.backends);
        Ok(())
    }

    fn budgets(&self) -> Option<Vec<u64>> {
        None
    }

    fn can_share(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use sherwood_cache::{Options, Partition};
    use sherwood_config::{Flags, parse};
    use sherwood_dispatch::Charged as _;
    use sherwood_model::{BackendId, Instant, Rates, SeededState, TenantId};

    use super::*;
    use crate::clock::Clock;
    use crate::control::RateLimits;
    use crate::setup::Setup;
    use crate::tenants::TenantNetwork;

    const TOTAL: u64 = 1 << 20;
    const TENANT: TenantId = TenantId(0);

    const CONFIGURATION: &str = r#"
        [[tenant]]
        name = "a"
        [[backend]]
        name = "orders"
        store = { kind = "compute", n = 1, bytes = "4KiB" }
        [[resource]]
        name = "network"
        kind = "network"
        total = "1KiB"
    "#;

    #[test]
    fn plan_refused_by_the_cache_changes_no_tenant_rates() {
        let config = parse("actuator.toml", CONFIGURATION, &Flags::default(), &[]).unwrap();
        let tenancy = Setup::from_config(&config).unwrap().tenancy.unwrap();
        let network = Arc::new(TenantNetwork::new(&tenancy, Clock::start()).unwrap());
        let rates = PlanRates::Own(RateLimits::new(&tenancy.resources, &[], Some(&network)));
        let partition = Partition::new(TENANT, BackendId(0), TOTAL);
        let cache =
            Arc::new(Cache::new(Options::sized(TOTAL, 1), &[partition], SeededState::new(1)).unwrap());
        let housekeeper = std::thread::current();
        let own = OwnCache::new((Arc::clone(&cache), 1), housekeeper, rates, Backends(Vec::new()));
        let plan =
            |budgets: Vec<u64>| Plan { rates: Some(Rates::zero(1, 1)), ..CachePlan::Budgets(budgets).into() };
        // Without a rate nothing is owed; with one of zero everything is.
        let owes = || network.gate().charge(Instant::from_secs(1), TENANT, 1.0).is_some();
        for budgets in [vec![TOTAL + 1], vec![TOTAL, 0]] {
            assert!(own.apply(&plan(budgets.clone())).is_err());
            assert!(own.resize(TOTAL, &plan(budgets)).is_err());
            assert!(!owes());
        }
        assert_eq!(cache.plan(), CachePlan::Budgets(vec![TOTAL]));
        own.apply(&plan(vec![TOTAL / 2])).unwrap();
        assert!(owes());
        assert_eq!(cache.plan(), CachePlan::Budgets(vec![TOTAL / 2]));
    }
}
