//! Results of policies in scenarios of backends, over all seeds.

use serde::Serialize;
use sherwood_sim::Results;

use super::kept::Group;
use crate::sim::comparison::{Figures, Measure, by_scenario};
use crate::sim::table::{Column, Table};

pub(in crate::sim) const VIOLATIONS: Measure<Results> =
    Measure::share("slo_violation_ratio", |results| results.slo_violation_ratio);
pub(super) const P50: Measure<Results> = Measure::new("p50_ms", |results| results.p50_ms);
pub(super) const P90: Measure<Results> = Measure::new("p90_ms", |results| results.p90_ms);
pub(in crate::sim) const P99: Measure<Results> = Measure::new("p99_ms", |results| results.p99_ms);
pub(in crate::sim) const P99_MAX: Measure<Results> = Measure::new("p99_max_ms", |results| results.p99_max_ms);
pub(in crate::sim) const RBC_MEAN: Measure<Results> =
    Measure::share("dominant_rbc_mean", |results| results.dominant_rbc.mean);
pub(super) const RBC_MAX: Measure<Results> =
    Measure::share("dominant_rbc_max", |results| results.dominant_rbc.max);
pub(in crate::sim) const STATIC: Measure<Results> =
    Measure::new("static_equivalent_ratio", |results| results.static_equivalent_ratio);

const MEASURES: [Measure<Results>; 8] = [VIOLATIONS, P50, P90, P99, P99_MAX, RBC_MEAN, RBC_MAX, STATIC];

/// Columns of the printed table.
const COLUMNS: [Column<Results>; 5] = [
    Column { head: "violations %", width: 20, measure: VIOLATIONS, decimals: 2 },
    Column { head: "P99 ms", width: 18, measure: P99, decimals: 1 },
    Column { head: "worst P99 ms", width: 18, measure: P99_MAX, decimals: 1 },
    Column { head: "RBC mean %", width: 14, measure: RBC_MEAN, decimals: 0 },
    Column { head: "static caches", width: 14, measure: STATIC, decimals: 2 },
];

/// Results of a policy in a scenario.
#[derive(Serialize)]
struct SummaryLine<'a> {
    scenario: &'a str,
    policy: &'a str,
    seeds: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// Returns the lines of the JSON document, one for each group.
pub(super) fn lines<'a>(groups: &'a [Group<'_>]) -> impl Serialize {
    let line = |group: &'a Group<'_>| SummaryLine {
        scenario: group.scenario(),
        policy: group.policy(),
        seeds: group.kept.len(),
        figures: Figures::of(&MEASURES, group),
    };
    groups.iter().map(line).collect::<Vec<_>>()
}

/// Formats the results as tables, one for each scenario.
pub(super) fn text(groups: &[Group<'_>]) -> String {
    let table =
        |groups: &[Group<'_>]| Table::of(groups[0].scenario(), 16, &COLUMNS, groups).text("  ") + "\n";
    by_scenario(groups).map(table).collect()
}
