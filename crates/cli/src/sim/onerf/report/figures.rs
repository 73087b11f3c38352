//! The plots of RobinHood's paper, drawn for any comparison.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Limits;
use crate::chart::{
    Areas, Axis, Bar, Bars, COLOURS, ChartLine, Column, Group, Lines, Mark, OTHERS, Pen, assigned,
};
use crate::sim::inputs::distinct;
use crate::sim::onerf::hits::LiveRun;
use crate::sim::onerf::kept::Kept;
use crate::sim::onerf::plotted::{BackendSeries, Series};
use crate::sim::report::Picture;

/// Pens of the policies compared in RobinHood's paper, which are the same in all comparisons.
const POLICIES: [(&str, Pen); 6] = [
    ("robinhood", Pen { width: 2.4, ..Pen::solid(COLOURS[0]) }),
    ("shared-lru", Pen::solid(COLOURS[5])),
    ("tao", Pen { dashes: "8 2", ..Pen::solid(COLOURS[2]) }),
    ("cliffhanger", Pen { dashes: "2 2", ..Pen::solid(COLOURS[3]) }),
    ("fair", Pen { dashes: "6 2 2 2", ..Pen::solid(COLOURS[1]) }),
    ("lama", Pen::solid(COLOURS[4])),
];

/// Height of a chart's frame, in pixels.
const HEIGHT: f64 = 250.0;
/// Most points of a line; more would not be visible.
const POINTS_MAX: usize = 720;
/// Height of a latency axis as a multiple of the bound.
const LATENCY_SPAN: f64 = 4.0;
/// Number of backends drawn separately, in addition to those that a figure is about.
const BACKENDS: usize = 6;
/// Most backends whose hits are shown.
const HITS_OF: usize = 20;
/// Minutes at which the paper reports which backends blocked requests.
const BLOCKING_AT_MIN: [usize; 3] = [50, 100, 150];

/// Draws the figures of one scenario. Values over time are those of the first seed.
pub(super) fn of(kept: &[Kept], limits: Option<&Limits>, scenario: &str) -> Vec<Picture> {
    let runs: Vec<&Kept> = kept.iter().filter(|run| run.inputs.scenario == scenario).collect();
    let Some(seed) = runs.first().map(|run| run.inputs.seed) else { return Vec::new() };
    let first: Vec<&Kept> = runs.iter().copied().filter(|run| run.inputs.seed == seed).collect();
    let under = |policy: &str| first.iter().copied().find(|run| run.inputs.policy == policy);
    let pens = pens(&runs);
    let mut figures: Vec<Picture> = Vec::new();
    let limits = limits.filter(|limits| !limits.is_empty());
    let limited: Vec<usize> = limits.into_iter().flatten().map(|line| line.backend).collect();
    figures.extend(limits.map(left));
    figures.push(request_p99(&first, &pens));
    figures.extend(levels(&runs, &pens));
    figures.extend(under("shared-lru").map(|run| backend_p99(run, &limited)));
    figures.extend(blocking(&first));
    figures.extend(under("robinhood").map(allocation));
    for figure in &mut figures {
        if let Some(number) = number_in_paper(scenario, &figure.name) {
            let _ = write!(figure.caption, " In RobinHood's paper: figure {number}.");
        }
        figure.name = format!("{}-{}", file_name(scenario), figure.name);
    }
    figures
}

/// Number of the corresponding figure in RobinHood's paper.
fn number_in_paper(scenario: &str, figure: &str) -> Option<u8> {
    match (scenario, figure) {
        ("onerf-spikes", "request-p99") => Some(3),
        ("onerf-spikes", "backend-p99") => Some(7),
        ("onerf-spikes", "violations-p99" | "violations-p90" | "violations-p50") => Some(8),
        ("onerf-spikes", "blocking") => Some(9),
        ("ramp-7-slow" | "ramp-7-quick", "request-p99") => Some(10),
        ("ramp-1-slow" | "ramp-1-quick", "request-p99") => Some(11),
        ("onerf-random", "request-p99" | "violations-p99") => Some(12),
        ("onerf-spikes" | "onerf-random", "allocation") => Some(13),
        _ => None,
    }
}

