//! Results of policies between tenants, over all seeds, and the results that are required.

use serde::Serialize;
use sherwood_sim::tenants::{BASELINE, ByTenant, Results};

use super::study::Group;
use crate::sim::claims::{Claim, Form};
use crate::sim::comparison::{Figures, Measure, SummaryLine};
use crate::sim::estimate::Estimate;
use crate::sim::table::{Row, Table};

/// The smallest normalized throughput of the tenants.
pub(super) const LEAST: Measure<Results> =
    Measure::new("normalized_least", |results| results.normalized_least);
/// The smallest normalized throughput of any tenant in any ten seconds.
pub(super) const LEAST_IN_10S: Measure<Results> = Measure::new("normalized_min", |results| {
    results.tenants.iter().map(|tenant| tenant.normalized_min).fold(f64::INFINITY, f64::min)
});
pub(super) const PREDICTED: Measure<Results> =
    Measure::new("predicted_gain", |results| results.predicted_gain);

const MEASURES: [Measure<Results>; 3] = [LEAST, LEAST_IN_10S, PREDICTED];

/// A figure of a tenant.
type Figure = fn(&ByTenant) -> f64;

/// Figures of each tenant, by the names of their fields.
const OF_TENANTS: [(&str, Figure); 6] = [
    ("throughput", |tenant| tenant.throughput),
    ("normalized", |tenant| tenant.normalized),
    ("normalized_min", |tenant| tenant.normalized_min),
    ("hit_ratio", |tenant| tenant.hit_ratio),
    ("p99_ms", |tenant| tenant.p99_ms),
    ("p999_ms", |tenant| tenant.p999_ms),
];

/// Format of the claims of HARE's paper.
pub(super) const CLAIMS: Form = Form {
    paper: "HARE",
    of: "scenario",
    range: ("required", Claim::range),
    bounds: &[("least", |claim| claim.least), ("most", |claim| claim.most)],
    widths: [18, 38, 11, 8, 9],
    decimals: 3,
};

/// Results of a policy in a scenario with certain settings.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    summary: SummaryLine<'a>,
    bound: Option<Estimate>,
    tenants: Vec<TenantLine<'a>>,
}

/// Results of a tenant.
#[derive(Serialize)]
struct TenantLine<'a> {
    name: &'a str,
    #[serde(flatten)]
    figures: Figures,
}

/// Returns the lines of the JSON document, one for each group.
pub(super) fn lines<'a>(groups: &'a [Group<'_>]) -> impl Serialize {
    let tenants = |group: &'a Group<'_>| {
        let figures =
            |index: usize| OF_TENANTS.map(|(name, of)| (name, of_tenant(group, index, of))).to_vec();
        let tenants = group.first().tenants.iter().enumerate();
        tenants
            .map(|(index, tenant)| TenantLine { name: &tenant.name, figures: Figures(figures(index)) })
            .collect()
    };
    let line = |group: &'a Group<'_>| Line {
        summary: SummaryLine::of(&MEASURES, group),
        bound: bound(group),
        tenants: tenants(group),
    };
    groups.iter().map(line).collect::<Vec<_>>()
}

/// Estimates a figure of a tenant.
pub(super) fn of_tenant(group: &Group<'_>, tenant: usize, of: impl Fn(&ByTenant) -> f64) -> Estimate {
    group.estimate(|results| of(&results.tenants[tenant]))
}

/// Estimates the upper bound of the gain by the last decision; none if the policy has no bound.
pub(super) fn bound(group: &Group<'_>) -> Option<Estimate> {
    let has_bound = group.kept.iter().all(|run| run.outcome.results.bound.is_some());
    has_bound.then(|| group.estimate(|results| results.bound.unwrap_or(f64::NAN)))
}

