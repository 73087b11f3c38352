//! Quotas and use of tenants for `INFO` and `stats`.

use std::sync::Arc;

use sherwood_config::{ResourceSetup, TenancySetup};
use sherwood_dispatch::TenantUse;
use sherwood_listener::{ResourceStanding, Standings, TenantStanding};
use sherwood_model::TenantId;

use super::TenantCounters;
use crate::control::Quotas;
use crate::names::Names;

/// The standings of a node's tenants. They are read without waiting for a decision.
pub(crate) struct NodeStandings {
    pub(crate) names: Arc<Names>,
    pub(crate) setup: Arc<TenancySetup>,
    pub(crate) counters: Arc<TenantCounters>,
    pub(crate) quotas: Arc<Quotas>,
}

impl Standings for NodeStandings {
    fn standing(&self, tenant: TenantId) -> Option<TenantStanding> {
        let quota = self.quotas.of(tenant)?;
        let uses = self.counters.uses_of(tenant);
        let resources = self.setup.resources.iter().zip(&quota.rates).zip(uses);
        let standing =
            |((resource, &budget_per_s), used): ((&ResourceSetup, &f64), TenantUse)| ResourceStanding {
                name: resource.name.clone(),
                budget_per_s,
                used: used.units(),
                waiting: used.waiting.into(),
            };
        Some(TenantStanding {
            name: self.names.tenant(tenant).to_owned(),
            cache_bytes: quota.bytes,
            normalized: quota.normalized,
            resources: resources.map(standing).collect(),
        })
    }
}
