//! Figures of a comparison.

use sherwood_sim::tenants::{BASELINE, ByTenant, Results, Sample};

use super::study::Group;
use super::summary::{LEAST, PREDICTED, bound, of_tenant};
use crate::chart::{self, Axis, Bar, Bars, COLOURS, ChartLine, Lines, Mark, Pen, figure, highest};
use crate::sim::inputs::distinct;

/// Height of a chart's frame, in pixels.
const HEIGHT: f64 = 220.0;

/// Draws the tenants' normalized throughput and tail over the values of a setting: the paper's
/// figures 6a and 6b.
pub(super) fn sweep(groups: &[Group<'_>], key: &str) -> String {
    let mut page = String::new();
    for (index, tenant) in groups[0].first().tenants.iter().enumerate() {
        let title = format!("{}: normalized throughput", tenant.name);
        let caption = "In HARE's paper: figures 6a and 6b.";
        let y = "of the baseline's";
        page += &over_values(groups, key, index, &title, y, |tenant| tenant.normalized, caption);
        let title = format!("{}: P99.9 of latency", tenant.name);
        page += &over_values(groups, key, index, &title, "ms", |tenant| tenant.p999_ms, "");
    }
    page
}

fn over_values(
    groups: &[Group<'_>],
    key: &str,
    tenant: usize,
    title: &str,
    y: &str,
    of: impl Fn(&ByTenant) -> f64,
    caption: &str,
) -> String {
    let policies = distinct(&groups.iter().map(Group::policy).collect::<Vec<_>>());
    let values = distinct(&groups.iter().filter_map(|group| group.value).collect::<Vec<_>>());
    let line = |(index, policy): (usize, &&str)| {
        let point = |(place, value): (usize, &&str)| {
            let found = groups.iter().find(|group| group.policy() == *policy && group.value == Some(value));
            (place as f64 + 0.5, found.map(|group| of_tenant(group, tenant, &of).mean))
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
pub(super) fn of_scenario(groups: &[Group<'_>]) -> String {
    let mut page =
        by_tenant(groups, "Normalized throughput", "of the baseline's", |tenant| tenant.normalized);
    page += &by_tenant(groups, "P99.9 of latency", "ms", |tenant| tenant.p999_ms);
    page += &gains(groups);
    page += &resources(groups);
    if groups.iter().any(|group| group.first().decisions > 1) {
        page += &over_time(groups);
    }
    page
}

/// Draws a bar for each policy in a group for each tenant: the paper's figures 7 and 9.
fn by_tenant(groups: &[Group<'_>], title: &str, axis: &str, of: impl Fn(&ByTenant) -> f64) -> String {
    let bar = |group: &Group<'_>, index: usize| {
        let value = of_tenant(group, index, &of).mean;
        Bar { name: group.policy().to_owned(), values: vec![value], note: format!("{value:.2}") }
    };
    let of_tenants = |(index, tenant): (usize, &ByTenant)| chart::Group {
        name: tenant.name.clone(),
        bars: groups.iter().map(|group| bar(group, index)).collect(),
    };
    let drawn: Vec<chart::Group> = groups[0].first().tenants.iter().enumerate().map(of_tenants).collect();
    let bars = Bars {
        title,
        note: "",
        parts: vec![(title.to_owned(), Pen::solid(COLOURS[0]))],
        axis: Axis::of(axis, longest(&drawn)),
        groups: drawn,
    };
    figure(&bars.svg(), "In HARE's paper: figures 7 and 9.")
}

/// Draws the gain of each policy: measured, predicted, and its bound.
fn gains(groups: &[Group<'_>]) -> String {
    let bar = |name: &str, value: f64| Bar {
        name: name.to_owned(),
        values: vec![value],
        note: format!("{value:.3}"),
    };
    let of_policy = |group: &Group<'_>| {
        let bound = bound(group).map(|bound| bar("bound", bound.mean));
        let measured = [bar("measured", LEAST.mean(group)), bar("predicted", PREDICTED.mean(group))];
        chart::Group { name: group.policy().to_owned(), bars: measured.into_iter().chain(bound).collect() }
    };
    let drawn: Vec<chart::Group> = groups.iter().map(of_policy).collect();
    let bars = Bars {
        title: "Least gain of any tenant",
        note: "",
        parts: vec![("gain".to_owned(), Pen::solid(COLOURS[2]))],
        axis: Axis::of("of the baseline's throughput", longest(&drawn)),
        groups: drawn,
    };
    figure(&bars.svg(), "Measured, as predicted by the last decision, and the bound of any division.")
}

/// Draws the use of each resource and the division of the cache as stacks of tenants.
fn resources(groups: &[Group<'_>]) -> String {
    let first = groups[0].first();
    let tenants = first.tenants.iter().enumerate();
    let parts = tenants.map(|(index, tenant)| (tenant.name.clone(), Pen::of(index))).collect();
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
        bars: groups.iter().map(|group| bar(group.policy(), cache(group.first()))).collect(),
    }];
    for (index, resource) in first.resources.iter().enumerate() {
        let used = |group: &Group<'_>| bar(group.policy(), group.first().resources[index].used_ratio.clone());
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
fn over_time(groups: &[Group<'_>]) -> String {
    let Some(base) = groups.iter().find(|group| group.policy() == BASELINE) else { return String::new() };
    let base = &base.kept[0].observed.samples;
    let tenants = &groups[0].first().tenants;
    let mut page = String::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let line = |(number, group): (usize, &Group<'_>)| {
            let samples =
                group.kept[0].observed.samples.iter().zip(base).filter(|(sample, _)| sample.second > 0.0);
            let of = |sample: &Sample| sample.tenants[index].throughput;
            let point = |(ours, theirs): (&Sample, &Sample)| {
                (ours.second / 60.0, (of(theirs) > 0.0).then(|| of(ours) / of(theirs)))
            };
            ChartLine {
                name: group.policy().to_owned(),
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

/// Returns the largest value of the bars, or a small number if all are 0.
fn longest(groups: &[chart::Group]) -> f64 {
    groups.iter().flat_map(|group| &group.bars).map(|bar| bar.values[0]).fold(0.01, f64::max)
}
