//! Requests that wait until their tenant's debt for network is paid.

use std::sync::Arc;

use sherwood_dispatch::{Charged as _, DebtOptions, DebtQueues, DebtWork, TenantGate};
use sherwood_model::{Instant, TenantId};
use sherwood_workload::tenants::{Scenario, Tenant};

use super::{Event, WAITING_MAX, World};
use crate::tenants::setup::Setup;

/// Rates of the tenants' network, and the requests that wait for them, as in a node.
pub(super) struct Network {
    gate: Arc<TenantGate>,
    waiting: DebtQueues<u32>,
    /// The time of the next wake-up.
    armed: Option<Instant>,
    /// Bytes that a request of each tenant takes at least.
    least_bytes: Vec<f64>,
}

impl Network {
    pub(super) fn new(setup: &Setup, scenario: &Scenario) -> Self {
        let least = |tenant: &Tenant| tenant.loads.iter().map(|load| load.item_bytes() as f64).sum();
        let tenants = scenario.tenants.len() as u16;
        let gate = Arc::new(TenantGate::new(tenants, setup.knobs.lends));
        // An open loop sends without end; a node has its bounds on connections.
        let options = DebtOptions { waiting_max: Some((WAITING_MAX, tenants)), ..DebtOptions::default() };
        Self {
            waiting: DebtQueues::new(gate.clone(), options),
            gate,
            armed: None,
            least_bytes: scenario.tenants.iter().map(least).collect(),
        }
    }

    /// Returns how many requests of a tenant wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> u32 {
        self.waiting.waiting(tenant)
    }

    /// Sets the bytes per second of all tenants together, and of each.
    pub(super) fn set_rates(&mut self, now: Instant, total: f64, each: &[f64]) {
        self.gate.set_rates(now, total, each);
    }

    /// Charges bytes that a request took beside the least.
    pub(super) fn charge(&mut self, now: Instant, tenant: TenantId, bytes: f64) {
        self.gate.charge(now, tenant, bytes);
    }
}

impl World {
    /// Executes a request of a tenant, unless the tenant is in debt: then the request waits, or is
    /// refused if too many do.
    pub(super) fn arrive(&mut self, tenant: TenantId, request: u32) {
        let Network { waiting, least_bytes, .. } = &mut self.network;
        let work = DebtWork { units: least_bytes[tenant.index()], latest: Instant::NEVER };
        match waiting.enter(self.now, tenant, work, || request) {
            Ok(None) => self.execute(request),
            Ok(Some(_)) => {}
            Err(refusal) => return self.refuse(request, Some(refusal.retry_in())),
        }
        self.arm_network();
    }

    /// Executes the requests that the rates of network allow.
    pub(super) fn admit(&mut self) {
        while let Some((_, request)) = self.network.waiting.start_next(self.now) {
            self.execute(request);
        }
        self.arm_network();
    }

    fn arm_network(&mut self) {
        if let Some(due) = self.network.waiting.next_timeout()
            && self.network.armed.is_none_or(|armed| due < armed)
        {
            self.network.armed = Some(due);
            self.events.schedule(due.max(self.now), Event::Network);
        }
    }

    pub(super) fn wake_network(&mut self) {
        if self.network.armed.is_some_and(|armed| armed <= self.now) {
            self.network.armed = None;
        }
        self.admit();
    }
}
