//! Tables of the report.

use crate::chart::{Cell, escaped, number, table, word};
use crate::sim::estimate::SummaryLine;
use crate::sim::onerf::claims::{Claim, reason};

/// Formats the violations of each policy in each scenario; empty for a single scenario, whose own
/// table contains them.
pub(super) fn overview(lines: &[SummaryLine]) -> String {
    let mut policies: Vec<&str> = Vec::new();
    for line in lines {
        if !policies.contains(&line.policy.as_str()) {
            policies.push(&line.policy);
        }
    }
    let scenarios: Vec<&[SummaryLine]> = lines.chunk_by(|a, b| a.scenario == b.scenario).collect();
    if scenarios.len() < 2 {
        return String::new();
    }
    let mut head = vec![word("scenario")];
    head.extend(policies.iter().map(number));
    let row = |lines: &&[SummaryLine]| {
        let of = |policy: &&str| {
            let line = lines.iter().find(|line| line.policy == **policy);
            number(line.map_or(String::new(), |line| format!("{:.2}", line.slo_violation_ratio.times(100.0))))
        };
        std::iter::once(word(&lines[0].scenario)).chain(policies.iter().map(of)).collect()
    };
    let rows: Vec<Vec<Cell>> = scenarios.iter().map(row).collect();
    format!("<h2>SLO violations, % of the observations</h2>\n{}", table(&head, &rows))
}

/// Formats the paper's figures beside ours, or the reason for their absence.
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
pub(super) fn summary(lines: &[SummaryLine]) -> String {
    let titles = [
        "SLO violations, %",
        "P99, ms",
        "worst P99, ms",
        "P90, ms",
        "P50, ms",
        "dominant blocker, mean %",
        "at most %",
        "static caches",
    ];
    let head: Vec<Cell> = std::iter::once(word("policy")).chain(titles.map(number)).collect();
    let row = |line: &SummaryLine| {
        vec![
            word(&line.policy),
            number(format!("{:.2}", line.slo_violation_ratio.times(100.0))),
            number(format!("{:.1}", line.p99_ms)),
            number(format!("{:.0}", line.p99_max_ms)),
            number(format!("{:.1}", line.p90_ms)),
            number(format!("{:.1}", line.p50_ms)),
            number(format!("{:.0}", line.dominant_rbc_mean.times(100.0))),
            number(format!("{:.0}", line.dominant_rbc_max.times(100.0))),
            number(format!("{:.2}", line.static_equivalent_ratio)),
        ]
    };
    table(&head, &lines.iter().map(row).collect::<Vec<_>>())
}
