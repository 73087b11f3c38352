//! The rates of tenants' network traffic, common to listeners, gateway and backends.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_dispatch::{OverRate, TenantGate, TenantUse};
use sherwood_listener::Network;
use sherwood_model::{Instant, Legs, ResourceKind, TenantId};

use super::TenancySetup;
use crate::clock::Clock;

/// The rates of tenants' network traffic.
pub(crate) struct TenantNetwork {
    gate: Mutex<TenantGate>,
    /// The traffic that is counted.
    legs: Legs,
    over: OverRate,
    clock: Clock,
}

impl TenantNetwork {
    /// Creates the gate of the declared tenants, without limits; none without a resource of this
    /// kind.
    pub(crate) fn new(tenancy: &TenancySetup, clock: Clock) -> Option<Self> {
        tenancy.resources.iter().find(|resource| resource.kind == ResourceKind::Network)?;
        // A configuration has at most 1,024 tenants.
        let gate = TenantGate::new(tenancy.tenants.len() as u16, tenancy.options.lend);
        let (legs, over) = (tenancy.legs(), tenancy.options.over);
        Some(Self { gate: Mutex::new(gate), legs, over, clock })
    }

    /// Sets the bytes per second of all tenants together, and of each tenant by its id.
    pub(crate) fn set_rates(&self, total_per_s: f64, per_s: &[f64]) {
        self.gate().set_rates(self.clock.now(), total_per_s, per_s);
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
    pub(crate) async fn admit(&self, tenant: TenantId, latest: Instant) -> Result<(), Duration> {
        loop {
            let now = self.clock.now();
            let Some(paid_at) = self.charge(now, tenant, 0) else { return Ok(()) };
            if self.over == OverRate::Refuse || paid_at > latest {
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
