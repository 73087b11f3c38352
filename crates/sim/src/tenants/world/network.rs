//! Requests that wait until their tenant's debt for network is paid.

use sherwood_dispatch::{DebtQueues, TenantGate};
use sherwood_model::{Instant, TenantId};
use sherwood_workload::tenants::{Scenario, Tenant};

use super::{Event, WAITING_MAX, World};
use crate::tenants::setup::Setup;

/// Rates of the tenants' network, and the requests that wait for them, as in a node.
pub(super) struct Network {
    gate: TenantGate,
    waiting: DebtQueues<u32>,
    /// The time of the next wake-up.
    armed: Option<Instant>,
    /// Bytes that a request of each tenant takes at least.
    least_bytes: Vec<f64>,
}

impl Network {
    pub(super) fn new(setup: &Setup, scenario: &Scenario) -> Self {
        let least = |tenant: &Tenant| tenant.loads.iter().map(|load| load.item_bytes() as f64).sum();
        Self {
            gate: TenantGate::new(scenario.tenants.len() as u16, setup.knobs.lends),
            waiting: DebtQueues::new(),
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

    /// True if no more of a tenant's requests may wait. An open loop sends without end; a node has
    /// its bounds on connections.
    fn is_full(&self, tenant: TenantId) -> bool {
        self.waiting.waiting(tenant) >= WAITING_MAX / self.least_bytes.len().max(1) as u32
    }
}

impl World {
    /// Executes a request of a tenant, unless the tenant is in debt: then the request waits, or is
    /// refused if too many do.
    pub(super) fn arrive(&mut self, tenant: TenantId, request: u32) {
        let paid_at = self.network.gate.charge(self.now, tenant, 0.0);
        if self.network.is_full(tenant) {
            return self.refuse(request, paid_at.map(|paid_at| paid_at - self.now));
        }
        if self.network.waiting.hold(self.now, tenant, paid_at, || request).is_none() {
            self.start(tenant, request);
        }
        self.arm_network();
    }

    /// Executes the requests that the rates of network allow.
    pub(super) fn admit(&mut self) {
        loop {
            let (now, Network { gate, waiting, .. }) = (self.now, &mut self.network);
            let started = waiting.start_next(now, |tenant| gate.charge(now, tenant, 0.0));
            let Some((tenant, request)) = started else { break };
            self.start(tenant, request);
        }
        self.arm_network();
    }

    fn start(&mut self, tenant: TenantId, request: u32) {
        let least = self.network.least_bytes[tenant.index()];
        self.network.charge(self.now, tenant, least);
        self.execute(request);
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
