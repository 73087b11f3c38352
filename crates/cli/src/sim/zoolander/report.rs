//! The report of a comparison: violations, load and nodes of each policy, over all seeds.

use sherwood_sim::zoolander::Results;

use super::study::{Comparison, Group};
use crate::chart::escaped;
use crate::sim::comparison::{Measure, by_scenario, summary};
use crate::sim::report::{Goal, Section, best, preface};
use crate::sim::table::{Column, Row, Table};

const DAY: Measure<Results> = Measure::share("violations_day", |results| results.violations.day);
const NIGHT: Measure<Results> = Measure::share("violations_night", |results| results.violations.night);
const WHOLE: Measure<Results> = Measure::share("violations_whole", |results| results.violations.whole);
const NIGHT_SHARE: Measure<Results> = Measure::share("night_share", |results| results.night_share);
const EXTRA_DAY: Measure<Results> =
    Measure::new("extra_load_ratio_day", |results| results.extra_load_ratio.day);
const EXTRA_NIGHT: Measure<Results> =
    Measure::new("extra_load_ratio_night", |results| results.extra_load_ratio.night);
const EXTRA_WHOLE: Measure<Results> =
    Measure::new("extra_load_ratio_whole", |results| results.extra_load_ratio.whole);
const NODE_HOURS: Measure<Results> = Measure::new("node_hours", |results| results.node_hours);
const P99: Measure<Results> = Measure::new("p99_ms_whole", |results| results.p99_ms.whole);

const MEASURES: [Measure<Results>; 9] =
    [DAY, NIGHT, WHOLE, NIGHT_SHARE, EXTRA_DAY, EXTRA_NIGHT, EXTRA_WHOLE, NODE_HOURS, P99];

const COLUMNS: [Column<Results>; 8] = [
    Column { head: "day, %", width: 22, measure: DAY, decimals: 3 },
    Column { head: "night, %", width: 22, measure: NIGHT, decimals: 3 },
    Column { head: "whole, %", width: 22, measure: WHOLE, decimals: 3 },
    Column { head: "of it at night, %", width: 22, measure: NIGHT_SHARE, decimals: 1 },
    Column { head: "extra, day", width: 16, measure: EXTRA_DAY, decimals: 3 },
    Column { head: "extra, night", width: 16, measure: EXTRA_NIGHT, decimals: 3 },
    Column { head: "node-hours", width: 14, measure: NODE_HOURS, decimals: 2 },
    Column { head: "P99 ms", width: 14, measure: P99, decimals: 1 },
];

/// The policy that all others are compared with.
const IDLE: &str = "idle";

const GOAL: Goal<Results> =
    Goal { measure: WHOLE, is_gain: false, words: "had the fewest violations of the whole day" };

/// Returns the sections of the report.
pub(in crate::sim) fn sections(comparison: &Comparison) -> Vec<Section> {
    let groups = comparison.groups();
    let (mut text, mut html) = (String::new(), best(&groups, &GOAL) + &about(comparison));
    for groups in by_scenario(&groups) {
        let scenario = groups[0].scenario();
        let table = Table::of(scenario, 18, &COLUMNS, groups);
        text += &table.text("");
        html += &format!("<h2>{}</h2>\n{}", escaped(scenario), table.html("policy"));
        if let Some(changes) = over_idle(groups) {
            text += &changes.text("  ");
            html += &changes.html("policy");
        }
    }
    vec![Section::new("summary", &summary(&MEASURES, &groups), text, html)]
}

/// Returns the change of the violations by each policy, in percent of those of `idle`; none without
/// that policy.
fn over_idle(groups: &[Group<'_>]) -> Option<Table> {
    let columns = [("day, %", 22), ("night, %", 22), ("whole, %", 22)];
    let mut table = Table::new("violations", 18, &columns);
    let mut rows = 0;
    for group in groups.iter().filter(|group| group.policy() != IDLE) {
        let Some(idle) = groups.iter().find(|idle| idle.policy() == IDLE && idle.value == group.value) else {
            continue;
        };
        let change = |measure: &Measure<Results>| match measure.mean(idle) {
            before if before > 0.0 => format!("{:+.1}", (measure.mean(group) / before - 1.0) * 100.0),
            _ => "-".to_owned(),
        };
        let cells = [DAY, NIGHT, WHOLE].iter().map(change).collect();
        table.push(Row { label: group.label(), cells, suffix: String::new() });
        rows += 1;
    }
    (rows > 0).then_some(table)
}

fn about(comparison: &Comparison) -> String {
    preface(
        &comparison.kept[0].inputs.version,
        ("settings changed", &comparison.settings),
        &comparison.seeds,
        "With one seed, every policy meets the same requests and the same service times. The tables show the share \
         of the requests that took longer than the bound, and its change against idle. Extra load is the number of \
         calls beyond one for each access, divided by the accesses.",
    )
}
