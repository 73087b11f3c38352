//! The report of a comparison: the latencies of each policy, over all seeds.

use sherwood_sim::spare::Results;

use super::figures;
use super::study::{Comparison, Group};
use crate::chart::escaped;
use crate::sim::comparison::{Measure, by_scenario, summary};
use crate::sim::report::{Goal, Section, best, preface};
use crate::sim::table::{Column, Table};

const PAGE_MEAN: Measure<Results> = Measure::new("page_mean_ms", |results| results.page_mean_ms);
const PAGE_P95: Measure<Results> = Measure::new("page_p95_ms", |results| results.page_p95_ms);
pub(super) const PAGE_P99: Measure<Results> = Measure::new("page_p99_ms", |results| results.page_p99_ms);
const QUERY_MEAN: Measure<Results> = Measure::new("query_mean_ms", |results| results.query_mean_ms);
const QUERY_P95: Measure<Results> = Measure::new("query_p95_ms", |results| results.query_p95_ms);
const QUERY_P99: Measure<Results> = Measure::new("query_p99_ms", |results| results.query_p99_ms);
pub(super) const EXTRA: Measure<Results> =
    Measure::new("extra_load_ratio", |results| results.extra_load_ratio);
pub(super) const TRIES: Measure<Results> = Measure::new("tries", |results| results.tries.into());

const MEASURES: [Measure<Results>; 8] =
    [PAGE_MEAN, PAGE_P95, PAGE_P99, QUERY_MEAN, QUERY_P95, QUERY_P99, EXTRA, TRIES];

/// The latencies of pages or queries, with names.
pub(super) struct Times(pub(super) [(&'static str, Measure<Results>); 3]);

impl Times {
    pub(super) const PAGES: Self = Self([("mean", PAGE_MEAN), ("P95", PAGE_P95), ("P99", PAGE_P99)]);
    pub(super) const QUERIES: Self = Self([("mean", QUERY_MEAN), ("P95", QUERY_P95), ("P99", QUERY_P99)]);
}

const COLUMNS: [Column<Results>; 7] = [
    Column { head: "page ms", width: 18, measure: PAGE_MEAN, decimals: 1 },
    Column { head: "P95 ms", width: 20, measure: PAGE_P95, decimals: 1 },
    Column { head: "P99 ms", width: 20, measure: PAGE_P99, decimals: 1 },
    Column { head: "query ms", width: 16, measure: QUERY_MEAN, decimals: 2 },
    Column { head: "P95 ms", width: 16, measure: QUERY_P95, decimals: 2 },
    Column { head: "P99 ms", width: 18, measure: QUERY_P99, decimals: 2 },
    Column { head: "extra load", width: 16, measure: EXTRA, decimals: 3 },
];

/// The policy without interference, which no policy competes with.
const BOUND: &str = "quiet";

const GOAL: Goal<Results> =
    Goal { measure: PAGE_P99, is_gain: false, words: "had the lowest 99th percentile of pages" };

/// Returns the sections of the report.
pub(in crate::sim) fn sections(comparison: &Comparison) -> Vec<Section> {
    let groups = comparison.groups();
    let reached: Vec<Group<'_>> =
        comparison.groups().into_iter().filter(|group| group.policy() != BOUND).collect();
    let (mut text, mut html) = (String::new(), best(&reached, &GOAL) + &about(comparison));
    for groups in by_scenario(&groups) {
        let table = Table::of(groups[0].scenario(), 16, &COLUMNS, groups);
        text += &table.text("");
        html += &format!("<h2>{}</h2>\n{}", escaped(groups[0].scenario()), table.html("policy"));
        if let Some(found) = figures::found(groups) {
            text += &found.text("  ");
            html += &found.html("policy");
        }
        html += &figures::of_scenario(groups);
    }
    vec![Section::new("summary", &summary(&MEASURES, &groups), text, html)]
}

fn about(comparison: &Comparison) -> String {
    preface(
        &comparison.kept[0].inputs.version,
        ("settings changed", &comparison.settings),
        &comparison.seeds,
        "With one seed, every policy meets the same pages, queries and neighbours. Extra load is the work of all \
         attempts, divided by that of one attempt for each page and query, less 1.",
    )
}
