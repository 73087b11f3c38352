//! The report of a comparison, with the figures of MicroFuge's paper.

use sherwood_sim::microfuge::{ByDeadline, Results};

use super::isolation;
use super::study::{Comparison, Group};
use super::summary::{self, MISSED, REJECTED};
use crate::chart::{self, Axis, Bar, Bars, COLOURS, ChartLine, Lines, Pen, escaped, figure, highest};
use crate::sim::report::{Goal, Section, best, preface};

const GOAL: Goal<Results> = Goal { measure: MISSED, is_gain: false, words: "missed the fewest deadlines" };

/// Height of a chart's frame, in pixels.
const HEIGHT: f64 = 250.0;

/// Draws the figures of a comparison: over the values of the swept setting if there is one,
/// otherwise by deadline.
fn figures(comparison: &Comparison, groups: &[Group<'_>]) -> String {
    if let Some(key) = &comparison.swept {
        return sweep(groups, key);
    }
    let mut page = "<h2>By deadline</h2>\n".to_owned();
    page += &by_deadline(
        groups,
        "Missed deadlines",
        "Requests answered after their deadline, of all with a deadline in the range. In MicroFuge's paper: figures 4 to 6.",
        |range| range.shares.miss_ratio,
    );
    page += &by_deadline(
        groups,
        "Hits",
        "Requests found in the cache, of all with a deadline in the range. In MicroFuge's paper: figures 7 to 9.",
        |range| range.shares.hit_ratio,
    );
    page += &by_deadline(
        groups,
        "Rejections",
        "Requests rejected at once, of all with a deadline in the range.",
        |range| range.shares.rejection_ratio,
    );
    page + &multipliers(groups)
}

/// Returns the sections of the report, with the figures of MicroFuge's paper.
pub(in crate::sim) fn sections(comparison: &Comparison) -> Vec<Section> {
    let groups = comparison.groups();
    let table = summary::table(&groups);
    let totals = format!("<h2>Totals</h2>\n{}{}", table.html("policy"), totals(&groups));
    let claims = summary::claims(&groups, &comparison.settings);
    vec![
        Section::new(
            "summary",
            &summary::lines(&groups),
            table.text(""),
            best(&groups, &GOAL) + &about(comparison) + &totals,
        ),
        summary::CLAIMS.section(&claims),
        isolation::section(&groups),
        Section::page(figures(comparison, &groups)),
    ]
}

fn about(comparison: &Comparison) -> String {
    preface(
        &comparison.kept[0].inputs.version,
        ("settings changed", &comparison.settings),
        &comparison.seeds,
        "Shares are of all requests, hits and rejected ones included. With one seed, the clients of each policy \
         send the same requests in the same order.",
    )
}

/// Draws the shares of missed and rejected requests of each policy.
fn totals(groups: &[Group<'_>]) -> String {
    let bar = |group: &Group<'_>| Bar {
        name: group.label(),
        values: vec![MISSED.mean(group), REJECTED.mean(group)],
        note: MISSED.cell(group, 1),
    };
    let longest = groups.iter().map(failed);
    let bars = Bars {
        title: "Missed and rejected requests",
        note: "",
        parts: vec![
            ("missed".to_owned(), Pen::solid(COLOURS[5])),
            ("rejected".to_owned(), Pen::solid(COLOURS[4])),
        ],
        axis: Axis::of("share of all requests", longest.fold(0.01, f64::max)),
        groups: vec![chart::Group { name: String::new(), bars: groups.iter().map(bar).collect() }],
    };
    figure(&bars.svg(), "Beside each bar: missed, in percent. In MicroFuge's paper: figure 12.")
}

/// Draws a line for each policy over the ranges of deadlines: the mean over the seeds.
fn by_deadline(groups: &[Group<'_>], title: &str, caption: &str, of: fn(&ByDeadline) -> f64) -> String {
    let ranges = &groups[0].first().by_deadline;
    let line = |(index, group): (usize, &Group<'_>)| {
        let at = |range: usize| group.estimate(|results| of(&results.by_deadline[range])).mean;
        ChartLine {
            name: group.policy().to_owned(),
            pen: Pen::of(index),
            points: (0..ranges.len()).map(|range| (range as f64 + 0.5, Some(at(range)))).collect(),
        }
    };
    let lines: Vec<ChartLine> = groups.iter().enumerate().map(line).collect();
    let tick = |(index, range): (usize, &ByDeadline)| (index as f64, range.lo_ms.to_string());
    let lines = Lines {
        title,
        note: "",
        x: Axis {
            name: "deadline, ms".to_owned(),
            end: ranges.len() as f64,
            ticks: ranges.iter().enumerate().map(tick).collect(),
        },
        y: Axis::of("share of the requests", highest(&lines)),
        height: HEIGHT,
        lines,
        mark: None,
    };
    figure(&lines.svg(), caption)
}

/// Draws the multipliers over time of each policy that has several deadline classes.
fn multipliers(groups: &[Group<'_>]) -> String {
    let mut figures = String::new();
    for group in groups {
        let run = &group.kept[0];
        let classes = run.observed.first().map_or(0, |sample| sample.multipliers.len());
        if classes < 2 {
            continue;
        }
        let line = |class: usize| ChartLine {
            name: format!("class {}", class + 1),
            pen: Pen::of(class),
            points: run
                .observed
                .iter()
                .map(|sample| (sample.second, Some(sample.multipliers[class])))
                .collect(),
        };
        let lines: Vec<ChartLine> = (0..classes).map(line).collect();
        let end = run.observed.last().map_or(1.0, |sample| sample.second);
        let title = format!("Multipliers under {}", run.inputs.policy);
        let lines = Lines {
            title: &title,
            note: "",
            x: Axis::of("seconds", end),
            y: Axis::of("multiplier", highest(&lines)),
            height: HEIGHT,
            lines,
            mark: None,
        };
        let caption = format!(
            "Multipliers of the cache's deadline classes, the shortest deadlines first; seed {}. In MicroFuge's paper: figure 10.",
            run.inputs.seed
        );
        figures += &figure(&lines.svg(), &caption);
    }
    if figures.is_empty() { figures } else { format!("<h2>Multipliers over time</h2>\n{figures}") }
}

/// Draws missed and rejected requests over the values of the swept setting.
fn sweep(groups: &[Group<'_>], key: &str) -> String {
    let mut lines = Vec::new();
    let policies = groups.chunk_by(|one, other| one.policy() == other.policy());
    for (index, policy) in policies.enumerate() {
        let mut line = |what: &str, dashes: &'static str, of: fn(&Group<'_>) -> f64| {
            let at = |group: &Group<'_>| Some((group.value?.parse().ok()?, Some(of(group))));
            lines.push(ChartLine {
                name: format!("{} {what}", policy[0].policy()),
                pen: Pen { dashes, ..Pen::of(index) },
                points: policy.iter().filter_map(at).collect(),
            });
        };
        line("missed", "", |group| MISSED.mean(group));
        line("rejected", "7 3", |group| REJECTED.mean(group));
        line("both", "2 2", failed);
    }
    let end = lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
    // The values of some settings are no numbers.
    if end <= 0.0 || key == isolation::KEY {
        return String::new();
    }
    let lines = Lines {
        title: "Missed and rejected requests",
        note: "",
        x: Axis::of(key, end),
        y: Axis::of("share of all requests", highest(&lines)),
        height: HEIGHT,
        lines,
        mark: None,
    };
    let caption = "Means over the seeds. In MicroFuge's paper, for beta: figure 11.";
    format!("<h2>Sweep of {}</h2>\n{}", escaped(key), figure(&lines.svg(), caption))
}

/// Returns the share of the requests that missed their deadline or were rejected.
fn failed(group: &Group<'_>) -> f64 {
    MISSED.mean(group) + REJECTED.mean(group)
}
