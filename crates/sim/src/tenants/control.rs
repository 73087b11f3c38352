//! The control loop of a node with tenants: one policy divides resources between the tenants,
//! another the cache within each tenant.

use std::time::Duration;

use sherwood_control::{Admission, ControlLoop, Levels, Pin};
use sherwood_model::Instant;
use sherwood_policy::tenants::{
    Share, TenantControlOptions, TenantController, TenantOptions, TenantResource, TenantTerms, by_name,
};
use sherwood_policy::{Options, TwoLevels};
use sherwood_workload::tenants::{Control, Decide, Resource, Scenario, Tenant};

use super::part::{Part, kind};
use super::setup::{Setup, SetupError};
use super::within;

/// Returns the control loop of a node with these partitions.
pub(super) fn control_loop(
    setup: &Setup,
    scenario: &Scenario,
    parts: &[Part],
) -> Result<ControlLoop, SetupError> {
    let Control { decide, period, window, salt, apply_over } = scenario.control;
    let (period, window) = match decide {
        Decide::Live => (period.0, window.0.max(period.0)),
        Decide::Once => (once_window(scenario), once_window(scenario)),
    };
    let options = TenantControlOptions { period, window, salt, apply_over, ..Default::default() };
    let described = |resource: &Resource| TenantResource {
        name: resource.name.clone(),
        kind: kind(resource, scenario),
        total_per_s: scenario.tenants.iter().map(|tenant| tenant.rates[&resource.name]).sum(),
    };
    let resources = scenario.resources.iter().map(described).collect();
    let least = scenario.tenants.iter().map(|tenant| tenant.cache.0).min().unwrap_or(0);
    let chunk_bytes = (least / CHUNKS).max(1);
    let policy = by_name(&setup.policy, TenantOptions { chunk_bytes, conserving: true })?;
    let terms = scenario.tenants.iter().map(|tenant| terms(tenant, scenario)).collect();
    let between = TenantController::new(policy, options, resources, scenario.cache_bytes(), terms)?;
    let levels = TwoLevels::new(between, within::controllers(setup, scenario, parts)?)?;
    let (levels, pins) = (Levels::Two(Box::new(levels)), vec![Pin::default(); parts.len()]);
    Ok(ControlLoop::new(levels, Admission::default(), Options::default(), pins, Instant::ZERO))
}

/// Returns the length of the past period, ending in the middle of the warm-up, on which a single
/// decision is based.
pub(super) fn once_window(scenario: &Scenario) -> Duration {
    scenario.control.window.0.min(scenario.warm_up.0 / 2)
}

/// Returns the terms of a tenant: its baseline, and no least share beside the controller's own.
fn terms(tenant: &Tenant, scenario: &Scenario) -> TenantTerms {
    let rates = scenario.resources.iter().map(|resource| tenant.rates[&resource.name]).collect();
    let base = Share { bytes: tenant.cache.0, rates };
    TenantTerms { name: tenant.name.clone(), weight: 1.0, base: Some(base), min: Share::default() }
}

/// Chunks of a baseline that policies with chunks move at a time, as in the published evaluation.
const CHUNKS: u64 = 64;
