//! The messages between nodes, and the steps of a node's driver.

use std::sync::Arc;

use sherwood_model::{Instant, ResourceId, TenantId};

use crate::RatesInForce;

/// A request for loans, and for the sender's parts in the receiver's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct RateAsk {
    /// The sender's process.
    pub incarnation: u64,
    /// The time at which the request was made, by the sender's clock. Loans run from it.
    pub stamp: Instant,
    /// The rates that the sender wants in all, those that it has borrowed included.
    pub wants: Vec<RateAmount>,
}

/// The answer to a [`RateAsk`].
#[derive(Clone, Debug, PartialEq)]
pub struct RateGrant {
    /// The process that asked.
    pub incarnation: u64,
    /// The stamp of the request.
    pub stamp: Instant,
    /// The receiver's part of each resource, units per second, in the configuration of the sender;
    /// none while the sender's own rates, with what it has lent, may exceed its parts.
    pub parts: Option<Vec<RatePart>>,
    /// The rates that are lent, for each that was wanted.
    pub loans: Vec<RateAmount>,
}

/// A rate of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateAmount {
    /// The resource.
    pub resource: ResourceId,
    /// The tenant that uses it.
    pub tenant: TenantId,
    /// Units per second.
    pub per_s: f64,
}

/// A node's part of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePart {
    /// The resource.
    pub resource: ResourceId,
    /// Units per second of all tenants.
    pub per_s: f64,
}

/// A step of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum RateAction {
    /// Set the rates of a resource at this node.
    SetRates(ResourceId, RatesInForce),
    /// Send a request for loans to a node.
    Ask(Arc<str>, RateAsk),
    /// Send the answer to a request to a node.
    Grant(Arc<str>, RateGrant),
}

/// A loan in force.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerLoan {
    /// The other node.
    pub node: Arc<str>,
    /// The tenant that uses the units, the resource, and the rate.
    pub amount: RateAmount,
}
