//! A steady tenant beside one that bursts, compared with the steady one alone.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::microfuge::ByTenant;

use super::runs::{Group, Kept};
use crate::chart::{Cell, number, table, verdict, word};
use crate::sim::estimate::Estimate;

/// Key of the setting that chooses the tenants.
pub(super) const KEY: &str = "tenants";
/// Value of the setting with both tenants.
pub(super) const BOTH: &str = "2";
/// Value of the setting with the steady tenant alone.
pub(super) const ALONE: &str = "steady";

/// Largest share of missed and rejected requests of the steady tenant: this multiple of the share
/// that it has alone, and this much in addition.
const FACTOR: f64 = 1.5;
const ALLOWANCE: f64 = 0.005;

/// A policy's figures of both tenants.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Isolation {
    policy: String,
    /// The steady tenant without the other.
    alone: TenantLine,
    /// The steady tenant beside the other.
    steady: TenantLine,
    bursting: TenantLine,
    /// Largest share of the steady tenant's requests that may be missed or rejected beside the
    /// other.
    at_most: f64,
    holds: bool,
}

/// Shares of a tenant's requests, over all seeds.
#[derive(Clone, Debug, Serialize)]
struct TenantLine {
    miss_ratio: Estimate,
    rejection_ratio: Estimate,
    hit_ratio: Estimate,
}

impl TenantLine {
    /// Returns the figures of a tenant by its number; none if a run has no such tenant.
    fn of(runs: &[Kept], tenant: usize) -> Option<Self> {
        let tenants = runs.iter().map(|run| run.outcome.results.tenants.get(tenant));
        let tenants: Vec<&ByTenant> = tenants.collect::<Option<_>>()?;
        let shares = |of: fn(&ByTenant) -> f64| {
            Estimate::of_shares(&tenants.iter().map(|tenant| of(tenant)).collect::<Vec<_>>())
        };
        Some(Self {
            miss_ratio: shares(|tenant| tenant.miss_ratio),
            rejection_ratio: shares(|tenant| tenant.rejection_ratio),
            hit_ratio: shares(|tenant| tenant.hit_ratio),
        })
    }

    fn failed(&self) -> f64 {
        self.miss_ratio.mean + self.rejection_ratio.mean
    }
}

/// Returns a line for each policy that was simulated with both tenants and with the steady one.
pub(super) fn lines(groups: &[Group]) -> Vec<Isolation> {
    let find = |policy: &str, value: &str| {
        let is_meant =
            |group: &&Group| group.kept[0].inputs.policy == policy && group.value.as_deref() == Some(value);
        groups.iter().find(is_meant).map(|group| &group.kept[..])
    };
    let line = |group: &Group| {
        let policy = &group.kept[0].inputs.policy;
        let (alone, both) = (find(policy, ALONE)?, &group.kept);
        let (alone, steady, bursting) =
            (TenantLine::of(alone, 0)?, TenantLine::of(both, 0)?, TenantLine::of(both, 1)?);
        let at_most = FACTOR * alone.failed() + ALLOWANCE;
        let holds = steady.failed() <= at_most;
        Some(Isolation { policy: policy.clone(), alone, steady, bursting, at_most, holds })
    };
    groups.iter().filter(|group| group.value.as_deref() == Some(BOTH)).filter_map(line).collect()
}

/// Formats the lines as a table; empty if there are none.
pub(super) fn text(lines: &[Isolation]) -> String {
    let mut text = String::new();
    if lines.is_empty() {
        return text;
    }
    let _ = writeln!(
        text,
        "\n{:<16} {:>24} {:>24} {:>12} {:>24}",
        "missed+rejected", "steady tenant alone", "beside the burst", "at most", "bursting tenant"
    );
    for line in lines {
        let verdict = if line.holds { "" } else { "  no" };
        let cell = |tenant: &TenantLine| {
            let percent = |share: Estimate| format!("{:.2}", share.mean * 100.0);
            format!("{} + {} %", percent(tenant.miss_ratio), percent(tenant.rejection_ratio))
        };
        let _ = writeln!(
            text,
            "{:<16} {:>24} {:>24} {:>12} {:>24}{verdict}",
            line.policy,
            cell(&line.alone),
            cell(&line.steady),
            format!("{:.2} %", line.at_most * 100.0),
            cell(&line.bursting),
        );
    }
    text
}

/// Formats the lines as a section of the report; empty if there are none.
pub(super) fn section(lines: &[Isolation]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let columns = ["alone: missed %", "rejected %", "hits %", "beside the burst: missed %", "rejected %"];
    let columns = columns.into_iter().chain(["hits %", "both at most %"]);
    let columns = columns.chain(["bursting tenant: missed %", "rejected %", "hits %"]);
    let head: Vec<Cell> = [word("policy")].into_iter().chain(columns.map(number)).chain([word("")]).collect();
    let row = |line: &Isolation| {
        let cells = |tenant: &TenantLine| {
            [tenant.miss_ratio, tenant.rejection_ratio, tenant.hit_ratio]
                .map(|share| number(format!("{:.2}", share.times(100.0))))
        };
        let mut row = vec![word(line.policy.clone())];
        row.extend(cells(&line.alone));
        row.extend(cells(&line.steady));
        row.push(number(format!("{:.2}", line.at_most * 100.0)));
        row.extend(cells(&line.bursting));
        row.push(verdict(line.holds));
        row
    };
    let rows: Vec<Vec<Cell>> = lines.iter().map(row).collect();
    format!(
        "<h2>A steady tenant beside one that bursts</h2>\n<p>The steady tenant's deadlines are tight. For 10 s of every \
         30 s the other tenant sends ten times as much.</p>\n{}",
        table(&head, &rows)
    )
}
