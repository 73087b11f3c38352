//! The report: a self-contained HTML page, and a file for each picture.

mod figures;
mod tables;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use sherwood_sim::LimitLine;

use crate::chart::{self, escaped};
use crate::sim::estimate::SummaryLine;
use crate::sim::onerf::claims::Claim;
use crate::sim::onerf::hits::LiveRun;
use crate::sim::onerf::kept::Kept;
use figures::Figure;

/// The results of a comparison in the order of its runs, grouped by scenario.
pub(in crate::sim) struct Study<'a> {
    pub(in crate::sim) kept: &'a [Kept],
    pub(in crate::sim) lines: &'a [SummaryLine],
    pub(in crate::sim) claims: &'a [Claim],
    /// Settings that differ from the paper's.
    pub(in crate::sim) unlike: &'a [String],
    /// Limits of the backends, by scenario.
    pub(in crate::sim) limits: &'a BTreeMap<String, Limits>,
    /// Live runs with measured latencies of hits, if any.
    pub(in crate::sim) hits: &'a [LiveRun],
}

/// The limits of a scenario: an element for each limited backend.
pub(in crate::sim) type Limits = Vec<LimitLine>;

/// Formats the report as an HTML page.
pub(in crate::sim) fn page(study: &Study<'_>) -> String {
    let mut page = preface(study.kept);
    page += &contents(study);
    page += &tables::overview(study.lines);
    page += &tables::claims(study.claims, study.unlike);
    for lines in scenarios(study) {
        let scenario = &lines[0].scenario;
        let _ = writeln!(page, "<h2 id=\"{0}\">{0}</h2>", escaped(scenario));
        page += &tables::summary(lines);
        for Figure { svg, caption, .. } in figures::of(study, scenario) {
            page += &chart::figure(&svg, &caption);
        }
    }
    if let Some(Figure { svg, caption, .. }) = figures::hits(study.hits) {
        page += "<h2 id=\"hits\">Latencies of hits</h2>\n";
        page += &chart::figure(&svg, &caption);
    }
    chart::page("Allocation policies compared", &page)
}

/// Writes each picture of the report into a file in `directory`, which is created if necessary.
pub(in crate::sim) fn write_plots(study: &Study<'_>, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let of_scenarios = scenarios(study).flat_map(|lines| figures::of(study, &lines[0].scenario));
    for Figure { name, svg, .. } in of_scenarios.chain(figures::hits(study.hits)) {
        fs::write(directory.join(name + ".svg"), svg)?;
    }
    Ok(())
}

/// Returns the summary lines of each scenario.
fn scenarios<'a>(study: &Study<'a>) -> impl Iterator<Item = &'a [SummaryLine]> {
    study.lines.chunk_by(|a, b| a.scenario == b.scenario)
}

fn preface(runs: &[Kept]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let settings = &first.inputs.settings;
    let settings = if settings.is_empty() { "none".to_owned() } else { escaped(&settings.join(", ")) };
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.inputs.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "<p>Simulated by Sherwood {} at scale {}; settings changed: {settings}; seeds: {seeds}. With one seed, each policy \
         meets the same requests at the same times. Where there are several seeds, ± or a range in \
         brackets is the 95% confidence interval of the mean.</p>\n",
        first.inputs.version, first.inputs.scale
    )
}

/// Formats the table of contents if there are several scenarios.
fn contents(study: &Study<'_>) -> String {
    let link = |lines: &[SummaryLine]| format!("<a href=\"#{0}\">{0}</a>", escaped(&lines[0].scenario));
    let links: Vec<String> = scenarios(study).map(link).collect();
    let links: Vec<String> = links
        .into_iter()
        .chain((!study.hits.is_empty()).then(|| "<a href=\"#hits\">hits</a>".to_owned()))
        .collect();
    if links.len() < 2 { String::new() } else { format!("<nav>{}</nav>\n", links.join("\n")) }
}

#[cfg(test)]
mod tests;
