//! The division among tenants as the admin API shows it.

use serde_json::{Map, Value, json};
use sherwood_model::{ResourceKind, TenantId};
use sherwood_policy::tenants::{Division, Share, TenantDecision, TenantStanding, TenantTerms};

use super::tenants::{SaidTrade, TenantLevels};
use crate::names::Names;
use crate::tenants::{ResourceSetup, ResourceUse, TenancySetup};

/// Returns a decision between tenants as JSON.
pub(super) fn decision(decision: &TenantDecision) -> Value {
    let TenantDecision { policy, division, gain_before, kept, trades, line } = decision;
    json!({
        "policy": policy,
        "applied": kept.is_none(),
        "kept": kept.as_ref().map(ToString::to_string),
        "gain_before": gain_before,
        "gain": division.gain,
        "bound": bound(division),
        "trades": trades,
        "line": line,
    })
}

impl TenantLevels {
    /// Returns the state of all tenants.
    pub(crate) fn view(&self, names: &Names) -> Value {
        let (setup, between) = (self.setup(), self.levels().between());
        let standings = between.standings();
        let uses = self.traffic().uses();
        let tenants = standings.iter().zip(between.terms()).zip(&uses);
        let tenants: Vec<Value> =
            tenants.map(|((standing, terms), uses)| tenant(setup, standing, terms, uses)).collect();
        json!({
            "policy": between.policy().name(),
            "available": sherwood_policy::tenants::available(),
            "period_s": setup.options.period.as_secs_f64(),
            "window_s": setup.options.window.as_secs_f64(),
            "total": share(setup, between.total()),
            "resources": setup.resources.iter().map(|of| resource(of, names)).collect::<Vec<_>>(),
            "gain": TenantStanding::gain(&standings),
            "bound": self.latest().and_then(|decision| bound(&decision.division)),
            "moving": between.is_moving(),
            "decisions": self.decisions(),
            "latest": self.latest().map(decision),
            "tenants": tenants,
        })
    }

    /// Returns the latest trades, newest first.
    pub(crate) fn trades_view(&self) -> Vec<SaidTrade> {
        let mut trades: Vec<_> = self.trades().cloned().collect();
        trades.reverse();
        trades
    }

    /// Returns a division that was asked for, under these terms.
    pub(crate) fn division_view(&self, terms: &[TenantTerms], division: &Division) -> Value {
        let setup = self.setup();
        let tenant = |(index, terms): (usize, &TenantTerms)| {
            let rates = division.rates.row(TenantId::from_index(index)).to_vec();
            json!({
                "name": terms.name,
                "weight": terms.weight,
                "base": terms.base.as_ref().map(|base| share(setup, base)),
                "holdings": share(setup, &Share { bytes: division.bytes[index], rates }),
                "normalized": division.limited(index),
            })
        };
        json!({
            "policy": self.levels().between().policy().name(),
            "gain": division.gain,
            "bound": bound(division),
            "tenants": terms.iter().enumerate().map(tenant).collect::<Vec<_>>(),
        })
    }
}

fn tenant(
    setup: &TenancySetup,
    standing: &TenantStanding,
    terms: &TenantTerms,
    uses: &[ResourceUse],
) -> Value {
    let each = |value: fn(&ResourceUse) -> Value| -> Map<String, Value> {
        setup.resources.iter().zip(uses).map(|(of, used)| (of.name.clone(), value(used))).collect()
    };
    let used = Share { bytes: standing.used_bytes, rates: standing.used_per_s.clone() };
    json!({
        "name": standing.name,
        "weight": terms.weight,
        "min_bytes": terms.min.bytes,
        "base": share(setup, &standing.base),
        "holdings": share(setup, &standing.holdings),
        "goal": share(setup, &standing.goal),
        "used": share(setup, &used),
        "used_total": each(|of| of.units.into()),
        "lent_total": each(|of| of.lent_units.into()),
        "refused_total": each(|of| of.refused.into()),
        "waiting": each(|of| of.waiting.into()),
        "requests_per_s": standing.requests_per_s,
        "hit_ratio": standing.hit_ratio,
        "curve": { "bytes": standing.holdings.bytes, "miss_ratio": standing.miss_ratio },
        "normalized": standing.normalized,
        "predicted": standing.predicted,
        "below_baseline_s": standing.below_time.as_secs_f64(),
    })
}

fn resource(resource: &ResourceSetup, names: &Names) -> Value {
    let ResourceSetup { name, kind, total_per_s, .. } = resource;
    let (kind, backend) = match kind {
        ResourceKind::Reads(backend) => ("reads", Some(*backend)),
        ResourceKind::Writes(backend) => ("writes", Some(*backend)),
        ResourceKind::Network => ("network", None),
    };
    let backend = backend.map(|backend| names.backend(backend));
    json!({ "name": name, "kind": kind, "backend": backend, "total_per_s": total_per_s })
}

fn share(setup: &TenancySetup, share: &Share) -> Value {
    let rate = |(index, resource): (usize, &ResourceSetup)| {
        (resource.name.clone(), share.rates.get(index).copied().unwrap_or(0.0).into())
    };
    let rates: Map<String, Value> = setup.resources.iter().enumerate().map(rate).collect();
    json!({ "cache_bytes": share.bytes, "rates": rates })
}

/// The bound of the gain, if it is finite: JSON has no infinity.
fn bound(division: &Division) -> Option<f64> {
    division.bound.filter(|bound| bound.is_finite())
}
