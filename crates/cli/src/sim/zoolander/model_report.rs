//! The report of a comparison: levels beside the model's, the best policy at each load, and
//! percentiles of two runs.

use sherwood_sim::zoolander::{Level, ModelResults};

use crate::chart::{Axis, COLOURS, ChartLine, Dots, Lines, Pen, escaped, figure};
use crate::sim::comparison::{self, Measure, summary};
use crate::sim::report::{Goal, Section, best, preface};
use crate::sim::table::{Column, Row, Table};

type Group<'a> = comparison::Group<'a, ModelResults, Vec<[f64; 2]>>;
type Comparison = comparison::Comparison<ModelResults, Vec<[f64; 2]>>;

/// Place of the bound of the SLO among the levels, 15 ms.
const SLO: usize = 3;

const MEASURED: Measure<ModelResults> = Measure::share("level", |results| results.levels[SLO].measured);
const PREDICTED: Measure<ModelResults> =
    Measure::share("predicted_level", |results| results.levels[SLO].predicted);
const UTILISATION: Measure<ModelResults> = Measure::new("utilisation", |results| results.utilisation);
const EXTRA: Measure<ModelResults> = Measure::new("extra_load_ratio", |results| results.extra_load_ratio);
const ERROR: Measure<ModelResults> = Measure::new("error_max", |results| results.error_max);
const CORRELATION: Measure<ModelResults> =
    Measure::new("correlation", |results| results.correlation.unwrap_or_default());

const MEASURES: [Measure<ModelResults>; 6] = [MEASURED, PREDICTED, UTILISATION, EXTRA, ERROR, CORRELATION];

const COLUMNS: [Column<ModelResults>; 6] = [
    Column { head: "within 15 ms, %", width: 18, measure: MEASURED, decimals: 3 },
    Column { head: "predicted, %", width: 18, measure: PREDICTED, decimals: 3 },
    Column { head: "busy", width: 14, measure: UTILISATION, decimals: 3 },
    Column { head: "extra load", width: 14, measure: EXTRA, decimals: 3 },
    Column { head: "correlation", width: 14, measure: CORRELATION, decimals: 3 },
    Column { head: "greatest error", width: 16, measure: ERROR, decimals: 4 },
];

const GOAL: Goal<ModelResults> =
    Goal { measure: MEASURED, is_gain: true, words: "had the most accesses within 15 ms" };

/// The policies of the three regimes: all duplicates are asked.
const REGIMES: [&str; 4] = ["divide", "mix", "mix-3", "replicate"];

/// Returns the sections of the report.
pub(in crate::sim) fn sections(comparison: &Comparison) -> Vec<Section> {
    let groups = comparison.groups();
    let (mut text, mut html) = (String::new(), best(&groups, &GOAL) + &about(comparison));
    let scenario = groups[0].scenario();
    let levels = Table::of(scenario, 18, &COLUMNS, &groups);
    let tables = [Some(levels), Some(errors(&groups)), regimes(&groups)];
    for table in tables.into_iter().flatten() {
        text += &table.text("");
        text.push('\n');
        html += &table.html("policy");
    }
    html += &format!("<h2>{}</h2>\n", escaped(scenario));
    groups.iter().for_each(|group| html += &curves(group));
    html += &dots(&groups[0]);
    vec![Section::new("summary", &summary(&MEASURES, &groups), text, html)]
}

