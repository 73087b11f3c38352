//! The gate of tenants' network at a node.

use sherwood_dispatch::{DebtQueues, TenantGate};
use sherwood_model::{Instant, Legs, TenantId};

/// Rates of the tenants' network at a node, and the requests that wait for them.
#[derive(Clone)]
pub(crate) struct Network {
    pub(super) gate: TenantGate,
    pub(super) waiting: DebtQueues<u32>,
    /// The time of the next wake-up.
    pub(super) armed: Option<Instant>,
    /// The legs whose bytes are charged.
    pub(super) legs: Legs,
    /// Most requests of a tenant that may wait. An open loop sends without end; a daemon has its
    /// bounds on connections.
    pub(super) waiting_max: u32,
}

impl Network {
    pub(crate) fn new(gate: TenantGate, legs: Legs, waiting_max: u32) -> Self {
        Self { gate, waiting: DebtQueues::new(), armed: None, legs, waiting_max }
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
