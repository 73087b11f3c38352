//! Results of each change to RobinHood beside those of RobinHood unchanged.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::Results;

use super::change::Change;
use crate::chart::{self, escaped};
use crate::out;
use crate::sim::comparison::{Figures, Measure};
use crate::sim::estimate::Estimate;
use crate::sim::flags::Flags;
use crate::sim::onerf::kept::{Group, Kept};
use crate::sim::onerf::summary::{P99, P99_MAX, RBC_MEAN, STATIC, VIOLATIONS};
use crate::sim::report::preface;
use crate::sim::table::{Row, Table};

/// A line for each scenario and change. The first line of a scenario is the baseline.
pub(super) struct Changes {
    seeds: Vec<u64>,
    lines: Vec<Line>,
}

/// Results of a change in a scenario, over all seeds.
#[derive(Serialize)]
struct Line {
    scenario: String,
    change: String,
    policy: &'static str,
    slo_bound_ms: f64,
    #[serde(flatten)]
    figures: Figures,
    /// Cells of the table.
    #[serde(skip)]
    cells: Vec<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    scale: &'a str,
    settings: &'a [String],
    seeds: &'a [u64],
    /// Time that the runs without kept results took, seconds.
    wall_s: f64,
    rows: &'a [Line],
}

/// Column headings of the table of changes, and widths that are sufficient for confidence
/// intervals.
const COLUMNS: [(&str, usize); 6] = [
    ("violations %", 20),
    ("more, points", 19),
    ("worst P99 ms", 19),
    ("more, ms", 19),
    ("P99 ms", 19),
    ("RBC mean %", 19),
];

impl Changes {
    /// Creates the lines of `runs`, which are ordered by scenario, then by change, then by seed.
    pub(super) fn of(runs: &[Kept], changes: &[Change], seeds: &[u64]) -> Self {
        let group = |kept| Group { value: None, suffix: String::new(), kept };
        let mut lines = Vec::new();
        for scenario in runs.chunks(changes.len() * seeds.len()) {
            let groups: Vec<Group<'_>> = scenario.chunks(seeds.len()).map(group).collect();
            lines.extend(changes.iter().zip(&groups).map(|(change, of)| Line::of(*change, of, &groups[0])));
        }
        Self { seeds: seeds.to_vec(), lines }
    }

    pub(super) fn text(&self) -> String {
        let table = |lines: &[Line]| Self::table(lines, &lines[0].scenario).text("  ") + "\n";
        self.scenarios().map(table).collect()
    }

    /// Formats the tables as an HTML page; `flags` apply to all runs.
    pub(super) fn page(&self, flags: &Flags) -> String {
        let mut body = preface(
            &format!("{} at scale {}", env!("CARGO_PKG_VERSION"), flags.scale()),
            ("settings of all runs", &flags.all_settings()),
            &self.seeds,
            "With one seed, all meet the same requests at the same times, and “more” is more than unchanged with the \
             same seed.",
        );
        for lines in self.scenarios() {
            let _ = writeln!(body, "<h2>{}</h2>", escaped(&lines[0].scenario));
            body += &Self::table(lines, "").html("what was changed");
        }
        chart::page("RobinHood, changed one thing at a time", &body)
    }

    pub(super) fn json(&self, flags: &Flags, wall_s: f64) -> String {
        let document = Document {
            version: env!("CARGO_PKG_VERSION"),
            scale: flags.scale(),
            settings: &flags.all_settings(),
            seeds: &self.seeds,
            wall_s,
            rows: &self.lines,
        };
        out::json(&document) + "\n"
    }

    /// Returns the lines, grouped by scenario.
    fn scenarios(&self) -> impl Iterator<Item = &[Line]> {
        self.lines.chunk_by(|one, other| one.scenario == other.scenario)
    }

    fn table(lines: &[Line], label: &str) -> Table {
        let mut table = Table::new(label, 24, &COLUMNS);
        for Line { change, cells, .. } in lines {
            table.push(Row { label: change.clone(), cells: cells.clone(), suffix: String::new() });
        }
        table
    }
}

