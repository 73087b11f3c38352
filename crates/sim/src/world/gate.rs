//! The gate of tenants' network at a node.

use std::sync::Arc;

use sherwood_dispatch::{DebtOptions, DebtQueues, TenantGate};
use sherwood_model::{Instant, Legs, TenantId};

/// Rates of the tenants' network at a node, and the requests that wait for them.
pub(crate) struct Network {
    pub(super) gate: Arc<TenantGate>,
    pub(super) waiting: DebtQueues<u32>,
    /// The time of the next wake-up.
    pub(super) armed: Option<Instant>,
    /// The legs whose bytes are charged.
    pub(super) legs: Legs,
}

impl Network {
    /// Returns the gate of a network without rates, of which no requests wait yet.
    pub(crate) fn new(gate: TenantGate, legs: Legs, options: DebtOptions) -> Self {
        let gate = Arc::new(gate);
        Self { waiting: DebtQueues::new(gate.clone(), options), gate, armed: None, legs }
    }

    /// Returns how many requests of a tenant wait.
    pub(super) fn waiting(&self, tenant: TenantId) -> u32 {
        self.waiting.waiting(tenant)
    }

    /// Sets the bytes per second of all tenants together, and of each.
    pub(super) fn set_rates(&mut self, now: Instant, total: f64, each: &[f64]) {
        self.gate.set_rates(now, total, each);
    }
}