/// Replaces characters that are not allowed in file names everywhere.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    text.chars().map(plain).collect()
}

/// Assigns a pen to each policy.
fn pens(runs: &[&Kept]) -> BTreeMap<String, Pen> {
    let mut pens = BTreeMap::new();
    let mut others = 0;
    for run in runs {
        let policy = &run.inputs.policy;
        if pens.contains_key(policy) {
            continue;
        }
        pens.insert(policy.clone(), pen(policy, others));
        others += usize::from(POLICIES.iter().all(|(name, _)| name != policy));
    }
    pens
}

/// Returns the policy's own pen, or one of those that no policy owns.
fn pen(policy: &str, others: usize) -> Pen {
    let own = POLICIES.iter().find(|(name, _)| *name == policy);
    own.map_or_else(|| Pen::of(POLICIES.len() + others), |(_, pen)| *pen)
}

/// Draws the share of its resource that each limited backend has left, over time.
fn left(limits: &Limits) -> Picture {
    let numbers: Vec<usize> = limits.iter().map(|line| line.backend).collect();
    let line = |(line, pen): (&sherwood_sim::LimitLine, Pen)| ChartLine {
        name: line.name.clone(),
        pen,
        points: line.points.iter().map(|&(minute, limit)| (minute, Some(limit))).collect(),
    };
    let minutes = limits.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
    let lines = Lines {
        title: "What is left of the backends",
        note: "",
        x: Axis::of("minutes", minutes),
        y: Axis::shares("share of the resource"),
        height: HEIGHT * 0.6,
        lines: limits.iter().zip(assigned(&numbers)).map(line).collect(),
        mark: None,
    };
    Picture {
        name: "limits".to_owned(),
        svg: lines.svg(),
        caption: "A call of a backend that has half left takes twice as long. Backends that are not drawn have all of theirs."
            .to_owned(),
    }
}

fn request_p99(runs: &[&Kept], pens: &BTreeMap<String, Pen>) -> Picture {
    let bound = bound_ms(runs);
    let end = bound * LATENCY_SPAN;
    let line = |run: &&Kept| ChartLine {
        name: run.inputs.policy.clone(),
        pen: pens[&run.inputs.policy],
        points: points(&run.observed.minute, &run.observed.p99_ms),
    };
    let lines = runs.iter().map(line).collect();
    Picture {
        name: "request-p99".to_owned(),
        svg: over_time("P99 of request latency", end, lines, Some(Mark::Across(bound, "SLO")), runs[0]),
        caption: format!(
            "P99 of the requests of the last minute, observed every 5 s; seed {}. What is above {end:.0} ms is drawn there.",
            runs[0].inputs.seed,
        ),
    }
}

/// Draws a figure for each percentile: the share of violations as a function of the bound.
fn levels(runs: &[&Kept], pens: &BTreeMap<String, Pen>) -> Vec<Picture> {
    let bound = bound_ms(runs);
    let one = |name: &str, end: f64, column: fn(&Series) -> &[Option<f64>]| {
        let policies = distinct(&runs.iter().map(|run| run.inputs.policy.as_str()).collect::<Vec<_>>());
        let line = |policy: &&str| {
            let of = runs.iter().filter(|run| run.inputs.policy == **policy);
            let mut seen: Vec<f64> =
                of.flat_map(|run| column(&run.observed).iter().flatten().copied()).collect();
            seen.sort_by(f64::total_cmp);
            ChartLine { name: (*policy).to_owned(), pen: pens[*policy], points: exceeded(&seen, end) }
        };
        let lines = Lines {
            title: &format!("Observations of {name} above a bound"),
            note: "",
            x: Axis::of("bound (ms)", end),
            // The axis covers 100%, since every observation is above a bound of 0.
            y: Axis::of("% of the observations", 100.0),
            height: HEIGHT,
            lines: policies.iter().map(line).collect(),
            mark: (name == "P99").then_some(Mark::Up(bound, "SLO")),
        };
        Picture {
            name: format!("violations-{}", name.to_lowercase()),
            svg: lines.svg(),
            caption: format!("How often the {name} of a minute's requests was above each bound; all seeds."),
        }
    };
    vec![
        one("P99", bound * 2.0, |series| &series.p99_ms),
        one("P90", bound, |series| &series.p90_ms),
        one("P50", bound / 2.0, |series| &series.p50_ms),
    ]
}

