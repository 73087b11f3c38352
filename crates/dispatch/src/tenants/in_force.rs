//! The rates in force at a node, some of which end at a time.

use sherwood_model::Instant;

/// The rates of a resource at this node: those with loans, and those from the time on at which the
/// first loan ends.
///
/// Whatever enforces the rates changes to the second ones by itself, so that a driver that is late
/// does not extend a loan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RatesInForce {
    /// Rates until the end.
    pub rates: NodeRates,
    /// The end; never if nothing is borrowed.
    pub ends_at: Instant,
    /// Rates from the end on, without any loan from another node.
    pub without_loans: NodeRates,
}

/// Rates of a resource at a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRates {
    /// Units per second of all tenants together.
    pub total_per_s: f64,
    /// Units per second of each tenant, by its id; empty if the total pays for all.
    pub per_s: Vec<f64>,
}

impl RatesInForce {
    /// Returns the rates in force at a time.
    #[must_use]
    pub fn at(&self, now: Instant) -> &NodeRates {
        if now < self.ends_at { &self.rates } else { &self.without_loans }
    }
}
