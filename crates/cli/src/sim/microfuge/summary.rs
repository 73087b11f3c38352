//! Results of the policies of scenario `microfuge`, over all seeds.

use serde::Serialize;
use sherwood_sim::microfuge::Results;

use super::study::Group;
use crate::sim::claims::{Claim, Form};
use crate::sim::comparison::{Figures, Measure};
use crate::sim::table::{Column, Table};

pub(super) const MISSED: Measure<Results> =
    Measure::share("deadline_miss_ratio", |results| results.deadline_miss_ratio);
pub(super) const REJECTED: Measure<Results> =
    Measure::share("rejection_ratio", |results| results.rejection_ratio);
pub(super) const HITS: Measure<Results> =
    Measure::share("hit_ratio_overall", |results| results.hit_ratio_overall);
const RATE: Measure<Results> = Measure::new("requests_per_s", |results| results.requests_per_s);
const P99: Measure<Results> = Measure::new("p99_ms", |results| results.p99_ms);

const MEASURES: [Measure<Results>; 5] = [MISSED, REJECTED, HITS, RATE, P99];

const COLUMNS: [Column<Results>; 5] = [
    Column { head: "missed %", width: 20, measure: MISSED, decimals: 2 },
    Column { head: "rejected %", width: 20, measure: REJECTED, decimals: 2 },
    Column { head: "hits %", width: 20, measure: HITS, decimals: 2 },
    Column { head: "requests/s", width: 18, measure: RATE, decimals: 0 },
    Column { head: "P99 ms", width: 18, measure: P99, decimals: 1 },
];

/// Format of the claims of MicroFuge's paper.
pub(super) const CLAIMS: Form = Form {
    paper: "MicroFuge",
    of: "policy",
    range: ("at most", |claim| claim.most.unwrap_or_default().to_string()),
    bounds: &[("at_most", |claim| claim.most)],
    widths: [12, 36, 14, 8, 8],
    decimals: 4,
};

/// Results of a policy with certain settings.
#[derive(Serialize)]
struct SummaryLine<'a> {
    policy: &'a str,
    value: Option<&'a str>,
    seeds: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// Returns the lines of the JSON document, one for each group.
pub(super) fn lines<'a>(groups: &'a [Group<'_>]) -> impl Serialize {
    let line = |group: &'a Group<'_>| SummaryLine {
        policy: group.policy(),
        value: group.value,
        seeds: group.kept.len(),
        figures: Figures::of(&MEASURES, group),
    };
    groups.iter().map(line).collect::<Vec<_>>()
}

/// Returns the table of the totals.
pub(super) fn table(groups: &[Group<'_>]) -> Table {
    Table::of("microfuge", 16, &COLUMNS, groups)
}

/// Returns what MicroFuge's paper says about its default set-up, with our figures; none if settings
/// were changed or a policy is missing.
pub(super) fn claims(groups: &[Group<'_>], settings: &[String]) -> Vec<Claim> {
    let find = |policy: &str| groups.iter().find(|group| group.policy() == policy);
    let (Some(memcached), []) = (find("memcached"), settings) else { return Vec::new() };
    let base = MISSED.mean(memcached);
    let mut claims = Vec::new();
    let mut claim = |of: &'static str, what, paper, most: f64, ours: &dyn Fn(&Group<'_>) -> f64| {
        let ours = find(of).map(ours);
        claims.extend(ours.map(|ours| Claim { of, what, paper, ours, least: None, most: Some(most) }));
    };
    let missed = |group: &Group<'_>| MISSED.mean(group);
    let of_base = |group: &Group<'_>| MISSED.mean(group) / base;
    let rejected = |group: &Group<'_>| REJECTED.mean(group);
    let below = |group: &Group<'_>| HITS.mean(memcached) - HITS.mean(group);
    claim("dlc", "misses, as a share of memcached's", "0.774", 0.774, &of_base);
    claim("dlc", "hit ratio below memcached's", "marginally", 0.03, &below);
    claim("dlc-cost", "misses, as a share of memcached's", "-", 0.774, &of_base);
    claim("dlc+dls", "misses, as a share of memcached's", "0.57 or 0.44", 0.57, &of_base);
    claim("dlc+dls", "hit ratio below memcached's", "marginally", 0.03, &below);
    claim("dlc+dls+ac", "missed", "under 0.05", 0.05, &missed);
    claim("dlc+dls+ac", "rejected", "0.0714", 0.0714, &rejected);
    claim("dlc+dls+ac", "hit ratio below memcached's", "marginally", 0.03, &below);
    claim("sherwood", "missed", "-", 0.03, &missed);
    claim("sherwood", "rejected", "-", 0.03, &rejected);
    claims
}
