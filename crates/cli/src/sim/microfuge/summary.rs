//! Statistics over several seeds, and the paper's figures beside them.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::microfuge::Results;

use super::runs::Kept;
use crate::sim::estimate::Estimate;

/// Results of a policy with certain settings, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SummaryLine {
    pub(super) policy: String,
    /// Value of the setting that has several values; none if no setting has.
    pub(super) value: Option<String>,
    pub(super) seeds: usize,
    pub(super) deadline_miss_ratio: Estimate,
    pub(super) rejection_ratio: Estimate,
    pub(super) hit_ratio_overall: Estimate,
    pub(super) requests_per_s: Estimate,
    pub(super) p99_ms: Estimate,
}

/// A figure of the paper, and ours.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    pub(super) policy: &'static str,
    pub(super) what: &'static str,
    /// The paper's figure, in words.
    pub(super) paper: &'static str,
    pub(super) ours: f64,
    /// Largest value that is required.
    pub(super) at_most: f64,
    pub(super) holds: bool,
}

/// Returns the line of runs that differ in the seed alone, of which there is at least one.
pub(super) fn line(runs: &[Kept], value: Option<&str>) -> SummaryLine {
    let values =
        |of: fn(&Results) -> f64| runs.iter().map(|run| of(&run.outcome.results)).collect::<Vec<_>>();
    SummaryLine {
        policy: runs[0].inputs.policy.clone(),
        value: value.map(str::to_owned),
        seeds: runs.len(),
        deadline_miss_ratio: Estimate::of_shares(&values(|results| results.deadline_miss_ratio)),
        rejection_ratio: Estimate::of_shares(&values(|results| results.rejection_ratio)),
        hit_ratio_overall: Estimate::of_shares(&values(|results| results.hit_ratio_overall)),
        requests_per_s: Estimate::of(&values(|results| results.requests_per_s)),
        p99_ms: Estimate::of(&values(|results| results.p99_ms)),
    }
}

/// Returns what MicroFuge's paper says about its default set-up, with our figures; none if settings
/// were changed or a policy is missing.
pub(super) fn claims(lines: &[SummaryLine], settings: &[String]) -> Vec<Claim> {
    let find = |policy: &str| lines.iter().find(|line| line.policy == policy);
    let (Some(memcached), []) = (find("memcached"), settings) else { return Vec::new() };
    let base = memcached.deadline_miss_ratio.mean;
    let mut claims = Vec::new();
    let mut claim = |policy: &'static str, what, paper, at_most: f64, of: &dyn Fn(&SummaryLine) -> f64| {
        if let Some(line) = find(policy) {
            let ours = of(line);
            claims.push(Claim { policy, what, paper, ours, at_most, holds: ours <= at_most });
        }
    };
    let missed = |line: &SummaryLine| line.deadline_miss_ratio.mean;
    let of_base = |line: &SummaryLine| line.deadline_miss_ratio.mean / base;
    let rejected = |line: &SummaryLine| line.rejection_ratio.mean;
    let below = |line: &SummaryLine| memcached.hit_ratio_overall.mean - line.hit_ratio_overall.mean;
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

/// Formats lines and claims as tables.
pub(super) fn text(lines: &[SummaryLine], claims: &[Claim], swept: Option<&str>) -> String {
    let mut text = format!(
        "{:<16} {:>20} {:>20} {:>20} {:>18} {:>18}\n",
        "microfuge", "missed %", "rejected %", "hits %", "requests/s", "P99 ms"
    );
    for line in lines {
        let value = line.value.as_ref().zip(swept).map(|(value, key)| format!(" {key}={value}"));
        let _ = writeln!(
            text,
            "{:<16} {:>20} {:>20} {:>20} {:>18} {:>18}{}",
            line.policy,
            format!("{:.2}", line.deadline_miss_ratio.times(100.0)),
            format!("{:.2}", line.rejection_ratio.times(100.0)),
            format!("{:.2}", line.hit_ratio_overall.times(100.0)),
            format!("{:.0}", line.requests_per_s),
            format!("{:.1}", line.p99_ms),
            value.unwrap_or_default(),
        );
    }
    if !claims.is_empty() {
        let _ = writeln!(
            text,
            "\n{:<12} {:<36} {:>14} {:>8} {:>8}",
            "policy", "what", "paper", "ours", "at most"
        );
    }
    for Claim { policy, what, paper, ours, at_most, holds } in claims {
        let verdict = if *holds { "" } else { "  no" };
        let _ = writeln!(text, "{policy:<12} {what:<36} {paper:>14} {ours:>8.4} {at_most:>8}{verdict}");
    }
    text
}
