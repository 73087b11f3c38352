//! Statistics over several seeds, and what is required beside them.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::tenants::{ByTenant, Results};

use super::runs::{BASELINE, Kept};
use crate::sim::estimate::Estimate;

/// Results of a policy in a scenario with certain settings, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SummaryLine {
    pub(super) scenario: String,
    pub(super) policy: String,
    /// Value of the setting that has several values; none if no setting has.
    pub(super) value: Option<String>,
    pub(super) seeds: usize,
    /// Least of the tenants' normalized throughputs.
    pub(super) normalized_least: Estimate,
    /// Least normalized throughput of a tenant in ten seconds.
    pub(super) normalized_min: Estimate,
    pub(super) predicted_gain: Estimate,
    /// Upper bound of the gain by the last decision; none if the policy has none.
    pub(super) bound: Option<Estimate>,
    pub(super) tenants: Vec<TenantLine>,
}

/// Results of a tenant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TenantLine {
    pub(super) name: String,
    pub(super) throughput: Estimate,
    pub(super) normalized: Estimate,
    pub(super) normalized_min: Estimate,
    pub(super) hit_ratio: Estimate,
    pub(super) p99_ms: Estimate,
    pub(super) p999_ms: Estimate,
}

/// Requirement of a default scenario, and ours.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    pub(super) scenario: &'static str,
    pub(super) what: &'static str,
    /// The figure of HARE's paper, in words.
    pub(super) paper: &'static str,
    pub(super) ours: f64,
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
    pub(super) holds: bool,
}

/// Runs with the same scenario, settings and policy, one for each seed.
pub(super) struct Group {
    pub(super) scenario: String,
    pub(super) policy: String,
    pub(super) value: Option<String>,
    pub(super) kept: Vec<Kept>,
}

impl Group {
    fn mean(&self, of: impl Fn(&Results) -> f64) -> Estimate {
        let values: Vec<f64> = self.kept.iter().map(|kept| of(&kept.outcome.results)).collect();
        Estimate::of(&values)
    }

    /// Returns the line of the runs, of which there is at least one.
    pub(super) fn line(&self) -> SummaryLine {
        let results = &self.kept[0].outcome.results;
        let tenant = |(index, tenant): (usize, &ByTenant)| {
            let mean = |of: fn(&ByTenant) -> f64| self.mean(|results| of(&results.tenants[index]));
            TenantLine {
                name: tenant.name.clone(),
                throughput: mean(|tenant| tenant.throughput),
                normalized: mean(|tenant| tenant.normalized),
                normalized_min: mean(|tenant| tenant.normalized_min),
                hit_ratio: mean(|tenant| tenant.hit_ratio),
                p99_ms: mean(|tenant| tenant.p99_ms),
                p999_ms: mean(|tenant| tenant.p999_ms),
            }
        };
        let has_bound = self.kept.iter().all(|kept| kept.outcome.results.bound.is_some());
        SummaryLine {
            scenario: self.scenario.clone(),
            policy: self.policy.clone(),
            value: self.value.clone(),
            seeds: self.kept.len(),
            normalized_least: self.mean(|results| results.normalized_least),
            normalized_min: self.mean(|results| {
                results.tenants.iter().map(|tenant| tenant.normalized_min).fold(f64::INFINITY, f64::min)
            }),
            predicted_gain: self.mean(|results| results.predicted_gain),
            bound: has_bound.then(|| self.mean(|results| results.bound.unwrap_or(f64::NAN))),
            tenants: results.tenants.iter().enumerate().map(tenant).collect(),
        }
    }
}

