//! Changes of the cache's total while the node runs.

use std::sync::Arc;

use serde_json::json;
use sherwood_config::ByteSize;
use sherwood_model::CachePlan;
use sherwood_policy::tenants::TenantTerms;

use super::Control;
use super::change::ChangeError;

impl Control {
    /// Checks that the caches and the policies' options permit a total.
    pub(super) fn check_total(&self, total_bytes: u64) -> Result<(), ChangeError> {
        self.actuator.check_total(total_bytes)?;
        let names = &self.parts.names;
        let per_policy = match self.tenants() {
            Some(_) => names.backends().len(),
            None => names.partitions().len(),
        };
        Ok(self.rounds.options().validate(total_bytes, per_policy)?)
    }

    /// Sets the total, which was checked; with tenants, also their terms for it. Budgets keep their
    /// proportions, within the pins.
    pub(super) fn resize(&mut self, total_bytes: u64, terms: Option<Vec<TenantTerms>>) {
        let is_shared = self.parts.cache.plan() == CachePlan::Shared;
        let names = Arc::clone(&self.parts.names);
        let owners = names.partitions().iter().map(|partition| (partition.tenant, partition.backend));
        let plan = self.rounds.resize(total_bytes, terms, owners, is_shared);
        if let Err(error) = self.actuator.resize(total_bytes, &plan) {
            tracing::error!("the cache keeps its total: {error}");
            self.rounds.handle_refusal(self.actuator.budgets());
            return;
        }
        self.publish(None);
        if let Err(error) = self.parts.shadow.resize(total_bytes) {
            tracing::warn!("the simulated caches keep their sizes: {error}");
        }
        let said = format!("the cache's total is {} now", ByteSize(total_bytes));
        self.parts.events.say("memory", said, json!({ "total_bytes": total_bytes }));
        self.advance(self.parts.clock.now());
    }
}
