//! Changes of the cache's total while the node runs.

use serde_json::json;
use sherwood_config::{ByteSize, Pin};
use sherwood_model::CachePlan;
use sherwood_policy::PartitionObservation;
use sherwood_policy::tenants::TenantTerms;

use super::change::ChangeError;
use super::{Control, Levels};
use crate::names::PartitionName;

impl Control {
    /// Checks that the caches and the policies' options permit a total.
    pub(super) fn check_total(&self, total_bytes: u64) -> Result<(), ChangeError> {
        self.actuator.check_total(total_bytes)?;
        let names = &self.parts.names;
        let per_policy = match self.levels.tenants() {
            Some(_) => names.backends().len(),
            None => names.partitions().len(),
        };
        Ok(self.options.validate(total_bytes, per_policy)?)
    }

    /// Sets the total, which was checked; with tenants, also their terms for it. Budgets keep their
    /// proportions, within the pins.
    pub(super) fn resize(&mut self, total_bytes: u64, terms: Option<Vec<TenantTerms>>) {
        let pinned: Vec<_> = self.parts.names.partitions().iter().zip(&self.pins).map(pinned).collect();
        let is_shared = self.parts.cache.plan() == CachePlan::Shared;
        let plan = match (&mut self.levels, terms) {
            (Levels::Two(tenants), Some(terms)) => {
                tenants.resize(total_bytes, terms);
                tenants.plan()
            }
            (Levels::Two(_), None) => unreachable!("a checked total of tenants has terms"),
            (Levels::One(controller), _) => {
                controller.resize(total_bytes, &pinned);
                let budgets = CachePlan::Budgets(controller.budgets().to_vec());
                if is_shared { CachePlan::Shared.into() } else { budgets.into() }
            }
        };
        if let Err(error) = self.actuator.resize(total_bytes, &plan) {
            tracing::error!("the cache keeps its total: {error}");
            return;
        }
        if let Err(error) = self.parts.shadow.resize(total_bytes) {
            tracing::warn!("the simulated caches keep their sizes: {error}");
        }
        let said = format!("the cache's total is {} now", ByteSize(total_bytes));
        self.parts.events.say("memory", said, json!({ "total_bytes": total_bytes }));
        self.advance(self.parts.clock.now());
    }
}

/// Returns what policies see of a partition's pin.
fn pinned((partition, pin): (&PartitionName, &Pin)) -> PartitionObservation {
    PartitionObservation {
        min_bytes: pin.min_bytes,
        max_bytes: pin.max_bytes,
        dry_run: pin.dry_run,
        ..PartitionObservation::new(partition.tenant, partition.backend)
    }
}
