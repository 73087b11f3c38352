//! `sherwood sim compare --scenario microfuge`.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::isolation::{self, Isolation};
use super::report;
use super::runs::{Group, Outcome, Run};
use super::summary::{self, Claim, SummaryLine};
use crate::exit::Failure;
use crate::out;
use crate::sim::batch::make_all;
use crate::sim::flags::BatchFlags;
use crate::sim::keep::Keep;
use crate::sim::runs::distinct;
use crate::sim::sweep::{Sweep, listed};

/// The JSON document of a comparison.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    settings: &'a [String],
    seeds: &'a [u64],
    /// Time that the runs without kept results took, seconds.
    wall_s: f64,
    summary: &'a [SummaryLine],
    /// Figures of MicroFuge's paper and ours; none with changed settings.
    claims: &'a [Claim],
    /// Figures of the steady tenant alone and beside one that bursts; empty with a single tenant.
    isolation: &'a [Isolation],
    runs: Vec<&'a Outcome>,
}

/// Returns the values of a setting; two tenants are compared with one of them alone.
fn values(key: &str, value: &str) -> Vec<String> {
    match (key, value) {
        (isolation::KEY, isolation::BOTH) => vec![isolation::ALONE.to_owned(), value.to_owned()],
        _ => listed(key, value),
    }
}

/// Simulates `policies` with several seeds, and with each value of a setting that has a list.
pub(in crate::sim) fn compare(
    policies: &[String],
    batch: &BatchFlags,
    page: Option<&Path>,
) -> Result<(), Failure> {
    let (policies, seeds) = (distinct(policies), distinct(&batch.seeds));
    let settings = batch.flags.all_settings();
    let sweep = Sweep::of(&settings, values)?;
    let mut runs = Vec::new();
    let mut values = Vec::new();
    for policy in &policies {
        for (value, settings) in sweep.values() {
            for &seed in &seeds {
                runs.push(Run::new(&batch.flags, settings.clone(), policy, seed)?);
            }
            values.push(value);
        }
    }
    let keep = Keep::open(batch.results.as_deref())?;
    let began = Instant::now();
    let kept = make_all(&keep, &runs, batch.threads())?;
    let wall_s = began.elapsed().as_secs_f64();
    let groups = values.into_iter().zip(kept.chunks(seeds.len()));
    let groups: Vec<Group> = groups.map(|(value, kept)| Group { value, kept: kept.to_vec() }).collect();
    let lines: Vec<SummaryLine> =
        groups.iter().map(|group| summary::line(&group.kept, group.value.as_deref())).collect();
    let claims = summary::claims(&lines, &settings);
    let isolation = isolation::lines(&groups);
    let swept = sweep.swept.as_ref().map(|(key, _)| key.as_str());
    if let Some(path) = page {
        let study = report::Study {
            groups: &groups,
            lines: &lines,
            claims: &claims,
            isolation: &isolation,
            settings: &settings,
            swept,
        };
        out::write_file(path, &report::page(&study))?;
    }
    if !batch.json {
        let text = summary::text(&lines, &claims, swept) + &isolation::text(&isolation);
        return out::print(&text);
    }
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        settings: &settings,
        seeds: &seeds,
        wall_s,
        summary: &lines,
        claims: &claims,
        isolation: &isolation,
        runs: kept.iter().map(|kept| &kept.outcome).collect(),
    };
    out::print(&(serde_json::to_string(&document).expect("results have string keys only") + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_with_a_list_is_swept_and_a_second_list_is_refused() {
        let settings = ["clients=96".to_owned(), "beta=50,88".to_owned()];
        let sweep = Sweep::of(&settings, values).expect("one list");
        let swept = sweep.values();
        assert_eq!(swept.len(), 2);
        assert_eq!(swept[1], (Some("88".to_owned()), vec!["clients=96".to_owned(), "beta=88".to_owned()]));
        let tenants = Sweep::of(&["tenants=2".to_owned()], values).expect("compared with one alone").values();
        assert_eq!(
            tenants.iter().map(|(_, settings)| &settings[0][..]).collect::<Vec<_>>(),
            ["tenants=steady", "tenants=2"]
        );
        assert!(Sweep::of(&["tenants=2".to_owned(), "beta=1,2".to_owned()], values).is_err());
        assert!(Sweep::of(&["beta=1,2".to_owned(), "alpha=1,2".to_owned()], values).is_err());
        assert_eq!(
            Sweep::of(&settings[..1], values).expect("no list").values(),
            [(None, settings[..1].to_vec())]
        );
    }
}
