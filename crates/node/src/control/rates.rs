//! The rates of tenants at the backends, and of their traffic.

use std::sync::Arc;

use sherwood_config::ResourceSetup;
use sherwood_dispatch::RatesInForce;
use sherwood_model::{DemandKind, Rates, ResourceId, ResourceKind, TenantId};

use crate::backend::BackendDriver;
use crate::cluster::ClusterRates;
use crate::tenants::TenantNetwork;

/// Target of a plan's rates.
pub(crate) enum PlanRates {
    /// The limits themselves.
    Own(RateLimits),
    /// The rates that the node shares with others.
    Cluster(Arc<ClusterRates>),
}

impl PlanRates {
    /// Sets the rates of a plan.
    pub(super) fn set(&self, rates: &Rates) {
        match self {
            Self::Own(limits) => limits.set(rates),
            Self::Cluster(shared) => shared.set_plan(rates),
        }
    }
}

/// The limits of tenants' work.
#[derive(Default)]
pub(crate) struct RateLimits(Vec<RateLimit>);

/// The limit of a resource.
struct RateLimit {
    resource: ResourceId,
    total_per_s: f64,
    limited: Limited,
}

/// The work that a rate limits.
enum Limited {
    Backend(Arc<BackendDriver>, DemandKind),
    Network(Arc<TenantNetwork>),
}

impl RateLimits {
    /// Creates the limits of the resources; none of backends without a store.
    pub(crate) fn new(
        resources: &[ResourceSetup],
        backends: &[Option<Arc<BackendDriver>>],
        network: Option<&Arc<TenantNetwork>>,
    ) -> Self {
        let of_backend = |id: sherwood_model::BackendId, kind| {
            Some(Limited::Backend(Arc::clone(backends[id.index()].as_ref()?), kind))
        };
        let limit = |(index, resource): (usize, &ResourceSetup)| {
            let limited = match resource.kind {
                ResourceKind::Reads(backend) => of_backend(backend, DemandKind::Read)?,
                ResourceKind::Writes(backend) => of_backend(backend, DemandKind::Write)?,
                ResourceKind::Network => Limited::Network(Arc::clone(network?)),
            };
            let resource_id = ResourceId::from_index(index);
            Some(RateLimit { resource: resource_id, total_per_s: resource.total_per_s, limited })
        };
        Self(resources.iter().enumerate().filter_map(limit).collect())
    }

    /// Sets every limit. O(tenants) under the lock of each backend, and of the network.
    fn set(&self, rates: &Rates) {
        for RateLimit { resource, total_per_s, limited } in &self.0 {
            let tenants = (0..rates.tenants()).map(TenantId::from_index);
            let per_s: Vec<f64> = tenants.map(|tenant| rates.get(tenant, *resource)).collect();
            let per_s = if rates.are_common() { &[][..] } else { &per_s };
            match limited {
                Limited::Backend(backend, kind) => backend.set_rates(*kind, *total_per_s, per_s),
                Limited::Network(network) => network.set_rates(*total_per_s, per_s),
            }
        }
    }

    /// Sets the limit of a resource, with loans of other nodes.
    pub(crate) fn set_in_force(&self, resource: ResourceId, rates: &RatesInForce) {
        for limit in self.0.iter().filter(|limit| limit.resource == resource) {
            match &limit.limited {
                Limited::Backend(backend, kind) => backend.set_rates_in_force(*kind, rates),
                Limited::Network(network) => network.set_rates_in_force(rates),
            }
        }
    }
}
