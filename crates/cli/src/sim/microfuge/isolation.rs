//! A steady tenant beside one that bursts, compared with the steady one alone.

use serde::Serialize;
use sherwood_sim::microfuge::ByTenant;

use super::study::Group;
use crate::chart::{Cell, number, table, verdict, word};
use crate::sim::estimate::Estimate;
use crate::sim::report::Section;
use crate::sim::sweep::listed;
use crate::sim::table::{Row, Table};

/// Key of the setting that chooses the tenants.
pub(super) const KEY: &str = "tenants";
/// Value of the setting with both tenants.
const BOTH: &str = "2";
/// Value of the setting with the steady tenant alone.
const ALONE: &str = "steady";

/// Largest share of missed and rejected requests of the steady tenant: this multiple of the share
/// that it has alone, and this much in addition.
const FACTOR: f64 = 1.5;
const ALLOWANCE: f64 = 0.005;

/// Returns the values of a setting that are simulated: with both tenants, also the steady tenant
/// alone, for comparison.
pub(in crate::sim) fn values(key: &str, value: &str) -> Vec<String> {
    match (key, value) {
        (KEY, BOTH) => vec![ALONE.to_owned(), value.to_owned()],
        _ => listed(key, value),
    }
}

/// A policy's figures of both tenants.
#[derive(Clone, Debug, Serialize)]
struct Isolation {
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
    fn of(group: &Group<'_>, tenant: usize) -> Option<Self> {
        if group.kept.iter().any(|run| run.outcome.results.tenants.len() <= tenant) {
            return None;
        }
        let shares = |of: fn(&ByTenant) -> f64| {
            Estimate::of_shares(&group.each(|results| of(&results.tenants[tenant])))
        };
        Some(Self {
            miss_ratio: shares(|tenant| tenant.shares.miss_ratio),
            rejection_ratio: shares(|tenant| tenant.shares.rejection_ratio),
            hit_ratio: shares(|tenant| tenant.shares.hit_ratio),
        })
    }

    fn failed(&self) -> f64 {
        self.miss_ratio.mean + self.rejection_ratio.mean
    }
}

/// Returns the section of the report that compares the two tenants.
pub(super) fn section(groups: &[Group<'_>]) -> Section {
    let lines = lines(groups);
    Section::new("isolation", &lines, text(&lines), html(&lines))
}

/// Returns a line for each policy that was simulated with both tenants and with the steady one.
fn lines(groups: &[Group<'_>]) -> Vec<Isolation> {
    let line = |both: &Group<'_>| {
        let policy = both.policy();
        let is_alone = |group: &&Group<'_>| group.policy() == policy && group.value == Some(ALONE);
        let alone = groups.iter().find(is_alone)?;
        let (alone, steady, bursting) =
            (TenantLine::of(alone, 0)?, TenantLine::of(both, 0)?, TenantLine::of(both, 1)?);
        let at_most = FACTOR * alone.failed() + ALLOWANCE;
        let holds = steady.failed() <= at_most;
        Some(Isolation { policy: policy.to_owned(), alone, steady, bursting, at_most, holds })
    };
    groups.iter().filter(|group| group.value == Some(BOTH)).filter_map(line).collect()
}

/// Formats the lines as a table; empty if there are none.
fn text(lines: &[Isolation]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let columns =
        [("steady tenant alone", 24), ("beside the burst", 24), ("at most", 12), ("bursting tenant", 24)];
    let mut table = Table::new("missed+rejected", 16, &columns);
    for line in lines {
        let cell = |tenant: &TenantLine| {
            let [missed, rejected] =
                [tenant.miss_ratio, tenant.rejection_ratio].map(|share| share.mean * 100.0);
            format!("{missed:.2} + {rejected:.2} %")
        };
        let at_most = format!("{:.2} %", line.at_most * 100.0);
        table.push(Row {
            label: line.policy.clone(),
            cells: vec![cell(&line.alone), cell(&line.steady), at_most, cell(&line.bursting)],
            suffix: if line.holds { "" } else { "  no" }.to_owned(),
        });
    }
    format!("\n{}", table.text(""))
}

/// Formats the lines as a section of the report; empty if there are none.
fn html(lines: &[Isolation]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sweep::Sweep;

    #[test]
    fn setting_with_a_list_is_swept_and_a_second_list_is_refused() {
        let settings = ["clients=96".to_owned(), "beta=50,88".to_owned()];
        let sweep = Sweep::of(&settings, values).expect("one list");
        let swept = sweep.values();
        assert_eq!(swept.len(), 2);
        assert_eq!(swept[1], (Some("88".to_owned()), vec!["clients=96".to_owned(), "beta=88".to_owned()]));
        let tenants = Sweep::of(&["tenants=2".to_owned()], values).expect("compared with one alone").values();
        assert_eq!(
            tenants.iter().map(|(_, settings)| &settings[0][..]).collect::<Vec<_>>(),
            ["tenants=steady", "tenants=2"]
        );
        assert!(Sweep::of(&["tenants=2".to_owned(), "beta=1,2".to_owned()], values).is_err());
        assert!(Sweep::of(&["beta=1,2".to_owned(), "alpha=1,2".to_owned()], values).is_err());
        assert_eq!(
            Sweep::of(&settings[..1], values).expect("no list").values(),
            [(None, settings[..1].to_vec())]
        );
    }
}