/// Percentages of the ascending values that are above bounds from 0 to `end`.
fn exceeded(seen: &[f64], end: f64) -> Vec<(f64, Option<f64>)> {
    let steps = POINTS_MAX / 3;
    let bound = |step: usize| step as f64 / steps as f64 * end;
    let above = |bound: f64| seen.len() - seen.partition_point(|&value| value <= bound);
    let percent = |bound: f64| above(bound) as f64 / seen.len().max(1) as f64 * 100.0;
    (0..=steps).map(bound).map(|bound| (bound, Some(percent(bound)))).collect()
}

/// Draws the P99 of the limited backends, even when their queries are few, and of the slowest other
/// backends.
fn backend_p99(run: &Kept, limited: &[usize]) -> Picture {
    let order = largest(run, limited, |backend| backend.query_p99_ms.iter().flatten().sum());
    let line = |(&index, pen): (&usize, Pen)| {
        let backend = &run.observed.backends[index];
        let points = backend.query_p99_ms.iter().enumerate();
        ChartLine {
            name: backend.name.clone(),
            pen,
            points: points.map(|(minute, &ms)| ((minute + 1) as f64, ms)).collect(),
        }
    };
    let lines: Vec<ChartLine> = order.iter().zip(assigned(&order)).map(line).collect();
    let top =
        lines.iter().flat_map(|line| line.points.iter().filter_map(|point| point.1)).fold(0.0, f64::max);
    Picture {
        name: "backend-p99".to_owned(),
        svg: over_time(
            "P99 of query latency under shared-lru",
            if top > 0.0 { top } else { 1.0 },
            lines,
            None,
            run,
        ),
        caption: format!(
            "{} backends: those that are limited, and of the others those whose queries were slowest, up to {BACKENDS} in \
             all. Hits count, so a P99 may be a hit's; seed {}.",
            order.len(),
            run.inputs.seed,
        ),
    }
}

fn allocation(run: &Kept) -> Picture {
    let all = &run.observed.backends;
    let results = &run.outcome.results;
    let ratio = results.static_equivalent_ratio;
    let largest_bytes: f64 = results.allocation_bytes.values().map(|allocation| allocation.max).sum();
    let cache_bytes = if ratio > 0.0 { largest_bytes / ratio } else { 1.0 };
    let order = largest(run, &[], |backend| backend.allocation_bytes.iter().sum());
    let share = |index: usize, minute: usize| all[index].allocation_bytes[minute] / cache_bytes;
    let column = |minute: usize| {
        let own = order.iter().map(|&index| share(index, minute));
        let others = (0..all.len()).filter(|index| !order.contains(index));
        let others = others.map(|index| share(index, minute)).sum();
        Column { x: (minute + 1) as f64, values: own.chain([others]).collect() }
    };
    let minutes = all.first().map_or(0, |backend| backend.allocation_bytes.len());
    let end = ratio.max(1.0) * 1.08;
    let tick = |fifth: u32| (f64::from(fifth) / 5.0, format!("{}%", fifth * 20));
    let ticks = (0..).map(tick).take_while(|(value, _)| *value <= end);
    let areas = Areas {
        title: "Allocation under robinhood",
        note: "",
        x: Axis::of("minutes", run.observed.minute.last().copied().unwrap_or(1.0)),
        y: Axis { name: "share of a server's cache".to_owned(), end, ticks: ticks.collect() },
        height: HEIGHT,
        parts: parts(all, &order),
        columns: (0..minutes).map(column).collect(),
        marks: vec![(1.0, "the cache".to_owned()), (ratio, format!("without moving: {ratio:.2} caches"))],
    };
    Picture {
        name: "allocation".to_owned(),
        svg: areas.svg(),
        caption: format!(
            "Of a server's cache, on average over the servers. A division that never changes and gives each backend its \
             maximum would need {ratio:.2} times the cache; seed {}.",
            run.inputs.seed,
        ),
    }
}

