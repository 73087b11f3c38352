//! The report of a comparison: a self-contained HTML page with the figures of MicroFuge's paper.

use sherwood_sim::microfuge::ByDeadline;

use super::isolation::{self, Isolation};
use super::runs::Group;
use super::summary::{Claim, SummaryLine};
use crate::chart::{
    self, Axis, Bar, Bars, COLOURS, Cell, ChartLine, Compared, Lines, Pen, comparison, escaped, figure,
    highest, number, table, word,
};
use crate::sim::sweep::label;

/// The results of a comparison.
pub(super) struct Study<'a> {
    /// Runs by policy and value of the swept setting.
    pub(super) groups: &'a [Group],
    /// A line for each of `groups`.
    pub(super) lines: &'a [SummaryLine],
    pub(super) claims: &'a [Claim],
    /// Figures of two tenants, if there are two.
    pub(super) isolation: &'a [Isolation],
    pub(super) settings: &'a [String],
    /// Key of the setting with several values, if there is one.
    pub(super) swept: Option<&'a str>,
}

/// Height of a chart's frame, in pixels.
const HEIGHT: f64 = 250.0;

/// Formats the report as an HTML page.
pub(super) fn page(study: &Study<'_>) -> String {
    let mut page = preface(study);
    page += "<h2>Totals</h2>\n";
    page += &totals_table(study);
    page += &totals(study);
    page += &claims(study.claims);
    page += &isolation::section(study.isolation);
    if let Some(key) = study.swept {
        page += &sweep(study, key);
    } else {
        page += "<h2>By deadline</h2>\n";
        page += &by_deadline(
            study,
            "Missed deadlines",
            "share of the requests",
            "Requests answered after their deadline, of all with a deadline in the range. In MicroFuge's paper: figures 4 to 6.",
            |range| range.miss_ratio,
        );
        page += &by_deadline(
            study,
            "Hits",
            "share of the requests",
            "Requests found in the cache, of all with a deadline in the range. In MicroFuge's paper: figures 7 to 9.",
            |range| range.hit_ratio,
        );
        page += &by_deadline(
            study,
            "Rejections",
            "share of the requests",
            "Requests rejected at once, of all with a deadline in the range.",
            |range| range.rejection_ratio,
        );
        page += &multipliers(study);
    }
    chart::page("Deadlines in front of a slow store", &page)
}

fn preface(study: &Study<'_>) -> String {
    let settings = if study.settings.is_empty() { "none".to_owned() } else { study.settings.join(", ") };
    let Some(first) = study.groups.first() else { return String::new() };
    let seeds: Vec<String> = first.kept.iter().map(|run| run.inputs.seed.to_string()).collect();
    format!(
        "<p>Simulated by Sherwood {}; settings changed: {}; seeds: {}. Shares are of all requests, hits and \
         rejected ones included. With one seed, the clients of each policy send the same requests in the same \
         order. Where there are several seeds, ± or a range in brackets is the 95% confidence interval of the \
         mean.</p>\n",
        first.kept[0].inputs.version,
        escaped(&settings),
        seeds.join(", "),
    )
}

fn totals_table(study: &Study<'_>) -> String {
    let head: Vec<Cell> = std::iter::once(word("policy"))
        .chain(["missed %", "rejected %", "hits %", "requests/s", "P99 ms"].map(number))
        .collect();
    let row = |line: &SummaryLine| {
        vec![
            word(label(&line.policy, line.value.as_deref(), study.swept)),
            number(format!("{:.2}", line.deadline_miss_ratio.times(100.0))),
            number(format!("{:.2}", line.rejection_ratio.times(100.0))),
            number(format!("{:.2}", line.hit_ratio_overall.times(100.0))),
            number(format!("{:.0}", line.requests_per_s)),
            number(format!("{:.1}", line.p99_ms)),
        ]
    };
    table(&head, &study.lines.iter().map(row).collect::<Vec<_>>())
}

