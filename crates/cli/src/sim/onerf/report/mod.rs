//! The report of a comparison of scenarios of backends.

mod figures;
mod tables;

use std::collections::BTreeMap;

use sherwood_sim::{LimitLine, Results};

use crate::chart::escaped;
use crate::sim::comparison::by_scenario;
use crate::sim::onerf::claims;
use crate::sim::onerf::hits::LiveRun;
use crate::sim::onerf::kept::{Comparison, Group};
use crate::sim::onerf::summary;
use crate::sim::report::{Goal, Section, best, preface};

const GOAL: Goal<Results> =
    Goal { measure: summary::VIOLATIONS, is_gain: false, words: "violated the SLO least often" };

/// The limits of a scenario, with an element for each limited backend.
pub(in crate::sim) type Limits = Vec<LimitLine>;

/// Returns the sections of the report. `limits` are those of the backends, by scenario; `hits` are
/// live runs with measured latencies of hits, if there are any.
pub(in crate::sim) fn sections(
    comparison: &Comparison,
    limits: &BTreeMap<String, Limits>,
    hits: &[LiveRun],
) -> Vec<Section> {
    let (kept, groups) = (&comparison.kept, comparison.groups());
    let (claims, unlike) = (claims::of(kept, limits), claims::left_out(kept));
    let start =
        best(&groups, &GOAL) + &about(comparison) + &contents(&groups, hits) + &tables::overview(&groups);
    let mut sections = vec![
        Section::new("summary", &summary::lines(&groups), summary::text(&groups), start),
        Section::new("claims", &claims, claims::text(&claims, &unlike), tables::claims(&claims, &unlike)),
        Section::new("claims_left_out", &unlike, String::new(), String::new()),
    ];
    for groups in by_scenario(&groups) {
        let scenario = groups[0].scenario();
        let heading = format!("<h2 id=\"{0}\">{0}</h2>\n", escaped(scenario));
        let pictures = figures::of(kept, limits.get(scenario), scenario);
        sections.push(Section { pictures, ..Section::page(heading + &tables::summary(groups)) });
    }
    sections.extend(figures::hits(hits).map(|picture| {
        let heading = "<h2 id=\"hits\">Latencies of hits</h2>\n".to_owned();
        Section { pictures: vec![picture], ..Section::page(heading) }
    }));
    sections
}

fn about(comparison: &Comparison) -> String {
    let inputs = &comparison.kept[0].inputs;
    preface(
        &format!("{} at scale {}", inputs.version, inputs.scale),
        ("settings changed", &inputs.settings),
        &comparison.seeds,
        "With one seed, each policy meets the same requests at the same times.",
    )
}

/// Formats the table of contents if there are several scenarios.
fn contents(groups: &[Group<'_>], hits: &[LiveRun]) -> String {
    let link = |groups: &[Group<'_>]| format!("<a href=\"#{0}\">{0}</a>", escaped(groups[0].scenario()));
    let to_hits = (!hits.is_empty()).then(|| "<a href=\"#hits\">hits</a>".to_owned());
    let links: Vec<String> = by_scenario(groups).map(link).chain(to_hits).collect();
    if links.len() < 2 { String::new() } else { format!("<nav>{}</nav>\n", links.join("\n")) }
}

#[cfg(test)]
mod tests;
