//! `sherwood sim frontier --scenario spare-…`: the highest rate that each policy stands.

use std::fmt::Write;

use serde::Serialize;
use sherwood_sim::spare::{self, Setup};

use super::report::PAGE_P99;
use super::study::{Application, Group};
use crate::exit::Failure;
use crate::out;
use crate::sim::flags::BatchFlags;
use crate::sim::inputs::distinct;
use crate::sim::rate_search::{Rates, Varied};
use crate::sim::study::Study as _;

/// The policy whose latency at the default rate is the measure of all.
const QUIET: &str = "quiet";

/// The highest rate at which the 99th percentile of a policy's pages stays within the bound.
#[derive(Clone, Debug, Serialize)]
struct Found {
    policy: String,
    /// Pages per second, a step of the search below the least rate that failed; none if the lowest
    /// rate fails already.
    rate: Option<f64>,
    /// The 99th percentile at that rate.
    page_p99_ms: Option<f64>,
}

/// Finds the highest rate of pages at which the 99th percentile of each policy is at most
/// `over_quiet` times that of `quiet` at the default rate.
pub(in crate::sim) fn frontier(
    application: Application,
    policies: &[String],
    batch: &BatchFlags,
    over_quiet: f64,
) -> Result<(), Failure> {
    let runs = Varied::of(application, batch)?;
    let default = Setup::new(application.scenario(), QUIET, 1).knobs.rate;
    let bound_ms = over_quiet * p99_ms(&runs, QUIET, default)?;
    if bound_ms.is_infinite() {
        return Err(Failure::usage(format!(
            "no page of {QUIET} ends in the run, so that there is no latency to compare with: lengthen it with \
             --set seconds=WARM+MEASURED"
        )));
    }
    let timeout_ms = spare::TIMEOUT.as_secs_f64() * 1e3;
    if bound_ms >= timeout_ms {
        return Err(Failure::usage(format!(
            "--p99-over-quiet {over_quiet}: that is {bound_ms:.0} ms, and pages end at {timeout_ms:.0} ms; give less"
        )));
    }
    let find = |policy: &String| {
        let found = Rates::around(default).search(|rate| {
            let p99_ms = p99_ms(&runs, policy, rate)?;
            Ok((p99_ms <= bound_ms).then_some(p99_ms))
        })?;
        let (rate, page_p99_ms) = found.unzip();
        Ok(Found { policy: policy.clone(), rate, page_p99_ms })
    };
    let found = distinct(policies).iter().map(find).collect::<Result<Vec<_>, Failure>>()?;
    out::print(&if batch.json {
        out::json(&found) + "\n"
    } else {
        text(application.name(), &found, bound_ms)
    })
}

/// Returns the mean over the seeds of the 99th percentile at a rate; infinite if no page ended with
/// some seed. Pages that time out count with their timeout.
fn p99_ms(runs: &Varied<'_, Application>, policy: &str, rate: f64) -> Result<f64, Failure> {
    let kept = runs.at(policy, rate)?;
    if kept.iter().any(|run| run.outcome.results.requests == 0) {
        return Ok(f64::INFINITY);
    }
    Ok(PAGE_P99.mean(&Group { value: None, suffix: String::new(), kept: &kept }))
}

fn text(scenario: &str, found: &[Found], bound_ms: f64) -> String {
    let mut text = format!(
        "highest rate of {scenario} at which P99 of pages is at most {bound_ms:.1} ms\n\n\
         {:<16} {:>8} {:>9}\n",
        "policy", "pages/s", "P99 ms",
    );
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    for Found { policy, rate, page_p99_ms } in found {
        let _ = writeln!(text, "{policy:<16} {:>8} {:>9}", number(*rate), number(*page_p99_ms));
    }
    text
}