/// Draws the backends that blocked slow requests, for each policy at three times; none when the run
/// is too short.
fn blocking(runs: &[&Kept]) -> Option<Picture> {
    let all = &runs[0].observed.backends;
    let minutes = all.first()?.blocking_ratio.len();
    let at: Vec<usize> = BLOCKING_AT_MIN.into_iter().filter(|&minute| minute <= minutes).collect();
    let sum = |index: usize| -> f64 {
        runs.iter().flat_map(|run| at.iter().map(move |&minute| share(run, index, minute))).sum()
    };
    let order = first_by(all.len(), &[], sum);
    let bar = |run: &&Kept, minute: usize| {
        let own = order.iter().map(|&index| share(run, index, minute));
        let others = (0..all.len()).filter(|index| !order.contains(index));
        let others = others.map(|index| share(run, index, minute)).sum();
        let dominant =
            (0..all.len()).max_by(|&a, &b| share(run, a, minute).total_cmp(&share(run, b, minute)));
        let note = |index: usize| format!("{} {:.0}%", all[index].name, share(run, index, minute) * 100.0);
        Bar {
            name: run.inputs.policy.clone(),
            values: own.chain([others]).collect(),
            note: dominant.map(note).unwrap_or_default(),
        }
    };
    let group = |&minute: &usize| Group {
        name: format!("minute {minute}"),
        bars: runs.iter().map(|run| bar(run, minute)).collect(),
    };
    let bars = Bars {
        title: "Who blocks the slow requests",
        note: "",
        parts: parts(all, &order),
        axis: Axis::shares("share of the slow requests"),
        groups: at.iter().map(group).collect(),
    };
    (!at.is_empty()).then(|| Picture {
        name: "blocking".to_owned(),
        svg: bars.svg(),
        caption: format!(
            "Shares of the backends in the blocking of the requests between the 98.5th and the 99.5th percentile, and the \
             largest of them; seed {}.",
            runs[0].inputs.seed,
        ),
    })
}

/// Draws the latencies of hits measured by nodes; none without measurements.
pub(super) fn hits(runs: &[LiveRun]) -> Option<Picture> {
    let mut backends: Vec<&String> = runs.iter().flat_map(|run| run.hit_p99_ms.keys()).collect();
    backends.sort();
    backends.dedup();
    backends.truncate(HITS_OF);
    let highest = runs.iter().flat_map(|run| run.hit_p99_ms.values()).copied().fold(0.0, f64::max);
    let parts: Vec<(String, Pen)> =
        runs.iter().enumerate().map(|(index, run)| (run.policy.clone(), pen(&run.policy, index))).collect();
    let bar = |index: usize, backend: &str| {
        let ms = runs[index].hit_p99_ms.get(backend).copied();
        let value = |part: usize| if part == index { ms.unwrap_or(0.0) } else { 0.0 };
        Bar {
            name: runs[index].policy.clone(),
            values: (0..runs.len()).map(value).collect(),
            note: ms.map_or("no hit".to_owned(), |ms| format!("{ms:.3} ms")),
        }
    };
    let group = |backend: &&String| Group {
        name: (*backend).clone(),
        bars: (0..runs.len()).map(|index| bar(index, backend)).collect(),
    };
    let bars = Bars {
        title: "P99 of the latency of hits",
        note: "",
        parts,
        axis: Axis::of("ms", if highest > 0.0 { highest } else { 1.0 }),
        groups: backends.iter().map(group).collect(),
    };
    (!backends.is_empty()).then(|| Picture {
        name: "hits-p99".to_owned(),
        svg: bars.svg(),
        caption: "Of keys that were in the cache, measured by a node under load: from the request's arrival to the end of its \
                  look-up. In RobinHood's paper: figure 14."
            .to_owned(),
    })
}

