//! Figures of a comparison.

use sherwood_sim::tenants::{Results, Sample};

use super::runs::BASELINE;
use super::summary::{Group, SummaryLine, TenantLine};
use crate::chart::{self, Axis, Bar, Bars, COLOURS, ChartLine, Lines, Mark, Pen, figure, highest};

/// Height of a chart's frame, in pixels.
const HEIGHT: f64 = 220.0;

/// Draws the tenants' normalized throughput and tail over the values of a setting: the paper's
/// figures 6a and 6b.
pub(super) fn sweep(lines: &[SummaryLine], key: &str) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let mut page = String::new();
    for (index, tenant) in first.tenants.iter().enumerate() {
        let title = format!("{}: normalized throughput", tenant.name);
        let of = |tenant: &TenantLine| tenant.normalized.mean;
        page += &over_values(
            lines,
            key,
            index,
            &title,
            "of the baseline's",
            of,
            "In HARE's paper: figures 6a and 6b.",
        );
        let title = format!("{}: P99.9 of latency", tenant.name);
        page += &over_values(lines, key, index, &title, "ms", |tenant| tenant.p999_ms.mean, "");
    }
    page
}

fn over_values(
    lines: &[SummaryLine],
    key: &str,
    tenant: usize,
    title: &str,
    y: &str,
    of: impl Fn(&TenantLine) -> f64,
    caption: &str,
) -> String {
    let (policies, values) = (distinct(lines.iter().map(|line| line.policy.as_str())), values(lines));
    let line = |(index, policy): (usize, &&str)| {
        let point = |(place, value): (usize, &&str)| {
            let found =
                lines.iter().find(|line| line.policy == **policy && line.value.as_deref() == Some(value));
            (place as f64 + 0.5, found.map(|line| of(&line.tenants[tenant])))
        };
        let points = values.iter().enumerate().map(point).collect();
        ChartLine { name: (*policy).to_owned(), pen: Pen::of(index), points }
    };
    let drawn: Vec<ChartLine> = policies.iter().enumerate().map(line).collect();
    let ticks = values.iter().enumerate().map(|(place, value)| (place as f64 + 0.5, (*value).to_owned()));
    let chart = Lines {
        title,
        note: "",
        x: Axis { name: key.to_owned(), end: values.len() as f64, ticks: ticks.collect() },
        y: Axis::of(y, highest(&drawn)),
        height: HEIGHT,
        lines: drawn,
        mark: None,
    };
    figure(&chart.svg(), caption)
}

/// Draws all figures of a scenario without a swept setting.
pub(super) fn of_scenario(groups: &[Group], lines: &[SummaryLine]) -> String {
    let mut page =
        by_tenant(lines, "Normalized throughput", "of the baseline's", |tenant| tenant.normalized.mean);
    page += &by_tenant(lines, "P99.9 of latency", "ms", |tenant| tenant.p999_ms.mean);
    page += &gains(lines);
    page += &resources(groups);
    if groups.iter().any(|group| group.kept[0].outcome.results.decisions > 1) {
        page += &over_time(groups);
    }
    page
}

/// Draws a bar for each policy in a group for each tenant: the paper's figures 7 and 9.
fn by_tenant(lines: &[SummaryLine], title: &str, axis: &str, of: impl Fn(&TenantLine) -> f64) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let bar = |line: &SummaryLine, index: usize| {
        let value = of(&line.tenants[index]);
        Bar { name: line.policy.clone(), values: vec![value], note: format!("{value:.2}") }
    };
    let group = |(index, tenant): (usize, &TenantLine)| chart::Group {
        name: tenant.name.clone(),
        bars: lines.iter().map(|line| bar(line, index)).collect(),
    };
    let longest = lines.iter().flat_map(|line| &line.tenants).map(&of).fold(0.01, f64::max);
    let bars = Bars {
        title,
        note: "",
        parts: vec![(title.to_owned(), Pen::solid(COLOURS[0]))],
        axis: Axis::of(axis, longest),
        groups: first.tenants.iter().enumerate().map(group).collect(),
    };
    figure(&bars.svg(), "In HARE's paper: figures 7 and 9.")
}

