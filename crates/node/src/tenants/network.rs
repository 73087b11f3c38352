//! The rates of tenants' network traffic, common to listeners, gateway and backends.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_dispatch::{TenantGate, TenantUse};
use sherwood_listener::Network;
use sherwood_model::{Instant, Legs, ResourceKind, TenantId};

use super::{Over, TenancySetup};
use crate::clock::Clock;

/// The rates of tenants' network traffic.
pub(crate) struct TenantNetwork {
    gate: Mutex<TenantGate>,
    /// The traffic that is counted.
    legs: Legs,
    over: Over,
}

impl TenantNetwork {
    /// Creates the rates with the baselines of the declared tenants; none without a resource of
    /// this kind.
    pub(crate) fn new(tenancy: &TenancySetup, now: Instant) -> Option<Self> {
        let of_network = |resource: &&super::ResourceSetup| resource.kind == ResourceKind::Network;
        let index = tenancy.resources.iter().position(|resource| of_network(&resource))?;
        let resource = &tenancy.resources[index];
        // A configuration has at most 1,024 tenants.
        let mut gate = TenantGate::new(tenancy.tenants.len() as u16, tenancy.options.lend);
        let per_s = tenancy.tenants.iter().map(|tenant| tenant.base_shares[index] * resource.total_per_s);
        gate.set_rates(now, resource.total_per_s, &per_s.collect::<Vec<_>>());
        Some(Self { gate: Mutex::new(gate), legs: resource.legs.into(), over: tenancy.options.over })
    }

    /// Charges bytes between the node and a backend, if they are counted.
    pub(crate) fn charge_backend(&self, now: Instant, tenant: TenantId, bytes: usize) {
        if self.legs == Legs::Both {
            self.charge(now, tenant, bytes as u64);
        }
    }

    /// Waits until a tenant's debt is paid.
    ///
    /// # Errors
    /// If that is later than `latest`, or nothing may wait: the time until then.
    pub(crate) async fn admit(
        &self,
        clock: Clock,
        tenant: TenantId,
        latest: Instant,
    ) -> Result<(), Duration> {
        loop {
            let now = clock.now();
            let Some(paid_at) = self.charge(now, tenant, 0) else { return Ok(()) };
            if self.over == Over::Refuse || paid_at > latest {
                return Err(paid_at - now);
            }
            tokio::time::sleep(paid_at - now).await;
        }
    }

    /// Returns what a tenant has used.
    pub(crate) fn used(&self, tenant: TenantId) -> TenantUse {
        self.gate().used(tenant)
    }

    fn gate(&self) -> MutexGuard<'_, TenantGate> {
        self.gate.lock().expect("no panics while held")
    }
}

impl Network for TenantNetwork {
    fn charge(&self, now: Instant, tenant: TenantId, bytes: u64) -> Option<Instant> {
        self.gate().charge(now, tenant, bytes as f64)
    }
}
