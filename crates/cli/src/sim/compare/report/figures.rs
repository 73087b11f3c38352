//! Which plots there are: those of RobinHood's paper, of whatever was compared.

use super::bars::{Bars, Group};
use super::chart::{Axis, Chart, Line};
use crate::sim::compare::keep::Kept;
use crate::sim::compare::series::{BackendSeries, Series};

/// A picture and what it shows.
pub(super) struct Figure {
    pub(super) svg: String,
    pub(super) caption: String,
}

const COLOURS: [&str; 8] =
    ["#2a7f3f", "#c0392b", "#8e44ad", "#d68910", "#1f618d", "#7f8c8d", "#000000", "#16a085"];
const OTHERS_COLOUR: &str = "#dddddd";

/// Points of a line at most: more are not seen.
const POINTS_MAX: usize = 720;
/// Latencies up to this many times the bound are drawn.
const LATENCY_SPAN: f64 = 3.0;
/// Backends that have a line or a part of their own.
const BACKENDS_MAX: usize = 6;
/// Minutes at which the paper looks at who blocks.
const BLOCKING_AT_MIN: [usize; 3] = [50, 100, 150];

/// The figures of one scenario. Where something is shown over time it is of the first seed.
pub(super) fn of(runs: &[&Kept]) -> Vec<Figure> {
    let seed = runs[0].inputs.seed;
    let first: Vec<&Kept> = runs.iter().copied().filter(|run| run.inputs.seed == seed).collect();
    let mut figures = vec![request_p99(&first)];
    figures.extend(levels(runs));
    figures.extend(first.iter().find(|run| run.inputs.policy == "shared-lru").map(|run| backend_p99(run)));
    figures.extend(blocking(&first));
    figures.extend(first.iter().find(|run| run.inputs.policy == "robinhood").map(|run| allocation(run)));
    figures
}

fn request_p99(runs: &[&Kept]) -> Figure {
    let bound = bound_ms(runs);
    let line = |(index, run): (usize, &&Kept)| Line {
        name: run.inputs.policy.clone(),
        colour: COLOURS[index % COLOURS.len()],
        points: points(&run.series.minute, &run.series.p99_ms),
    };
    let lines = runs.iter().enumerate().map(line).collect();
    Figure {
        svg: over_time(
            "P99 of request latency",
            "ms",
            bound * LATENCY_SPAN,
            lines,
            Some((bound, "SLO")),
            runs[0],
        ),
        caption: format!(
            "P99 of the requests of the last minute, observed every 5 s; seed {}. Latencies above {:.0} ms are \
             drawn there.",
            runs[0].inputs.seed,
            bound * LATENCY_SPAN
        ),
    }
}

