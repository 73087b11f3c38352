//! The division among tenants as the admin API shows it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sherwood_config::{ResourceSetup, TenancySetup};
use sherwood_dispatch::TenantUse;
use sherwood_model::{ResourceKind, TenantId};
use sherwood_policy::tenants::{Division, Share, TenantDecision, TenantStanding, TenantTerms};

use super::tenants::{SaidTrade, TenantLevels};
use crate::names::Names;

/// State of the division among tenants.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenants")]
pub(crate) struct TenantsView {
    /// Names of the policies between tenants.
    available: &'static [&'static str],
    /// Upper bound of the gain under any division; null if it is unknown.
    bound: Option<f64>,
    decisions: u64,
    /// The least normalized throughput by the curves; null if no resource limits a tenant.
    gain: Option<f64>,
    /// The latest decision; null before the first.
    latest: Option<TenantDecisionView>,
    /// True while holdings are on their way to a division.
    moving: bool,
    period_s: f64,
    policy: &'static str,
    resources: Vec<ResourceView>,
    tenants: Vec<TenantView>,
    total: ShareView,
    window_s: f64,
}

/// A decision between tenants.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TenantDecision")]
pub(crate) struct TenantDecisionView {
    applied: bool,
    bound: Option<f64>,
    gain: f64,
    gain_before: f64,
    /// The reason for which the division stayed; null when it was applied.
    kept: Option<String>,
    /// The decision in words.
    line: String,
    policy: &'static str,
    /// The trades, a sentence each.
    trades: Vec<String>,
}

/// A resource that is divided.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Resource")]
struct ResourceView {
    /// The backend of reads and writes; null for network.
    backend: Option<String>,
    #[schemars(extend("enum" = ["reads", "writes", "network"]))]
    kind: &'static str,
    name: String,
    total_per_s: f64,
}

/// Bytes of cache, and units per second of each resource, by name.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Share")]
struct ShareView {
    cache_bytes: u64,
    rates: BTreeMap<String, f64>,
}

/// A tenant: what it has, uses and waits for. Fields by resource have its name.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
struct TenantView {
    base: ShareView,
    /// Time for which the tenant asked for its baseline and was below it.
    below_baseline_s: f64,
    curve: CurvePoint,
    /// The share to which holdings move.
    goal: ShareView,
    hit_ratio: Option<f64>,
    holdings: ShareView,
    /// Units among the used ones that other tenants had left.
    lent_total: BTreeMap<String, f64>,
    min_bytes: u64,
    name: String,
    /// Measured throughput divided by that of the baseline; null if the tenant does not ask for
    /// more.
    normalized: Option<f64>,
    /// The same by the curves.
    predicted: Option<f64>,
    refused_total: BTreeMap<String, u64>,
    requests_per_s: f64,
    used: ShareView,
    used_total: BTreeMap<String, f64>,
    /// Reads and writes that wait for units.
    waiting: BTreeMap<String, u64>,
    weight: f64,
}

/// The miss ratio of a tenant with its present bytes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TenantMissRatio")]
struct CurvePoint {
    bytes: u64,
    miss_ratio: Option<f64>,
}

/// A division that was asked for.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Division")]
pub(crate) struct DivisionView {
    bound: Option<f64>,
    gain: f64,
    policy: &'static str,
    tenants: Vec<DividedTenant>,
}

/// A tenant's part of a division.
#[derive(Debug, Serialize, JsonSchema)]
struct DividedTenant {
    /// The stated baseline; null where it is by weight.
    base: Option<ShareView>,
    holdings: ShareView,
    name: String,
    /// Null if no resource would limit the tenant.
    normalized: Option<f64>,
    weight: f64,
}

impl TenantDecisionView {
    pub(super) fn of(decision: &TenantDecision) -> Self {
        let TenantDecision { policy, division, gain_before, kept, trades, line } = decision;
        Self {
            applied: kept.is_none(),
            bound: bound(division),
            gain: division.gain,
            gain_before: *gain_before,
            kept: kept.as_ref().map(ToString::to_string),
            line: line.clone(),
            policy,
            trades: trades.clone(),
        }
    }
}