/// Returns the errors of the prediction by bound, and of that by the mean wait, in points.
fn errors(groups: &[Group<'_>]) -> Table {
    let heads = ["3 ms", "5 ms", "8 ms", "15 ms", "30 ms", "60 ms", "150 ms", "300 ms"];
    let columns: Vec<_> = heads.map(|head| (head, 8)).into_iter().chain([("model", 15)]).collect();
    let mut table = Table::new("error, points", 22, &columns);
    let mut row = |group: &Group<'_>, model: &str, of: fn(&Level) -> Option<f64>| {
        let error = |at: usize| {
            let mean = group.estimate(|results| {
                let level = &results.levels[at];
                of(level).map_or(f64::NAN, |predicted| predicted - level.measured)
            });
            if mean.mean.is_nan() { "-".to_owned() } else { format!("{:+.3}", mean.mean * 100.0) }
        };
        let cells = (0..heads.len()).map(error).chain([model.to_owned()]).collect();
        table.push(Row { label: group.label(), cells, suffix: String::new() });
    };
    for group in groups {
        let applies = group.kept.iter().all(|run| run.outcome.results.model_applies);
        row(group, if applies { "applies" } else { "does not apply" }, |level| Some(level.predicted));
        if group.first().error_by_mean_max.is_some() {
            row(group, "by mean wait", |level| level.by_mean);
        }
    }
    table
}

/// Returns the best of dividing, replicating and mixes at each load, measured and predicted; none
/// with fewer than two of them.
fn regimes(groups: &[Group<'_>]) -> Option<Table> {
    let mut table = Table::new("best within 15 ms", 22, &[("measured", 12), ("predicted", 12)]);
    let mut rows = 0;
    for groups in groups.chunk_by(|one, other| one.value == other.value) {
        let of: Vec<&Group<'_>> = groups.iter().filter(|group| REGIMES.contains(&group.policy())).collect();
        let best = |measure: &Measure<ModelResults>| {
            let better =
                |one: &&&Group<'_>, other: &&&Group<'_>| measure.mean(one).total_cmp(&measure.mean(other));
            of.iter().max_by(better).map_or(String::new(), |group| group.policy().to_owned())
        };
        if of.len() > 1 {
            let label = format!("load {}", of[0].first().load);
            table.push(Row { label, cells: vec![best(&MEASURED), best(&PREDICTED)], suffix: String::new() });
            rows += 1;
        }
    }
    (rows > 0).then_some(table)
}

/// Draws the share of accesses that are late, measured and predicted, by the bound.
fn curves(group: &Group<'_>) -> String {
    let count = group.first().levels.len();
    let line = |name: &str, pen: usize, of: fn(&Level) -> Option<f64>| {
        let point = |at: usize| {
            let mean = group.estimate(|results| of(&results.levels[at]).unwrap_or(f64::NAN)).mean;
            (at as f64, Some(mean).filter(|mean| !mean.is_nan()))
        };
        ChartLine { name: name.to_owned(), pen: Pen::of(pen), points: (0..count).map(point).collect() }
    };
    let tick = |(at, level): (usize, &Level)| (at as f64, level.bound_ms.to_string());
    let ticks = group.first().levels.iter().enumerate().map(tick).collect();
    let lines = Lines {
        title: &group.label(),
        note: "",
        x: Axis { name: "bound, ms".to_owned(), end: (count - 1) as f64, ticks },
        y: Axis::shares("accesses in time"),
        height: 220.0,
        lines: vec![
            line("measured", 0, |level| Some(level.measured)),
            line("predicted", 1, |level| Some(level.predicted)),
            line("by the mean wait", 2, |level| level.by_mean),
        ],
        mark: None,
    };
    figure(&lines.svg(), "Service level against the bound.")
}

/// Draws the percentiles of accesses at two duplicates.
fn dots(group: &Group<'_>) -> String {
    let dots = Dots {
        title: "Percentiles of the same accesses in two runs",
        x: Axis::shares("percentile at one duplicate"),
        y: Axis::shares("percentile at another"),
        height: 500.0,
        colour: COLOURS[0],
        points: &group.kept[0].observed,
    };
    figure(&dots.svg(), "Points are even all over the frame if duplicates are independent.")
}

fn about(comparison: &Comparison) -> String {
    preface(
        &comparison.kept[0].inputs.version,
        ("settings changed", &comparison.settings),
        &comparison.seeds,
        "With one seed, every policy meets the same accesses and the same service times. Levels are the share of \
         the accesses that ended within the bound. Errors are predicted less measured levels; the mean wait is the \
         slides' model.",
    )
}
