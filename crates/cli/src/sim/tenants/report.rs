//! The report of a comparison, with the figures of HARE's paper.

use sherwood_sim::tenants::Results;

use super::study::Comparison;
use super::{figures, summary};
use crate::chart::escaped;
use crate::sim::comparison::by_scenario;
use crate::sim::report::{Goal, Section, best, preface};

const GOAL: Goal<Results> =
    Goal { measure: summary::LEAST, is_gain: true, words: "gave the tenant that gained least the most" };

/// Returns the sections of the report.
pub(in crate::sim) fn sections(comparison: &Comparison) -> Vec<Section> {
    let groups = comparison.groups();
    let claims = summary::claims(&groups, &comparison.settings);
    let mut sections = vec![
        Section::new(
            "summary",
            &summary::lines(&groups),
            summary::text(&groups),
            best(&groups, &GOAL) + &about(comparison),
        ),
        summary::CLAIMS.section(&claims),
    ];
    sections.extend(by_scenario(&groups).map(|groups| {
        let figures = match &comparison.swept {
            Some(key) => figures::sweep(groups, key),
            None => figures::of_scenario(groups),
        };
        let heading = format!("<h2>{}</h2>\n", escaped(groups[0].scenario()));
        Section::page(heading + &summary::totals(groups) + &figures)
    }));
    sections
}

fn about(comparison: &Comparison) -> String {
    let inputs = &comparison.kept[0].inputs;
    preface(
        &format!("{} at scale {}", inputs.version, inputs.scale),
        ("settings changed", &comparison.settings),
        &comparison.seeds,
        "A tenant's normalized throughput is divided by that of a run of <code>baseline</code> with the same seed \
         over the same seconds. The gain of a policy is the least normalized throughput of any tenant; its bound is \
         what no division could exceed, by the curves of the last decision.",
    )
}

#[cfg(test)]
mod tests;
