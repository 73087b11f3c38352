//! Tables of the report.

use sherwood_sim::Results;

use crate::chart::{Cell, escaped, number, table, word};
use crate::sim::comparison::by_scenario;
use crate::sim::inputs::distinct;
use crate::sim::onerf::claims::{Claim, reason};
use crate::sim::onerf::kept::Group;
use crate::sim::onerf::summary::{P50, P90, P99, P99_MAX, RBC_MAX, RBC_MEAN, STATIC, VIOLATIONS};
use crate::sim::table::{Column, Table};

/// Columns of the table of a scenario.
const COLUMNS: [Column<Results>; 8] = [
    Column { head: "SLO violations, %", width: 0, measure: VIOLATIONS, decimals: 2 },
    Column { head: "P99, ms", width: 0, measure: P99, decimals: 1 },
    Column { head: "worst P99, ms", width: 0, measure: P99_MAX, decimals: 0 },
    Column { head: "P90, ms", width: 0, measure: P90, decimals: 1 },
    Column { head: "P50, ms", width: 0, measure: P50, decimals: 1 },
    Column { head: "dominant blocker, mean %", width: 0, measure: RBC_MEAN, decimals: 0 },
    Column { head: "at most %", width: 0, measure: RBC_MAX, decimals: 0 },
    Column { head: "static caches", width: 0, measure: STATIC, decimals: 2 },
];

/// Formats the SLO violations of each policy in each scenario. Empty for a single scenario, whose
/// own table contains them.
pub(super) fn overview(groups: &[Group<'_>]) -> String {
    let policies = distinct(&groups.iter().map(Group::policy).collect::<Vec<_>>());
    let scenarios: Vec<&[Group<'_>]> = by_scenario(groups).collect();
    if scenarios.len() < 2 {
        return String::new();
    }
    let head: Vec<Cell> = [word("scenario")].into_iter().chain(policies.iter().map(number)).collect();
    let row = |groups: &&[Group<'_>]| {
        let of = |policy: &&str| {
            let group = groups.iter().find(|group| group.policy() == *policy);
            number(group.map_or(String::new(), |group| VIOLATIONS.cell(group, 2)))
        };
        std::iter::once(word(groups[0].scenario())).chain(policies.iter().map(of)).collect()
    };
    let rows: Vec<Vec<Cell>> = scenarios.iter().map(row).collect();
    format!("<h2>SLO violations, % of the observations</h2>\n{}", table(&head, &rows))
}

/// Formats the paper's figures beside the simulated ones, or the reason why they cannot be
/// compared.
pub(super) fn claims(claims: &[Claim], unlike: &[String]) -> String {
    if claims.is_empty() {
        return reason(unlike).map_or(String::new(), |reason| format!("<p>{}.</p>\n", escaped(&reason)));
    }
    let head = ["scenario", "policy", "what"].map(word).into_iter();
    let head = head.chain(["paper", "ours"].map(number)).chain([word("")]).collect::<Vec<_>>();
    let row = |claim: &Claim| {
        let verdict = Cell { class: if claim.holds { "word" } else { "word no" }, ..word(claim.verdict()) };
        vec![
            word(claim.scenario),
            word(claim.subject()),
            word(claim.measure.words()),
            number(claim.paper_words()),
            number(claim.ours_words()),
            verdict,
        ]
    };
    let rows: Vec<Vec<Cell>> = claims.iter().map(row).collect();
    let held = claims.iter().filter(|claim| claim.holds).count();
    format!(
        "<h2>What RobinHood's paper says</h2>\n<p>{held} of {} rows hold{}.</p>\n{}",
        claims.len(),
        if claims[0].by_seed.len() > 1 {
            ", which a row does when it does with every seed; ours are means, with the range of the seeds"
        } else {
            ""
        },
        table(&head, &rows)
    )
}

/// Formats the results of the policies in one scenario.
pub(super) fn summary(groups: &[Group<'_>]) -> String {
    Table::of("policy", 0, &COLUMNS, groups).html("policy")
}