fn share(run: &Kept, backend: usize, minute: usize) -> f64 {
    run.observed.backends[backend].blocking_ratio.get(minute - 1).copied().unwrap_or(0.0)
}

fn bound_ms(runs: &[&Kept]) -> f64 {
    runs[0].outcome.results.slo_bound_ms
}

/// Returns names and pens of the backends, followed by that of all others.
fn parts(all: &[BackendSeries], order: &[usize]) -> Vec<(String, Pen)> {
    let own = order.iter().zip(assigned(order)).map(|(&index, pen)| (all[index].name.clone(), pen));
    own.chain([("others".to_owned(), OTHERS)]).collect()
}

/// Returns the `wanted` backends and those with the largest values, in order.
fn largest(run: &Kept, wanted: &[usize], value: impl Fn(&BackendSeries) -> f64) -> Vec<usize> {
    first_by(run.observed.backends.len(), wanted, |index| value(&run.observed.backends[index]))
}

/// Selects from the first `count` numbers all that are `wanted`, and those with the largest values
/// to fill up to [`BACKENDS`]; returns them in order.
fn first_by(count: usize, wanted: &[usize], value: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| value(b).total_cmp(&value(a)));
    // A stable sort keeps the order of the others.
    order.sort_by_key(|index| !wanted.contains(index));
    order.truncate(BACKENDS.max(wanted.len()));
    order.sort_unstable();
    order
}

/// Reduces the points of a line to the visible ones: of close points the highest is kept.
fn points(x: &[f64], y: &[Option<f64>]) -> Vec<(f64, Option<f64>)> {
    let together = x.len().div_ceil(POINTS_MAX).max(1);
    let highest =
        |(x, y): (&[f64], &[Option<f64>])| (x[0], y.iter().flatten().copied().max_by(f64::total_cmp));
    x.chunks(together).zip(y.chunks(together)).map(highest).collect()
}

fn over_time(title: &str, end_ms: f64, lines: Vec<ChartLine>, mark: Option<Mark<'_>>, run: &Kept) -> String {
    let minutes = run.observed.minute.last().copied().unwrap_or(1.0);
    let (x, y) = (Axis::of("minutes", minutes), Axis::of("ms", end_ms));
    Lines { title, note: "", x, y, height: HEIGHT, lines, mark }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_equal_to_the_bound_does_not_exceed_it() {
        let exceeded = exceeded(&[1.0, 2.0, 3.0, 4.0], 4.0);
        let at = |bound: f64| exceeded.iter().find(|point| point.0 >= bound).and_then(|point| point.1);
        assert_eq!([at(0.0), at(2.0), at(4.0)], [Some(100.0), Some(50.0), Some(0.0)]);
    }

    #[test]
    fn highest_of_close_points_of_a_line_is_drawn() {
        let x: Vec<f64> = (0..1_440).map(f64::from).collect();
        let y: Vec<Option<f64>> = x.iter().map(|&x| (x != 0.0).then_some(x)).collect();
        let points = points(&x, &y);
        assert_eq!((points.len(), points[0], points[1]), (720, (0.0, Some(1.0)), (2.0, Some(3.0))));
    }
}
