//! Quotas and use of tenants, as `INFO` and `stats` show them.

use sherwood_model::TenantId;

/// The quotas of a tenant, its use of them and its throughput.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantStanding {
    /// The tenant's name.
    pub name: String,
    /// Bytes of cache that the tenant holds.
    pub cache_bytes: u64,
    /// Throughput divided by that at the tenant's baseline; none while it is not known.
    pub normalized: Option<f64>,
    /// The resources, in the order of their ids.
    pub resources: Vec<ResourceStanding>,
}

/// A tenant's quota of a resource, and its use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceStanding {
    /// The resource's name.
    pub name: String,
    /// Units per second that the tenant holds.
    pub budget_per_s: f64,
    /// Units that the tenant has used since the start.
    pub used: f64,
    /// Requests of the tenant that wait for units.
    pub waiting: u64,
}

/// The standings of the tenants of a node.
pub trait Standings: Send + Sync {
    /// Returns the standing of a tenant; none if there is no such tenant.
    fn standing(&self, tenant: TenantId) -> Option<TenantStanding>;
}

impl TenantStanding {
    /// Returns names and values, in the order in which clients get them.
    pub(super) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("tenant".to_owned(), self.name.clone()),
            ("tenant_cache_bytes".to_owned(), self.cache_bytes.to_string()),
        ];
        if let Some(normalized) = self.normalized {
            lines.push(("tenant_normalized_throughput".to_owned(), format!("{normalized:.3}")));
        }
        for ResourceStanding { name, budget_per_s, used, waiting } in &self.resources {
            lines.push((format!("tenant_{name}_budget_per_s"), format!("{budget_per_s:.1}")));
            lines.push((format!("tenant_{name}_used"), format!("{used:.1}")));
            lines.push((format!("tenant_{name}_waiting"), waiting.to_string()));
        }
        lines
    }
}