impl TenantLevels<'_> {
    /// Returns the state of all tenants.
    pub(crate) fn view(&self, names: &Names) -> TenantsView {
        let (setup, between) = (self.setup(), self.levels().between());
        let standings = between.standings();
        let uses = self.traffic().uses();
        let tenants = standings.iter().zip(between.terms()).zip(&uses);
        TenantsView {
            available: sherwood_policy::tenants::available(),
            bound: self.latest().and_then(|decision| bound(&decision.division)),
            decisions: self.decisions(),
            gain: TenantStanding::gain(&standings),
            latest: self.latest().map(TenantDecisionView::of),
            moving: between.is_moving(),
            period_s: setup.options.period.as_secs_f64(),
            policy: between.policy().name(),
            resources: setup.resources.iter().map(|of| resource(of, names)).collect(),
            tenants: tenants.map(|((standing, terms), uses)| tenant(setup, standing, terms, uses)).collect(),
            total: share(setup, between.total()),
            window_s: setup.options.window.as_secs_f64(),
        }
    }

    /// Returns the latest trades, newest first.
    pub(crate) fn trades_view(&self) -> Vec<SaidTrade> {
        let mut trades: Vec<_> = self.trades().cloned().collect();
        trades.reverse();
        trades
    }

    /// Returns a division that was asked for, under these terms.
    pub(crate) fn division_view(&self, terms: &[TenantTerms], division: &Division) -> DivisionView {
        let setup = self.setup();
        let tenant = |(index, terms): (usize, &TenantTerms)| {
            let rates = division.rates.row(TenantId::from_index(index)).to_vec();
            DividedTenant {
                base: terms.base.as_ref().map(|base| share(setup, base)),
                holdings: share(setup, &Share { bytes: division.bytes[index], rates }),
                name: terms.name.clone(),
                normalized: division.limited(index),
                weight: terms.weight,
            }
        };
        DivisionView {
            bound: bound(division),
            gain: division.gain,
            policy: self.levels().between().policy().name(),
            tenants: terms.iter().enumerate().map(tenant).collect(),
        }
    }
}

fn tenant(
    setup: &TenancySetup,
    standing: &TenantStanding,
    terms: &TenantTerms,
    uses: &[TenantUse],
) -> TenantView {
    let used = Share { bytes: standing.used_bytes, rates: standing.used_per_s.clone() };
    TenantView {
        base: share(setup, &standing.base),
        below_baseline_s: standing.below_time.as_secs_f64(),
        curve: CurvePoint { bytes: standing.holdings.bytes, miss_ratio: standing.miss_ratio },
        goal: share(setup, &standing.goal),
        hit_ratio: standing.hit_ratio,
        holdings: share(setup, &standing.holdings),
        lent_total: by_resource(setup, uses, |of| of.lent_units),
        min_bytes: terms.min.bytes,
        name: standing.name.clone(),
        normalized: standing.normalized,
        predicted: standing.predicted,
        refused_total: by_resource(setup, uses, |of| of.refused),
        requests_per_s: standing.requests_per_s,
        used: share(setup, &used),
        used_total: by_resource(setup, uses, TenantUse::units),
        waiting: by_resource(setup, uses, |of| of.waiting.into()),
        weight: terms.weight,
    }
}

fn by_resource<T>(
    setup: &TenancySetup,
    uses: &[TenantUse],
    value: fn(&TenantUse) -> T,
) -> BTreeMap<String, T> {
    setup.resources.iter().zip(uses).map(|(of, used)| (of.name.clone(), value(used))).collect()
}

fn resource(resource: &ResourceSetup, names: &Names) -> ResourceView {
    let ResourceSetup { name, kind, total_per_s, .. } = resource;
    let (kind, backend) = match kind {
        ResourceKind::Reads(backend) => ("reads", Some(*backend)),
        ResourceKind::Writes(backend) => ("writes", Some(*backend)),
        ResourceKind::Network => ("network", None),
    };
    let backend = backend.map(|backend| names.backend(backend).to_owned());
    ResourceView { backend, kind, name: name.clone(), total_per_s: *total_per_s }
}

fn share(setup: &TenancySetup, share: &Share) -> ShareView {
    let rate = |(index, resource): (usize, &ResourceSetup)| {
        (resource.name.clone(), share.rates.get(index).copied().unwrap_or(0.0))
    };
    let rates = setup.resources.iter().enumerate().map(rate).collect();
    ShareView { cache_bytes: share.bytes, rates }
}

/// The bound of the gain, if it is finite: JSON has no infinity.
fn bound(division: &Division) -> Option<f64> {
    division.bound.filter(|bound| bound.is_finite())
}