impl Line {
    fn of(change: Change, group: &Group<'_>, unchanged: &Group<'_>) -> Self {
        let violations_more = more(group, unchanged, |results| results.slo_violation_ratio);
        let p99_max_more = more(group, unchanged, |results| results.p99_max_ms);
        let cell = |more: Estimate, decimals: usize| {
            if change == Change::None { "-".to_owned() } else { format!("{more:+.decimals$}") }
        };
        let figure = |measure: Measure<Results>| (measure.name, measure.estimate(group));
        Self {
            scenario: group.scenario().to_owned(),
            change: change.to_string(),
            policy: change.policy(),
            slo_bound_ms: group.first().slo_bound_ms,
            figures: Figures(vec![
                figure(VIOLATIONS),
                ("slo_violation_ratio_more", violations_more),
                figure(P99_MAX),
                ("p99_max_ms_more", p99_max_more),
                figure(P99),
                figure(RBC_MEAN),
                figure(STATIC),
            ]),
            cells: vec![
                VIOLATIONS.cell(group, 2),
                cell(violations_more.times(100.0), 2),
                P99_MAX.cell(group, 1),
                cell(p99_max_more, 1),
                P99.cell(group, 1),
                RBC_MEAN.cell(group, 0),
            ],
        }
    }
}

/// Estimates by how much a figure exceeds that of the baseline with the same seed.
fn more(group: &Group<'_>, unchanged: &Group<'_>, of: fn(&Results) -> f64) -> Estimate {
    let pairs = group.each(of).into_iter().zip(unchanged.each(of));
    Estimate::of(&pairs.map(|(changed, unchanged)| changed - unchanged).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with one seed.
    fn run(seed: u64, violations: f64, p99_max_ms: f64) -> Kept {
        let results =
            Results { slo_violation_ratio: violations, p99_max_ms, complete: true, ..Results::default() };
        let mut outcome = serde_json::to_value(results).expect("plain");
        (outcome["wall_s"], outcome["queries_per_s"]) = (1.0.into(), 1.0.into());
        let series =
            serde_json::json!({"minute": [], "p50_ms": [], "p90_ms": [], "p99_ms": [], "backends": []});
        let inputs = serde_json::json!({
            "version": "0", "scenario": "spikes", "document": null, "policy": "robinhood", "seed": seed,
            "scale": "0.01", "settings": [],
        });
        let kept = serde_json::json!({"inputs": inputs, "outcome": outcome, "observed": series});
        serde_json::from_value(kept).expect("as it is kept")
    }

    fn figure(line: &Line, index: usize) -> Estimate {
        line.figures.0[index].1
    }

    #[test]
    fn increase_over_the_baseline_is_the_mean_of_per_seed_differences() {
        // The seeds differ by much, and the change adds a similar amount to each.
        let unchanged = [run(1, 0.125, 100.0), run(2, 0.5, 400.0)];
        let changed = [run(1, 0.25, 150.0), run(2, 0.625, 454.0)];
        let runs = unchanged.into_iter().chain(changed).collect::<Vec<_>>();
        let changes = [Change::None, Change::Setting { key: "tax", value: "0.02" }];
        let table = Changes::of(&runs, &changes, &[1, 2]);
        let [unchanged, changed] = &table.lines[..] else { panic!("a row for each") };
        let more = figure(changed, 1);
        assert_eq!((more.mean, more.low, more.high), (0.125, Some(0.125), Some(0.125)), "no doubt about it");
        // The differences are 50 and 54: the standard deviation is 2.828 and the standard error 2,
        // which Student's t multiplies by 12.706.
        let more = figure(changed, 3);
        assert_eq!(format!("{more:+.3}"), "+52.000 ± 25.412");
        let none = figure(unchanged, 3);
        assert_eq!((none.mean, none.low, none.high), (0.0, Some(0.0), Some(0.0)));
        assert_eq!(unchanged.cells[1], "-");
        assert_eq!(changed.cells[1], "+12.50 ± 0.00");
    }

    #[test]
    fn increase_with_one_seed_has_no_confidence_interval() {
        let runs = [run(1, 0.25, 150.0), run(1, 0.125, 100.0)];
        let table = Changes::of(&runs, &[Change::None, Change::Policy("fair")], &[1]);
        assert_eq!(table.lines[1].cells[1..4], ["-12.50", "100.0", "-50.0"]);
    }
}