/// Draws the gain of each policy: measured, predicted, and its bound.
fn gains(lines: &[SummaryLine]) -> String {
    let bar = |name: &str, value: f64| Bar {
        name: name.to_owned(),
        values: vec![value],
        note: format!("{value:.3}"),
    };
    let group = |line: &SummaryLine| {
        let bound = line.bound.map(|bound| bar("bound", bound.mean));
        let measured =
            [bar("measured", line.normalized_least.mean), bar("predicted", line.predicted_gain.mean)];
        chart::Group { name: line.policy.clone(), bars: measured.into_iter().chain(bound).collect() }
    };
    let groups: Vec<chart::Group> = lines.iter().map(group).collect();
    let longest = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.values[0]).fold(0.01, f64::max);
    let bars = Bars {
        title: "Least gain of any tenant",
        note: "",
        parts: vec![("gain".to_owned(), Pen::solid(COLOURS[2]))],
        axis: Axis::of("of the baseline's throughput", longest),
        groups,
    };
    figure(&bars.svg(), "Measured, as predicted by the last decision, and the bound of any division.")
}

/// Draws the use of each resource and the division of the cache as stacks of tenants.
fn resources(groups: &[Group]) -> String {
    let Some(first) = groups.first() else { return String::new() };
    let results = |group: &Group| group.kept[0].outcome.results.clone();
    let parts: Vec<(String, Pen)> = results(first)
        .tenants
        .iter()
        .enumerate()
        .map(|(index, tenant)| (tenant.name.clone(), Pen::of(index)))
        .collect();
    let bar = |name: &str, values: Vec<f64>| {
        let sum: f64 = values.iter().sum();
        Bar { name: name.to_owned(), values, note: format!("{:.0}%", sum * 100.0) }
    };
    let cache = |results: &Results| {
        let bytes: Vec<f64> =
            results.tenants.iter().map(|tenant| tenant.holdings.cache_bytes as f64).collect();
        let sum: f64 = bytes.iter().sum();
        bytes.into_iter().map(|bytes| bytes / sum.max(1.0)).collect()
    };
    let mut drawn = vec![chart::Group {
        name: "cache".to_owned(),
        bars: groups.iter().map(|group| bar(&group.policy, cache(&results(group)))).collect(),
    }];
    for (index, resource) in results(first).resources.iter().enumerate() {
        let used = |group: &Group| bar(&group.policy, results(group).resources[index].used_ratio.clone());
        drawn.push(chart::Group { name: resource.name.clone(), bars: groups.iter().map(used).collect() });
    }
    let bars = Bars {
        title: "Use of the resources, and division of the cache",
        note: "",
        parts,
        axis: Axis::shares("share of the total"),
        groups: drawn,
    };
    figure(
        &bars.svg(),
        "The first seed: what each tenant used of each resource in the measurement, and its cache at the end.",
    )
}

/// Draws the tenants' normalized throughput over time: the paper's figure 8.
fn over_time(groups: &[Group]) -> String {
    let Some(base) = groups.iter().find(|group| group.policy == BASELINE) else { return String::new() };
    let base = &base.kept[0].samples;
    let tenants = &groups[0].kept[0].outcome.results.tenants;
    let mut page = String::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let line = |(number, group): (usize, &Group)| {
            let samples = group.kept[0].samples.iter().zip(base).filter(|(sample, _)| sample.second > 0.0);
            let of = |sample: &Sample| sample.tenants[index].throughput;
            let point = |(ours, theirs): (&Sample, &Sample)| {
                (ours.second / 60.0, (of(theirs) > 0.0).then(|| of(ours) / of(theirs)))
            };
            ChartLine {
                name: group.policy.clone(),
                pen: Pen::of(number),
                points: samples.map(point).collect(),
            }
        };
        let drawn: Vec<ChartLine> = groups.iter().enumerate().map(line).collect();
        let end = drawn.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.1, f64::max);
        let chart = Lines {
            title: &format!("{}: normalized throughput in ten seconds", tenant.name),
            note: "",
            x: Axis::of("minutes", end),
            y: Axis::of("of the baseline's", highest(&drawn)),
            height: HEIGHT,
            lines: drawn,
            mark: Some(Mark::Across(1.0, "baseline")),
        };
        page += &figure(&chart.svg(), "The first seed. In HARE's paper: figure 8.");
    }
    page
}

/// Returns the values of the swept setting in their order.
fn values(lines: &[SummaryLine]) -> Vec<&str> {
    distinct(lines.iter().filter_map(|line| line.value.as_deref()))
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}
