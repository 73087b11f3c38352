//! The rates of tenants' network traffic, common to listeners, gateway and backends.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::TenancySetup;
use sherwood_dispatch::{LOOK_AGAIN, OverRate, TenantGate, TenantUse};
use sherwood_listener::Network;
use sherwood_model::{Instant, Legs, ResourceKind, TenantId};

use crate::clock::Clock;

/// The rates of tenants' network traffic.
pub(crate) struct TenantNetwork {
    gate: Mutex<TenantGate>,
    /// Counts of what waits and was refused, of each tenant.
    held: Vec<Held>,
    /// The traffic that is counted.
    legs: Legs,
    over: OverRate,
    clock: Clock,
}

/// A tenant's clients that wait until its debt is paid, and the requests to the gateway that were
/// refused instead.
#[derive(Debug, Default)]
struct Held {
    waiting: AtomicU32,
    refused: AtomicU64,
}

impl TenantNetwork {
    /// Creates the gate of the declared tenants, without limits; none without a resource of this
    /// kind.
    pub(crate) fn new(tenancy: &TenancySetup, clock: Clock) -> Option<Self> {
        tenancy.resources.iter().find(|resource| resource.kind == ResourceKind::Network)?;
        // A configuration has at most 1,024 tenants.
        let gate = TenantGate::new(tenancy.tenants.len() as u16, tenancy.options.lend);
        let (legs, over) = (tenancy.legs(), tenancy.options.over);
        let held = tenancy.tenants.iter().map(|_| Held::default()).collect();
        Some(Self { gate: Mutex::new(gate), held, legs, over, clock })
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
                self.held.get(tenant.index()).inspect(|held| _ = held.refused.fetch_add(1, Relaxed));
                return Err(paid_at - now);
            }
            let _waits = Waits::begin(self, tenant);
            tokio::time::sleep((paid_at - now).min(LOOK_AGAIN)).await;
        }
    }

    /// Returns what a tenant has used, its clients that wait, and its refused requests.
    pub(crate) fn used(&self, tenant: TenantId) -> TenantUse {
        let used = self.gate().used(tenant);
        let Some(held) = self.held.get(tenant.index()) else { return used };
        TenantUse { waiting: held.waiting.load(Relaxed), refused: held.refused.load(Relaxed), ..used }
    }

    fn gate(&self) -> MutexGuard<'_, TenantGate> {
        self.gate.lock().expect("no panics while held")
    }
}

impl Network for TenantNetwork {
    fn charge(&self, now: Instant, tenant: TenantId, bytes: u64) -> Option<Instant> {
        self.gate().charge(now, tenant, bytes as f64)
    }

    fn note_waiting(&self, tenant: TenantId, waits: bool) {
        let Some(Held { waiting, .. }) = self.held.get(tenant.index()) else { return };
        if waits {
            waiting.fetch_add(1, Relaxed)
        } else {
            waiting.fetch_sub(1, Relaxed)
        };
    }
}

/// A request to the gateway that waits, counted until it is dropped: its client may disconnect.
struct Waits<'a> {
    network: &'a TenantNetwork,
    tenant: TenantId,
}

impl<'a> Waits<'a> {
    fn begin(network: &'a TenantNetwork, tenant: TenantId) -> Self {
        network.note_waiting(tenant, true);
        Self { network, tenant }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.network.note_waiting(self.tenant, false);
    }
}
