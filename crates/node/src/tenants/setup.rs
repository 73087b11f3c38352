//! Tenants and resources of a node that is not started yet.

use std::time::Duration;

use sherwood_model::{Legs, ResourceKind, Unit};

/// Name of the tenant of clients that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// Tenants among which cache and resources are divided, `[tenants]` in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct TenancySetup {
    /// Options of the division.
    pub options: TenancyOptions,
    /// The tenants, in the order of their ids; at least one and at most 1,024.
    pub tenants: Vec<TenantSetup>,
    /// The resources, in the order of their ids; at most 16.
    pub resources: Vec<ResourceSetup>,
}

/// Options of the division among tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct TenancyOptions {
    /// Name of the policy between tenants.
    pub policy: String,
    /// Time from one division to the next, 1 s to 1 h.
    pub period: Duration,
    /// Time over which demand and curves are observed, from the period to 1 h.
    pub window: Duration,
    /// Constant added to every miss ratio, 0 to 0.5.
    pub salt: f64,
    /// Least gain over the division in force with which a new one is applied, 0 to 1.
    pub apply_over: f64,
    /// True if idle units are lent to tenants that wait.
    pub lend: bool,
    /// True if units that do not raise the least throughput are divided, too.
    pub conserving: bool,
    /// Treatment of requests beyond a tenant's rate.
    pub over: Over,
}

/// Treatment of a request beyond its tenant's rate of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// The request waits for units, up to its deadline and within bounds.
    #[default]
    Wait,
    /// The request is refused at once.
    Refuse,
}

/// A tenant, `[[tenant]]` in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSetup {
    /// Unique name of the tenant.
    pub name: String,
    /// Names in password files whose clients belong to the tenant.
    pub users: Vec<String>,
    /// Prefix of the tenant's keys on listeners whose clients have no tenant of their own.
    pub prefix: Option<String>,
    /// Weight of the tenant where it has no share of its own in the baseline, 0.001 to 1,000.
    pub weight: f64,
    /// Least bytes of cache of the tenant, at most its baseline.
    pub bytes_min: u64,
    /// The tenant's baseline of the cache, bytes. Those of all tenants sum to at most the total.
    pub base_bytes: u64,
    /// The tenant's baseline of each resource, as shares of the resource's total, in the order of
    /// the resources' ids.
    pub base_shares: Vec<f64>,
}

/// A resource that refills every second, `[[resource]]` in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSetup {
    /// Unique name of the resource.
    pub name: String,
    /// Kind of the resource, with its backend.
    pub kind: ResourceKind,
    /// The measure of a read or a write; bytes for network.
    pub unit: Unit,
    /// Traffic that is counted, for network.
    pub legs: ResourceLegs,
    /// Units per second of all tenants together.
    pub total_per_s: f64,
}

/// Traffic that counts as use of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceLegs {
    /// Bytes between clients and the node, and between the node and backends.
    #[default]
    Both,
    /// Bytes between clients and the node only.
    Client,
}

impl From<ResourceLegs> for Legs {
    fn from(legs: ResourceLegs) -> Self {
        match legs {
            ResourceLegs::Both => Self::Both,
            ResourceLegs::Client => Self::Client,
        }
    }
}