/// Formats the results as a table.
pub(super) fn text(groups: &[Group<'_>]) -> String {
    let columns =
        [("least gain", 16), ("least in 10 s", 16), ("predicted", 9), ("bound", 7), (" tenants", 0)];
    let mut table = Table::new(&format!("{:<18} policy", "scenario"), 35, &columns);
    for group in groups {
        let tenants = 0..group.first().tenants.len();
        let tenants: Vec<String> = tenants
            .map(|index| format!("{:.2}", of_tenant(group, index, |tenant| tenant.normalized).mean))
            .collect();
        table.push(Row {
            label: format!("{:<18} {}", group.scenario(), group.policy()),
            cells: vec![
                LEAST.cell(group, 3),
                LEAST_IN_10S.cell(group, 3),
                format!("{:.3}", PREDICTED.mean(group)),
                bound(group).map_or("-".to_owned(), |bound| format!("{:.3}", bound.mean)),
                format!(" {}", tenants.join(" ")),
            ],
            suffix: group.suffix.clone(),
        });
    }
    table.text("")
}

/// Formats the results in one scenario as HTML.
pub(super) fn totals(groups: &[Group<'_>]) -> String {
    let columns = ["least gain", "least in 10 s", "predicted gain", "bound"].map(|head| (head, 0));
    let mut table = Table::new("policy", 0, &columns);
    for group in groups {
        let cells = [LEAST, LEAST_IN_10S, PREDICTED].map(|measure| measure.cell(group, 3));
        let bound = bound(group).map_or("-".to_owned(), |bound| format!("{bound:.3}"));
        table.push(Row {
            label: group.policy().to_owned(),
            cells: cells.into_iter().chain([bound]).collect(),
            suffix: group.suffix.clone(),
        });
    }
    table.html("policy")
}

/// Returns what HARE's paper says about its scenarios with default settings, with our figures; none
/// of scenarios, settings and policies that were not simulated.
pub(super) fn claims(groups: &[Group<'_>], settings: &[String]) -> Vec<Claim> {
    if !settings.is_empty() {
        return Vec::new();
    }
    let mut claims = Claims { groups, found: Vec::new() };
    for scenario in ["hare-working-set", "hare-skew", "hare-ycsb16", "hare-dynamic", "hare-twitter6"] {
        claims.order(scenario);
    }
    claims.least("hare-working-set", "hare", "least gain", "1.56", 1.5);
    claims.least("hare-skew", "hare", "least gain", "1.38", 1.35);
    if let (Some(hare), Some(drf)) = (claims.find("hare-skew", "hare"), claims.find("hare-skew", "drf")) {
        let p999 = |group, tenant| of_tenant(group, tenant, |tenant| tenant.p999_ms).mean;
        let tenants = 0..hare.first().tenants.len();
        let worst = tenants.map(|tenant| p999(hare, tenant) / p999(drf, tenant)).fold(0.0, f64::max);
        claims.add("hare-skew", "P99.9 of hare over that of drf", "at most 1", worst, None, Some(1.05));
    }
    let memshare = claims.find("hare-skew", "memshare");
    if let Some(memshare) = memshare.filter(|group| group.first().tenants.len() > 1) {
        let ours = of_tenant(memshare, 1, |tenant| tenant.normalized).mean;
        claims.add("hare-skew", "T2 under memshare", "about 0.5", ours, None, Some(0.6));
    }
    claims.least("hare-ycsb16", "hare", "least gain", "1.6", 1.6);
    claims.least("hare-ycsb16", "drf", "least gain of drf", "1.2", 1.2);
    if let Some(shared) = claims.find("hare-ycsb16", "non-partitioned") {
        let ours = LEAST.mean(shared);
        claims.add("hare-ycsb16", "least gain of non-partitioned", "below 1", ours, None, Some(0.99));
    }
    claims.least("hare-dynamic", "hare", "least gain", "1.9", 1.7);
    if let Some(hare) = claims.find("hare-dynamic", "hare") {
        let ours = LEAST_IN_10S.mean(hare);
        claims.add("hare-dynamic", "least gain of hare in 10 s", "none below 1", ours, Some(0.98), None);
    }
    claims.found
}

struct Claims<'a> {
    groups: &'a [Group<'a>],
    found: Vec<Claim>,
}

impl<'a> Claims<'a> {
    fn find(&self, scenario: &str, policy: &str) -> Option<&'a Group<'a>> {
        self.groups.iter().find(|group| group.scenario() == scenario && group.policy() == policy)
    }

    fn add(
        &mut self,
        of: &'static str,
        what: &'static str,
        paper: &'static str,
        ours: f64,
        least: Option<f64>,
        most: Option<f64>,
    ) {
        self.found.push(Claim { of, what, paper, ours, least, most });
    }

    fn least(
        &mut self,
        scenario: &'static str,
        policy: &str,
        what: &'static str,
        paper: &'static str,
        least: f64,
    ) {
        if let Some(group) = self.find(scenario, policy) {
            self.add(scenario, what, paper, LEAST.mean(group), Some(least), None);
        }
    }

    /// The order of the policies by their least gain: `hare`, `drf`, `baseline`, within a
    /// hundredth.
    fn order(&mut self, scenario: &'static str) {
        let gain = |policy: &str| self.find(scenario, policy).map(|group| LEAST.mean(group));
        let (hare, drf, base) = (gain("hare"), gain("drf"), gain(BASELINE));
        if let (Some(hare), Some(drf)) = (hare, drf) {
            self.add(
                scenario,
                "least gain of hare over that of drf",
                "at least 1",
                hare / drf,
                Some(0.99),
                None,
            );
        }
        if let (Some(drf), Some(base)) = (drf, base) {
            self.add(scenario, "least gain of drf", "at least 1", drf / base, Some(0.99), None);
        }
    }
}