/// Draws the shares of missed and rejected requests of each policy.
fn totals(study: &Study<'_>) -> String {
    let bar = |line: &SummaryLine| Bar {
        name: label(&line.policy, line.value.as_deref(), study.swept),
        values: vec![line.deadline_miss_ratio.mean, line.rejection_ratio.mean],
        note: format!("{:.1}", line.deadline_miss_ratio.times(100.0)),
    };
    let longest = study.lines.iter().map(|line| line.deadline_miss_ratio.mean + line.rejection_ratio.mean);
    let bars = Bars {
        title: "Missed and rejected requests",
        note: "",
        parts: vec![
            ("missed".to_owned(), Pen::solid(COLOURS[5])),
            ("rejected".to_owned(), Pen::solid(COLOURS[4])),
        ],
        axis: Axis::of("share of all requests", longest.fold(0.01, f64::max)),
        groups: vec![chart::Group { name: String::new(), bars: study.lines.iter().map(bar).collect() }],
    };
    figure(&bars.svg(), "Beside each bar: missed, in percent. In MicroFuge's paper: figure 12.")
}

fn claims(claims: &[Claim]) -> String {
    let compared = |claim: &Claim| Compared {
        of: claim.policy,
        what: claim.what,
        paper: claim.paper,
        ours: format!("{:.4}", claim.ours),
        required: format!("≤ {}", claim.at_most),
        holds: claim.holds,
    };
    comparison("MicroFuge", "policy", &claims.iter().map(compared).collect::<Vec<_>>())
}

/// Draws a line for each policy over the ranges of deadlines: the mean over the seeds.
fn by_deadline(study: &Study<'_>, title: &str, y: &str, caption: &str, of: fn(&ByDeadline) -> f64) -> String {
    let Some(first) = study.groups.first() else { return String::new() };
    let ranges = &first.kept[0].outcome.results.by_deadline;
    let line = |(index, group): (usize, &Group)| {
        let at = |range: usize| {
            let values = group.kept.iter().map(|run| of(&run.outcome.results.by_deadline[range]));
            values.sum::<f64>() / group.kept.len() as f64
        };
        ChartLine {
            name: group.kept[0].inputs.policy.clone(),
            pen: Pen::of(index),
            points: (0..ranges.len()).map(|range| (range as f64 + 0.5, Some(at(range)))).collect(),
        }
    };
    let lines: Vec<ChartLine> = study.groups.iter().enumerate().map(line).collect();
    let tick = |(index, range): (usize, &ByDeadline)| (index as f64, range.lo_ms.to_string());
    let lines = Lines {
        title,
        note: "",
        x: Axis {
            name: "deadline, ms".to_owned(),
            end: ranges.len() as f64,
            ticks: ranges.iter().enumerate().map(tick).collect(),
        },
        y: Axis::of(y, highest(&lines)),
        height: HEIGHT,
        lines,
        mark: None,
    };
    figure(&lines.svg(), caption)
}

/// Draws the multipliers over time of each policy that has several deadline classes.
fn multipliers(study: &Study<'_>) -> String {
    let mut figures = String::new();
    for group in study.groups {
        let run = &group.kept[0];
        let classes = run.samples.first().map_or(0, |sample| sample.multipliers.len());
        if classes < 2 {
            continue;
        }
        let line = |class: usize| ChartLine {
            name: format!("class {}", class + 1),
            pen: Pen::of(class),
            points: run
                .samples
                .iter()
                .map(|sample| (sample.second, Some(sample.multipliers[class])))
                .collect(),
        };
        let lines: Vec<ChartLine> = (0..classes).map(line).collect();
        let end = run.samples.last().map_or(1.0, |sample| sample.second);
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
fn sweep(study: &Study<'_>, key: &str) -> String {
    let mut lines = Vec::new();
    let policies = study.lines.chunk_by(|a, b| a.policy == b.policy);
    for (index, policy) in policies.enumerate() {
        let mut line = |what: &str, dashes: &'static str, of: fn(&SummaryLine) -> f64| {
            let at = |line: &SummaryLine| Some((line.value.as_ref()?.parse().ok()?, Some(of(line))));
            lines.push(ChartLine {
                name: format!("{} {what}", policy[0].policy),
                pen: Pen { dashes, ..Pen::of(index) },
                points: policy.iter().filter_map(at).collect(),
            });
        };
        line("missed", "", |line| line.deadline_miss_ratio.mean);
        line("rejected", "7 3", |line| line.rejection_ratio.mean);
        line("both", "2 2", |line| line.deadline_miss_ratio.mean + line.rejection_ratio.mean);
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