/// One for each percentile: which bound would have been violated how often.
fn levels(runs: &[&Kept]) -> Vec<Figure> {
    let bound = bound_ms(runs);
    let one = |name: &str, end: f64, column: fn(&Series) -> &[Option<f64>]| {
        let mut policies: Vec<&str> = Vec::new();
        for run in runs {
            if !policies.contains(&run.inputs.policy.as_str()) {
                policies.push(&run.inputs.policy);
            }
        }
        let line = |(index, policy): (usize, &&str)| {
            let of = runs.iter().filter(|run| run.inputs.policy == **policy);
            let mut seen: Vec<f64> =
                of.flat_map(|run| column(&run.series).iter().flatten().copied()).collect();
            seen.sort_by(f64::total_cmp);
            Line {
                name: (*policy).to_owned(),
                colour: COLOURS[index % COLOURS.len()],
                points: exceeded(&seen, end),
            }
        };
        let title = format!("Observations of {name} above a bound");
        let chart = Chart {
            title: &title,
            x: Axis { name: "bound (ms)", end },
            y: Axis { name: "% of the observations", end: 60.0 },
            lines: policies.iter().enumerate().map(line).collect(),
            mark: None,
        };
        Figure {
            svg: chart.svg(),
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

fn backend_p99(run: &Kept) -> Figure {
    let backends = largest(run, |backend| backend.query_p99_ms.iter().flatten().sum());
    let lines =
        backends.iter().enumerate().map(|(index, backend)| line(index, backend, &backend.query_p99_ms, 1.0));
    let lines: Vec<Line> = lines.collect();
    Figure {
        svg: over_time("P99 of query latency under shared-lru", "ms", top(&lines), lines, None, run),
        caption: format!(
            "The {} backends whose queries were slowest; hits count, so a P99 may be a hit's.",
            backends.len()
        ),
    }
}

fn allocation(run: &Kept) -> Figure {
    let backends = largest(run, |backend| backend.allocation_bytes.iter().sum());
    let mib = f64::from(1 << 20);
    let lines = backends.iter().enumerate().map(|(index, backend)| {
        let bytes: Vec<Option<f64>> = backend.allocation_bytes.iter().copied().map(Some).collect();
        line(index, backend, &bytes, 1.0 / mib)
    });
    let lines: Vec<Line> = lines.collect();
    Figure {
        svg: over_time("Allocation under robinhood", "MiB", top(&lines), lines, None, run),
        caption: format!(
            "Of a server's cache, on average over the servers. A division that never changes and gives each backend its \
             maximum would need {:.2} times the cache.",
            run.outcome.results.static_equivalent_ratio
        ),
    }
}

/// Who blocked the slow requests, under each policy at three times; none where the run is too short.
fn blocking(runs: &[&Kept]) -> Option<Figure> {
    let minutes = runs[0].series.backends.first()?.blocking_ratio.len();
    let at: Vec<usize> = BLOCKING_AT_MIN.into_iter().filter(|&minute| minute <= minutes).collect();
    let all = &runs[0].series.backends;
    let sum = |index: usize| -> f64 {
        runs.iter().flat_map(|run| at.iter().map(move |&minute| share(run, index, minute))).sum()
    };
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| sum(b).total_cmp(&sum(a)));
    order.truncate(BACKENDS_MAX);
    let bar = |run: &&Kept, minute: usize| {
        let shares: Vec<f64> = order.iter().map(|&index| share(run, index, minute)).collect();
        let others = (0..all.len()).filter(|index| !order.contains(index));
        let others = others.map(|index| share(run, index, minute)).sum();
        (run.inputs.policy.clone(), shares.into_iter().chain([others]).collect())
    };
    let group = |&minute: &usize| Group {
        name: format!("minute {minute}"),
        bars: runs.iter().map(|run| bar(run, minute)).collect(),
    };
    let parts = order.iter().zip(COLOURS).map(|(&index, colour)| (all[index].name.clone(), colour));
    let bars = Bars {
        title: "Who blocks the slow requests",
        parts: parts.chain([("others".to_owned(), OTHERS_COLOUR)]).collect(),
        groups: at.iter().map(group).collect(),
    };
    (!at.is_empty()).then(|| Figure {
        svg: bars.svg(),
        caption: "Shares of the backends in the blocking of the requests between the 98.5th and the 99.5th percentile."
            .to_owned(),
    })
}

fn share(run: &Kept, backend: usize, minute: usize) -> f64 {
    run.series.backends[backend].blocking_ratio.get(minute - 1).copied().unwrap_or(0.0)
}

fn bound_ms(runs: &[&Kept]) -> f64 {
    runs[0].outcome.results.slo_bound_ms
}

/// The backends with the largest values, in the order of their ids.
fn largest(run: &Kept, value: impl Fn(&BackendSeries) -> f64) -> Vec<&BackendSeries> {
    let mut backends: Vec<&BackendSeries> = run.series.backends.iter().collect();
    backends.sort_by(|a, b| value(b).total_cmp(&value(a)));
    backends.truncate(BACKENDS_MAX);
    backends.sort_by(|a, b| a.name.cmp(&b.name));
    backends
}

/// A backend's values, one for each minute.
fn line(index: usize, backend: &BackendSeries, values: &[Option<f64>], factor: f64) -> Line {
    let point =
        |(minute, value): (usize, &Option<f64>)| ((minute + 1) as f64, value.map(|value| value * factor));
    Line {
        name: backend.name.clone(),
        colour: COLOURS[index % COLOURS.len()],
        points: values.iter().enumerate().map(point).collect(),
    }
}

/// The largest value of any line, or 1 where there is none.
fn top(lines: &[Line]) -> f64 {
    let values = lines.iter().flat_map(|line| line.points.iter().filter_map(|point| point.1));
    let top = values.fold(0.0, f64::max);
    if top > 0.0 { top } else { 1.0 }
}

/// Points of a line; of several that cannot be told apart the highest.
fn points(x: &[f64], y: &[Option<f64>]) -> Vec<(f64, Option<f64>)> {
    let together = x.len().div_ceil(POINTS_MAX).max(1);
    let highest =
        |(x, y): (&[f64], &[Option<f64>])| (x[0], y.iter().flatten().copied().max_by(f64::total_cmp));
    x.chunks(together).zip(y.chunks(together)).map(highest).collect()
}

fn over_time(
    title: &str,
    unit: &str,
    end: f64,
    lines: Vec<Line>,
    mark: Option<(f64, &str)>,
    run: &Kept,
) -> String {
    let minutes = run.series.minute.last().copied().unwrap_or(1.0);
    let (x, y) = (Axis { name: "minutes", end: minutes }, Axis { name: unit, end });
    Chart { title, x, y, lines, mark }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_a_bound_is_above_it() {
        let exceeded = exceeded(&[1.0, 2.0, 3.0, 4.0], 4.0);
        let at = |bound: f64| exceeded.iter().find(|point| point.0 >= bound).and_then(|point| point.1);
        assert_eq!([at(0.0), at(2.0), at(4.0)], [Some(100.0), Some(50.0), Some(0.0)]);
    }

    #[test]
    fn of_many_points_the_highest_are_drawn() {
        let x: Vec<f64> = (0..1_440).map(f64::from).collect();
        let y: Vec<Option<f64>> = x.iter().map(|&x| (x != 0.0).then_some(x)).collect();
        let points = points(&x, &y);
        assert_eq!((points.len(), points[0], points[1]), (720, (0.0, Some(1.0)), (2.0, Some(3.0))));
    }
}
