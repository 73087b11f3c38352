//! Metrics of tenants' use of resources.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_dispatch::TenantUse;
use sherwood_model::{ResourceKind, TenantId};

use super::{Labels, counters, gauges};
use crate::core::Core;

/// Encodes what each tenant has used of each resource, and what waits for it.
pub(super) fn encode(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(tenancy) = &core.tenancy else { return Ok(()) };
    let mut uses: Vec<(Labels, TenantUse)> = Vec::new();
    for resource in &tenancy.resources {
        let of = |tenant: TenantId| match resource.kind {
            ResourceKind::Reads(backend) => Some(core.backend(backend)?.used(tenant)?.reads),
            ResourceKind::Writes(backend) => Some(core.backend(backend)?.used(tenant)?.writes),
            ResourceKind::Network => Some(core.network.as_ref()?.used(tenant)),
        };
        for (index, tenant) in tenancy.tenants.iter().enumerate() {
            let Some(used) = of(TenantId::from_index(index)) else { continue };
            let labels = vec![("tenant", tenant.name.clone()), ("resource", resource.name.clone())];
            uses.push((labels, used));
        }
    }
    // Whole units: those of a key, a write or an answer.
    let counts = |value: fn(&TenantUse) -> u64| {
        uses.iter().map(|(labels, used)| (labels.clone(), value(used))).collect::<Vec<_>>()
    };
    let used = counts(|used| (used.own_units + used.lent_units) as u64);
    counters(encoder, "tenant_used", "Units of a resource that a tenant has used", used)?;
    let lent = counts(|used| used.lent_units as u64);
    counters(encoder, "tenant_lent", "Units in use that other tenants had left", lent)?;
    let waiting =
        uses.iter().map(|(labels, used)| (labels.clone(), f64::from(used.waiting))).collect::<Vec<_>>();
    gauges(encoder, "tenant_waiting", "Fetches and writes that wait for the tenant's rate", waiting)?;
    let refused = counts(|used| used.refused);
    counters(encoder, "tenant_refused", "Keys and writes refused because of the tenant's rate", refused)
}
