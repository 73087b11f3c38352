//! Results of each change to RobinHood beside those of RobinHood unchanged.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::Results;

use super::change::Change;
use crate::sim::estimate::Estimate;
use crate::sim::flags::Flags;
use crate::sim::onerf::kept::Kept;

/// A row for each scenario and change; the first of a scenario is the baseline.
pub(super) struct Table {
    pub(super) seeds: Vec<u64>,
    rows: Vec<Row>,
}

/// Results of a change in a scenario, over all seeds.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) change: String,
    policy: &'static str,
    slo_bound_ms: f64,
    slo_violation_ratio: Estimate,
    /// Increase of the share of SLO violations over the baseline (RobinHood unchanged) with the
    /// same seed.
    slo_violation_ratio_more: Estimate,
    p99_max_ms: Estimate,
    p99_max_ms_more: Estimate,
    p99_ms: Estimate,
    dominant_rbc_mean: Estimate,
    static_equivalent_ratio: Estimate,
}

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    scale: &'a str,
    settings: &'a [String],
    seeds: &'a [u64],
    /// Time that the runs without kept results took, seconds.
    wall_s: f64,
    rows: &'a [Row],
}

impl Table {
    /// Creates the table of `runs`, which are ordered by scenario, then by change, then by seed.
    pub(super) fn of(runs: &[Kept], changes: &[Change], seeds: &[u64]) -> Self {
        let mut rows = Vec::new();
        for scenario in runs.chunks(changes.len() * seeds.len()) {
            let unchanged = &scenario[..seeds.len()];
            let changed = changes.iter().zip(scenario.chunks(seeds.len()));
            rows.extend(changed.map(|(change, runs)| Row::of(*change, runs, unchanged)));
        }
        Self { seeds: seeds.to_vec(), rows }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for rows in self.scenarios() {
            let _ = writeln!(text, "{:<24} {}", rows[0].scenario, columns(&HEAD.map(str::to_owned)));
            for row in rows {
                let _ = writeln!(text, "  {:<22} {}", row.change, columns(&row.cells()));
            }
            text.push('\n');
        }
        text
    }

    pub(super) fn json(&self, flags: &Flags, wall_s: f64) -> String {
        let document = Document {
            version: env!("CARGO_PKG_VERSION"),
            scale: flags.scale(),
            settings: &flags.all_settings(),
            seeds: &self.seeds,
            wall_s,
            rows: &self.rows,
        };
        serde_json::to_string(&document).expect("rows have string keys only") + "\n"
    }

    /// Returns the rows of each scenario.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.scenario == b.scenario)
    }
}

/// Column headings of the table of changes.
pub(super) const HEAD: [&str; 6] =
    ["violations %", "more, points", "worst P99 ms", "more, ms", "P99 ms", "RBC mean %"];

/// Formats a row with columns wide enough for intervals.
fn columns(cells: &[String; HEAD.len()]) -> String {
    cells.iter().map(|cell| format!("{cell:>20}")).collect()
}

impl Row {
    fn of(change: Change, runs: &[Kept], unchanged: &[Kept]) -> Self {
        let values = |value: fn(&Results) -> f64| {
            runs.iter().map(|run| value(&run.outcome.results)).collect::<Vec<_>>()
        };
        let of = |value| Estimate::of(&values(value));
        let share = |value| Estimate::of_shares(&values(value));
        let more = |value: fn(&Results) -> f64| {
            let pairs = runs.iter().zip(unchanged);
            let more =
                pairs.map(|(run, unchanged)| value(&run.outcome.results) - value(&unchanged.outcome.results));
            Estimate::of(&more.collect::<Vec<_>>())
        };
        Self {
            scenario: runs[0].inputs.scenario.clone(),
            change: change.to_string(),
            policy: change.policy(),
            slo_bound_ms: runs[0].outcome.results.slo_bound_ms,
            slo_violation_ratio: share(|results| results.slo_violation_ratio),
            slo_violation_ratio_more: more(|results| results.slo_violation_ratio),
            p99_max_ms: of(|results| results.p99_max_ms),
            p99_max_ms_more: more(|results| results.p99_max_ms),
            p99_ms: of(|results| results.p99_ms),
            dominant_rbc_mean: share(|results| results.dominant_rbc.mean),
            static_equivalent_ratio: of(|results| results.static_equivalent_ratio),
        }
    }

    /// Formats the cells in the order of [`HEAD`]; the increases are empty in the baseline's row.
    pub(super) fn cells(&self) -> [String; HEAD.len()] {
        let unchanged = self.change == Change::None.to_string();
        let more = |more: Estimate, decimals: usize| {
            if unchanged { "-".to_owned() } else { format!("{more:+.decimals$}") }
        };
        [
            format!("{:.2}", self.slo_violation_ratio.times(100.0)),
            more(self.slo_violation_ratio_more.times(100.0), 2),
            format!("{:.1}", self.p99_max_ms),
            more(self.p99_max_ms_more, 1),
            format!("{:.1}", self.p99_ms),
            format!("{:.0}", self.dominant_rbc_mean.times(100.0)),
        ]
    }
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
        let kept = serde_json::json!({"inputs": inputs, "outcome": outcome, "series": series});
        serde_json::from_value(kept).expect("as it is kept")
    }

    #[test]
    fn increase_over_the_baseline_is_the_mean_of_per_seed_differences() {
        // The seeds differ by much, and the change adds a similar amount to each.
        let unchanged = [run(1, 0.125, 100.0), run(2, 0.5, 400.0)];
        let changed = [run(1, 0.25, 150.0), run(2, 0.625, 454.0)];
        let runs = unchanged.into_iter().chain(changed).collect::<Vec<_>>();
        let changes = [Change::None, Change::Setting { key: "tax", value: "0.02" }];
        let table = Table::of(&runs, &changes, &[1, 2]);
        let [unchanged, changed] = &table.rows[..] else { panic!("a row for each") };
        let more = changed.slo_violation_ratio_more;
        assert_eq!((more.mean, more.low, more.high), (0.125, Some(0.125), Some(0.125)), "no doubt about it");
        // The differences are 50 and 54: the standard deviation is 2.828 and the standard error 2,
        // which Student's t multiplies by 12.706.
        let more = changed.p99_max_ms_more;
        assert_eq!(format!("{more:+.3}"), "+52.000 ± 25.412");
        let none = unchanged.p99_max_ms_more;
        assert_eq!((none.mean, none.low, none.high), (0.0, Some(0.0), Some(0.0)));
        assert_eq!(unchanged.cells()[1], "-");
        assert_eq!(changed.cells()[1], "+12.50 ± 0.00");
    }

    #[test]
    fn increase_with_one_seed_has_no_confidence_interval() {
        let runs = [run(1, 0.25, 150.0), run(1, 0.125, 100.0)];
        let table = Table::of(&runs, &[Change::None, Change::Policy("fair")], &[1]);
        assert_eq!(table.rows[1].cells()[1..4], ["-12.50", "100.0", "-50.0"]);
    }
}
