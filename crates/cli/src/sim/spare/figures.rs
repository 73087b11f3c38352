//! Figures of sPARE's paper, and what copies cost.

use sherwood_sim::spare::Results;

use super::report::{EXTRA, PAGE_P99, TRIES, Times};
use super::study::Group;
use crate::chart::{self, Axis, Bar, Bars, COLOURS, Pen, figure};
use crate::sim::comparison::Measure;
use crate::sim::table::{Row, Table};

/// The policy that others are improvements of.
const NONE: &str = "none";
/// The policy whose latency is the least that any choice of copies has.
const EXHAUSTIVE: &str = "exhaustive";

/// Draws the figures of one scenario.
pub(super) fn of_scenario(groups: &[Group<'_>]) -> String {
    let pages = improvement(groups, "Pages: factor of improvement", Times::PAGES, "6, 8, 10 and 11");
    let queries = improvement(groups, "Queries: factor of improvement", Times::QUERIES, "5, 6, 10 and 11");
    pages + &queries + &cost(groups)
}

/// Returns the group that a group is compared with: policy `none` with the same value of the swept
/// setting, or else the first of the scenario.
fn base<'a, 'b>(groups: &'a [Group<'b>], of: &Group<'_>) -> &'a Group<'b> {
    let none = groups.iter().find(|group| group.policy() == NONE && group.value == of.value);
    none.unwrap_or(&groups[0])
}

/// Draws the latencies of each group's base over its own.
fn improvement(groups: &[Group<'_>], title: &str, times: Times, figures: &str) -> String {
    let of_measure = |(name, measure): &(&str, Measure<Results>)| {
        let bar = |group: &Group<'_>| {
            let own = measure.mean(group);
            // Nothing is drawn where no page has ended.
            let factor = if own > 0.0 { measure.mean(base(groups, group)) / own } else { 0.0 };
            Bar { name: group.label(), values: vec![factor], note: format!("{factor:.2}") }
        };
        chart::Group { name: (*name).to_owned(), bars: groups.iter().map(bar).collect() }
    };
    let drawn: Vec<chart::Group> = times.0.iter().map(of_measure).collect();
    let bars = Bars {
        title,
        note: "",
        parts: vec![("latency of the base, over this one".to_owned(), Pen::solid(COLOURS[0]))],
        axis: Axis::of("times", longest(&drawn)),
        groups: drawn,
    };
    let has_none = groups.iter().any(|group| group.policy() == NONE);
    let base = if has_none { "none, with the same settings".to_owned() } else { groups[0].label() };
    figure(&bars.svg(), &format!("The base is {base}. In sPARE's paper: figures {figures}."))
}

/// Draws the 99th percentile of pages in the order of the extra work that it took.
fn cost(groups: &[Group<'_>]) -> String {
    let mut ordered: Vec<&Group<'_>> = groups.iter().collect();
    ordered.sort_by(|one, other| EXTRA.mean(one).total_cmp(&EXTRA.mean(other)));
    let bar = |group: &&Group<'_>| Bar {
        name: group.label(),
        values: vec![PAGE_P99.mean(group)],
        note: format!("+{:.1}%", EXTRA.mean(group) * 100.0),
    };
    let drawn = vec![chart::Group { name: String::new(), bars: ordered.iter().map(bar).collect() }];
    let bars = Bars {
        title: "P99 of pages against extra server time",
        note: "",
        parts: vec![("P99 of pages".to_owned(), Pen::solid(COLOURS[5]))],
        axis: Axis::of("ms", longest(&drawn)),
        groups: drawn,
    };
    figure(&bars.svg(), "From the least extra server time, which is beside each bar, to the most.")
}

/// Returns the number of copies that each policy found, as in the paper's tables 3 and 5; none if
/// no policy has looked for any.
pub(super) fn found(groups: &[Group<'_>]) -> Option<Table> {
    let mut table =
        Table::new("copies found", 24, &[("tries", 7), ("copies, each seed", 32), ("over best", 10)]);
    let mut rows = 0;
    for group in groups.iter().filter(|group| TRIES.mean(group) > 0.0) {
        let copies = group.kept.iter().map(|run| run.outcome.results.factors);
        let copies: Vec<String> = copies.map(|[pages, queries]| format!("{pages},{queries}")).collect();
        let best = groups.iter().find(|best| best.policy() == EXHAUSTIVE && best.value == group.value);
        let ratio = best.map(|best| PAGE_P99.mean(group) / PAGE_P99.mean(best));
        table.push(Row {
            label: group.label(),
            cells: vec![
                TRIES.cell(group, 1),
                copies.join(" "),
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
            ],
            suffix: String::new(),
        });
        rows += 1;
    }
    (rows > 0).then_some(table)
}

fn longest(groups: &[chart::Group]) -> f64 {
    let values = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.values[0]);
    values.fold(1.0, f64::max)
}
