//! Metrics of tenants.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_dispatch::TenantUse;
use sherwood_model::TenantId;
use sherwood_policy::tenants::TenantStanding;

use super::samples::{Labels, amounts, gauges, one};
use crate::core::Core;

/// Encodes the division among tenants, and their use of what they have; nothing without tenants.
pub(super) fn encode(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(counters) = &core.counters else { return Ok(()) };
    let (standings, bound) = {
        let control = core.control();
        let Some(tenants) = control.tenants() else { return Ok(()) };
        let bound = tenants.latest().and_then(|decision| decision.division.bound);
        (tenants.levels().between().standings(), bound)
    };
    of_standings(core, &standings, bound, encoder)?;
    of_uses(core, &counters.uses(), encoder)
}

fn of_standings(
    core: &Core,
    standings: &[TenantStanding],
    bound: Option<f64>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let each = |value: fn(&TenantStanding) -> Option<f64>| -> Vec<(Labels, f64)> {
        let sample = |(index, standing)| Some((tenant(core, index), value(standing)?));
        standings.iter().enumerate().filter_map(sample).collect()
    };
    gauges(
        encoder,
        "tenant_normalized_throughput",
        "Measured throughput divided by that of the baseline, while the tenant asks for more",
        each(|standing| standing.normalized),
    )?;
    let gain = TenantStanding::gain(standings);
    let help = "Least normalized throughput of all tenants by their curves, with what they have now";
    gauges(encoder, "tenant_gain_ratio", help, gain.map(one).unwrap_or_default())?;
    let help = "Upper bound of the least normalized throughput under any division, at the last decision";
    let bound = bound.filter(|bound| bound.is_finite());
    gauges(encoder, "tenant_bound_ratio", help, bound.map(one).unwrap_or_default())?;
    let mut budgets: Vec<(Labels, f64)> = Vec::new();
    for (index, standing) in standings.iter().enumerate() {
        budgets.push((with_resource(core, index, "cache"), standing.holdings.bytes as f64));
        for (resource, rate) in resources(core).zip(&standing.holdings.rates) {
            budgets.push((with_resource(core, index, resource), *rate));
        }
    }
    gauges(encoder, "tenant_budget", "Bytes of cache, and units per second of each resource", budgets)?;
    let help = "Time for which the tenant asked for its baseline and was below it";
    let below = each(|standing| Some(standing.below_time.as_secs_f64()));
    amounts(encoder, "tenant_below_baseline_seconds", help, below)
}

fn of_uses(core: &Core, uses: &[Vec<TenantUse>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let each = |value: fn(&TenantUse) -> f64| -> Vec<(Labels, f64)> {
        let of_tenant = |(index, uses): (usize, &Vec<TenantUse>)| -> Vec<(Labels, f64)> {
            let sample =
                |(resource, used): (&str, &TenantUse)| (with_resource(core, index, resource), value(used));
            resources(core).zip(uses).map(sample).collect()
        };
        uses.iter().enumerate().flat_map(of_tenant).collect()
    };
    amounts(encoder, "tenant_used", "Units of the resource that were used", each(TenantUse::units))?;
    let help = "Units among them that other tenants had left";
    amounts(encoder, "tenant_lent", help, each(|of| of.lent_units))?;
    let help = "Reads and writes that were refused, their tenant's rate having no units for them in time";
    amounts(encoder, "tenant_refused", help, each(|of| of.refused as f64))?;
    gauges(encoder, "tenant_waiting", "Reads and writes that wait for units", each(|of| of.waiting.into()))
}

fn tenant(core: &Core, index: usize) -> Labels {
    vec![("tenant", core.names.tenant(TenantId::from_index(index)).to_owned())]
}

fn with_resource(core: &Core, index: usize, resource: &str) -> Labels {
    let mut labels = tenant(core, index);
    labels.push(("resource", resource.to_owned()));
    labels
}

fn resources(core: &Core) -> impl Iterator<Item = &str> {
    core.tenancy.iter().flat_map(|tenancy| &tenancy.resources).map(|resource| resource.name.as_str())
}