/// Returns what HARE's paper says about its scenarios with default settings, with our figures; none
/// of scenarios, settings and policies that were not simulated.
pub(super) fn claims(lines: &[SummaryLine], settings: &[String]) -> Vec<Claim> {
    if !settings.is_empty() {
        return Vec::new();
    }
    let mut claims = Claims { lines, found: Vec::new() };
    for scenario in ["hare-working-set", "hare-skew", "hare-ycsb16", "hare-dynamic", "hare-twitter6"] {
        claims.order(scenario);
    }
    claims.least("hare-working-set", "hare", "least gain", "1.56", 1.5);
    claims.least("hare-skew", "hare", "least gain", "1.38", 1.35);
    if let (Some(hare), Some(drf)) = (claims.find("hare-skew", "hare"), claims.find("hare-skew", "drf")) {
        let ratios = hare.tenants.iter().zip(&drf.tenants);
        let worst = ratios.map(|(hare, drf)| hare.p999_ms.mean / drf.p999_ms.mean).fold(0.0, f64::max);
        claims.add("hare-skew", "P99.9 of hare over that of drf", "at most 1", worst, None, Some(1.05));
    }
    if let Some(second) = claims.find("hare-skew", "memshare").and_then(|line| line.tenants.get(1)) {
        let ours = second.normalized.mean;
        claims.add("hare-skew", "T2 under memshare", "about 0.5", ours, None, Some(0.6));
    }
    claims.least("hare-ycsb16", "hare", "least gain", "1.6", 1.6);
    claims.least("hare-ycsb16", "drf", "least gain of drf", "1.2", 1.2);
    if let Some(shared) = claims.find("hare-ycsb16", "non-partitioned") {
        let ours = shared.normalized_least.mean;
        claims.add("hare-ycsb16", "least gain of non-partitioned", "below 1", ours, None, Some(0.99));
    }
    claims.least("hare-dynamic", "hare", "least gain", "1.9", 1.7);
    if let Some(hare) = claims.find("hare-dynamic", "hare") {
        let ours = hare.normalized_min.mean;
        claims.add("hare-dynamic", "least gain of hare in 10 s", "none below 1", ours, Some(0.98), None);
    }
    claims.found
}

struct Claims<'a> {
    lines: &'a [SummaryLine],
    found: Vec<Claim>,
}

impl<'a> Claims<'a> {
    fn find(&self, scenario: &str, policy: &str) -> Option<&'a SummaryLine> {
        self.lines.iter().find(|line| line.scenario == scenario && line.policy == policy)
    }

    fn add(
        &mut self,
        scenario: &'static str,
        what: &'static str,
        paper: &'static str,
        ours: f64,
        least: Option<f64>,
        most: Option<f64>,
    ) {
        let holds = least.is_none_or(|least| ours >= least) && most.is_none_or(|most| ours <= most);
        self.found.push(Claim { scenario, what, paper, ours, least, most, holds });
    }

    fn least(
        &mut self,
        scenario: &'static str,
        policy: &str,
        what: &'static str,
        paper: &'static str,
        least: f64,
    ) {
        if let Some(line) = self.find(scenario, policy) {
            self.add(scenario, what, paper, line.normalized_least.mean, Some(least), None);
        }
    }

    /// The order of the policies by their least gain: `hare`, `drf`, `baseline`, within a
    /// hundredth.
    fn order(&mut self, scenario: &'static str) {
        let gain = |policy: &str| self.find(scenario, policy).map(|line| line.normalized_least.mean);
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

/// Formats lines and claims as tables.
pub(super) fn text(lines: &[SummaryLine], claims: &[Claim], swept: Option<&str>) -> String {
    let mut text = format!(
        "{:<18} {:<16} {:>16} {:>16} {:>9} {:>7}  tenants\n",
        "scenario", "policy", "least gain", "least in 10 s", "predicted", "bound"
    );
    for line in lines {
        let value = line.value.as_ref().zip(swept).map(|(value, key)| format!(" {key}={value}"));
        let tenants: Vec<String> =
            line.tenants.iter().map(|tenant| format!("{:.2}", tenant.normalized.mean)).collect();
        let bound = line.bound.map_or("-".to_owned(), |bound| format!("{:.3}", bound.mean));
        let _ = writeln!(
            text,
            "{:<18} {:<16} {:>16} {:>16} {:>9.3} {bound:>7}  {}{}",
            line.scenario,
            line.policy,
            format!("{:.3}", line.normalized_least),
            format!("{:.3}", line.normalized_min),
            line.predicted_gain.mean,
            tenants.join(" "),
            value.unwrap_or_default(),
        );
    }
    if !claims.is_empty() {
        let _ = writeln!(
            text,
            "\n{:<18} {:<38} {:>11} {:>8} {:>9}",
            "scenario", "what", "paper", "ours", "required"
        );
    }
    for Claim { scenario, what, paper, ours, least, most, holds } in claims {
        let verdict = if *holds { "" } else { "  no" };
        let required = required(*least, *most);
        let _ = writeln!(text, "{scenario:<18} {what:<38} {paper:>11} {ours:>8.3} {required:>9}{verdict}");
    }
    text
}

/// Formats the required range of a claim.
pub(super) fn required(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), None) => format!("≥ {least}"),
        (None, Some(most)) => format!("≤ {most}"),
        _ => String::new(),
    }
}
