//! The report of a comparison: a self-contained HTML page with the figures of HARE's paper.

use std::fmt::Write;

use super::figures;
use super::summary::{Claim, Group, SummaryLine, required};
use crate::chart::{self, Cell, Compared, comparison, escaped, number, table, word};
use crate::sim::sweep::label;

/// The results of a comparison.
pub(super) struct Study<'a> {
    /// Runs by scenario, value of the swept setting, and policy.
    pub(super) groups: &'a [Group],
    /// A line for each of `groups`.
    pub(super) lines: &'a [SummaryLine],
    pub(super) claims: &'a [Claim],
    pub(super) settings: &'a [String],
    /// Key of the setting with several values, if there is one.
    pub(super) swept: Option<&'a str>,
}

/// Formats the report as an HTML page.
pub(super) fn page(study: &Study<'_>) -> String {
    let mut page = preface(study);
    page += &claims(study.claims);
    let mut from = 0;
    while let Some(first) = study.groups.get(from) {
        let count = study.groups[from..].iter().take_while(|group| group.scenario == first.scenario).count();
        let (groups, lines) = (&study.groups[from..from + count], &study.lines[from..from + count]);
        let _ = write!(page, "<h2>{}</h2>\n{}", escaped(&first.scenario), totals(lines, study.swept));
        page += &match study.swept {
            Some(key) => figures::sweep(lines, key),
            None => figures::of_scenario(groups, lines),
        };
        from += count;
    }
    chart::page("Tenants that share a cache and its backends", &page)
}

fn preface(study: &Study<'_>) -> String {
    let settings = if study.settings.is_empty() { "none".to_owned() } else { study.settings.join(", ") };
    let Some(first) = study.groups.first() else { return String::new() };
    let inputs = &first.kept[0].inputs;
    let seeds: Vec<String> = first.kept.iter().map(|run| run.inputs.seed.to_string()).collect();
    format!(
        "<p>Simulated by Sherwood {} at scale {}; settings changed: {}; seeds: {}. A tenant's normalized throughput \
         is divided by that of a run of <code>baseline</code> with the same seed over the same seconds. The gain of a \
         policy is the least normalized throughput of any tenant; its bound is what no division could exceed, by the \
         curves of the last decision. Where there are several seeds, ± or a range in brackets is the 95% confidence \
         interval of the mean.</p>\n",
        inputs.version,
        inputs.scale,
        escaped(&settings),
        seeds.join(", "),
    )
}

fn claims(claims: &[Claim]) -> String {
    let compared = |claim: &Claim| Compared {
        of: claim.scenario,
        what: claim.what,
        paper: claim.paper,
        ours: format!("{:.3}", claim.ours),
        required: required(claim.least, claim.most),
        holds: claim.holds,
    };
    comparison("HARE", "scenario", &claims.iter().map(compared).collect::<Vec<_>>())
}

fn totals(lines: &[SummaryLine], swept: Option<&str>) -> String {
    let columns = ["least gain", "least in 10 s", "predicted gain", "bound"].map(number);
    let head: Vec<Cell> = std::iter::once(word("policy")).chain(columns).collect();
    let row = |line: &SummaryLine| {
        vec![
            word(label(&line.policy, line.value.as_deref(), swept)),
            number(format!("{:.3}", line.normalized_least)),
            number(format!("{:.3}", line.normalized_min)),
            number(format!("{:.3}", line.predicted_gain)),
            number(line.bound.map_or("-".to_owned(), |bound| format!("{bound:.3}"))),
        ]
    };
    table(&head, &lines.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
