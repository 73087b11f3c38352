//! The gate that enforces the tenants' network rates at a node.

use std::sync::Arc;

use sherwood_dispatch::{DebtOptions, DebtQueues, TenantGate};
use sherwood_model::{Instant, Legs, TenantId};

/// Network rates of the tenants at a node, and the requests that wait because of them.
pub(crate) struct Network {
    pub(super) gate: Arc<TenantGate>,
    pub(super) waiting: DebtQueues<u32>,
    /// The time of the next wake-up.
    pub(super) armed: Option<Instant>,
    /// Legs of the path (client to node, node to backend) whose bytes are charged.
    pub(super) legs: Legs,
}

impl Network {
    /// Returns a gate that has no rates and no waiting requests yet.
    pub(crate) fn new(gate: TenantGate, legs: Legs, options: DebtOptions) -> Self {
        let gate = Arc::new(gate);
        Self { waiting: DebtQueues::new(gate.clone(), options), gate, armed: None, legs }
    }

    /// Returns how many requests of a tenant wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> u32 {
        self.waiting.waiting(tenant)
    }

    /// Sets the rate of all tenants together and of each tenant, in bytes per second.
    pub(super) fn set_rates(&mut self, now: Instant, total: f64, each: &[f64]) {
        self.gate.set_rates(now, total, each);
    }
}
