//! `sherwood sim frontier --scenario microfuge`: the highest rate that each policy stands.

use std::fmt::Write;

use serde::Serialize;

use super::study::{Group, Microfuge};
use super::summary::{HITS, MISSED, REJECTED};
use crate::exit::Failure;
use crate::out;
use crate::sim::flags::BatchFlags;
use crate::sim::inputs::distinct;
use crate::sim::rate_search::{Rates, Varied};

/// Largest shares of all requests that may miss their deadline, and be rejected.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Bounds {
    pub(in crate::sim) missed: f64,
    pub(in crate::sim) rejected: f64,
}

/// The highest rate at which a policy stays within the bounds.
#[derive(Clone, Debug, Serialize)]
struct Found {
    policy: String,
    /// Requests per second, a step of the search below the least rate that failed; none if the
    /// lowest rate fails already.
    rate: Option<f64>,
    deadline_miss_ratio: Option<f64>,
    rejection_ratio: Option<f64>,
    hit_ratio_overall: Option<f64>,
}

/// Rates of the search, in requests per second: 100 to 16 million, and first 2,600.
const RATES: Rates = Rates { least: 100.0, count: 606, first: 165 };

/// Finds the highest open-loop rate of each policy.
pub(in crate::sim) fn frontier(
    policies: &[String],
    batch: &BatchFlags,
    bounds: Bounds,
) -> Result<(), Failure> {
    let runs = Varied::of(Microfuge, batch)?;
    let found =
        distinct(policies).iter().map(|policy| find(&runs, policy, bounds)).collect::<Result<Vec<_>, _>>()?;
    out::print(&if batch.json { out::json(&found) + "\n" } else { text(&found, bounds) })
}

fn find(runs: &Varied<'_, Microfuge>, policy: &str, bounds: Bounds) -> Result<Found, Failure> {
    let found = RATES.search(|rate| {
        let rate = rate.round();
        let kept = runs.at(policy, rate)?;
        let group = Group { value: None, suffix: String::new(), kept: &kept };
        let [missed, rejected, hits] = [MISSED, REJECTED, HITS].map(|measure| measure.mean(&group));
        let stands = missed <= bounds.missed && rejected <= bounds.rejected;
        Ok(stands.then_some([missed, rejected, hits]))
    })?;
    let [missed, rejected, hits] = found.map_or([None; 3], |(_, ratios)| ratios.map(Some));
    Ok(Found {
        policy: policy.to_owned(),
        rate: found.map(|(rate, _)| rate.round()),
        deadline_miss_ratio: missed,
        rejection_ratio: rejected,
        hit_ratio_overall: hits,
    })
}

fn text(found: &[Found], bounds: Bounds) -> String {
    let mut text = format!(
        "highest rate with at most {}% missed and {}% rejected\n\n{:<16} {:>10} {:>9} {:>11} {:>8}\n",
        bounds.missed * 100.0,
        bounds.rejected * 100.0,
        "policy",
        "requests/s",
        "missed %",
        "rejected %",
        "hits %",
    );
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2}", share * 100.0));
    for one in found {
        let rate = one.rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        let _ = writeln!(
            text,
            "{:<16} {rate:>10} {:>9} {:>11} {:>8}",
            one.policy,
            percent(one.deadline_miss_ratio),
            percent(one.rejection_ratio),
            percent(one.hit_ratio_overall),
        );
    }
    text
}
