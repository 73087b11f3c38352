//! `sherwood sim compare` of scenarios of tenants.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::report;
use super::runs::{BASELINE, Kept, Outcome, Run};
use super::subject::Subject;
use super::summary::{self, Claim, Group, SummaryLine};
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
    /// Figures of HARE's paper and ours; none with changed settings.
    claims: &'a [Claim],
    runs: Vec<&'a Outcome>,
}

/// A scenario with settings, of which runs differ in policy and seed.
struct Case {
    subject: Subject,
    value: Option<String>,
    settings: Vec<String>,
}

/// Simulates `policies` in `scenarios` with several seeds, and with each value of a setting that
/// has a list. `baseline` is simulated in any case.
pub(in crate::sim) fn compare(
    scenarios: &[String],
    policies: &[String],
    batch: &BatchFlags,
    page: Option<&Path>,
) -> Result<(), Failure> {
    let (policies, seeds) = (distinct(policies), distinct(&batch.seeds));
    let settings = batch.flags.all_settings();
    let sweep = Sweep::of(&settings, listed)?;
    let mut cases = Vec::new();
    for scenario in distinct(scenarios) {
        let subject = Subject::find(&scenario)?;
        cases.extend(sweep.values().into_iter().map(|(value, settings)| Case {
            subject: subject.clone(),
            value,
            settings,
        }));
    }
    let keep = Keep::open(batch.results.as_deref())?;
    let began = Instant::now();
    let groups = simulate(&cases, &policies, &seeds, batch, &keep)?;
    let wall_s = began.elapsed().as_secs_f64();
    let lines: Vec<SummaryLine> = groups.iter().map(Group::line).collect();
    let claims = summary::claims(&lines, &settings);
    let swept = sweep.swept.as_ref().map(|(key, _)| key.as_str());
    if let Some(path) = page {
        let study =
            report::Study { groups: &groups, lines: &lines, claims: &claims, settings: &settings, swept };
        out::write_file(path, &report::page(&study))?;
    }
    if !batch.json {
        return out::print(&summary::text(&lines, &claims, swept));
    }
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        settings: &settings,
        seeds: &seeds,
        wall_s,
        summary: &lines,
        claims: &claims,
        runs: groups.iter().flat_map(|group| &group.kept).map(|kept| &kept.outcome).collect(),
    };
    out::print(&(serde_json::to_string(&document).expect("results have string keys only") + "\n"))
}

/// Simulates all runs, those of `baseline` first, and returns them by case and policy.
fn simulate(
    cases: &[Case],
    policies: &[String],
    seeds: &[u64],
    batch: &BatchFlags,
    keep: &Keep,
) -> Result<Vec<Group>, Failure> {
    let run = |case: &Case, policy: &str, seed: u64| {
        Run::new(&batch.flags, &case.subject, case.settings.clone(), policy, seed)
    };
    let mut bases = Vec::new();
    for case in cases {
        for policy in policies {
            // Invalid setups are refused before anything is simulated.
            run(case, policy, seeds[0])?;
        }
        for &seed in seeds {
            bases.push(run(case, BASELINE, seed)?);
        }
    }
    let bases = make_all(keep, &bases, batch.threads())?;
    let mut runs = Vec::new();
    for (case, bases) in cases.iter().zip(bases.chunks(seeds.len())) {
        for policy in policies.iter().filter(|policy| *policy != BASELINE) {
            for (&seed, base) in seeds.iter().zip(bases) {
                runs.push(run(case, policy, seed)?.against(Arc::new(base.measured.clone())));
            }
        }
    }
    let mut others = make_all(keep, &runs, batch.threads())?.into_iter();
    let mut groups = Vec::new();
    for (case, bases) in cases.iter().zip(bases.chunks(seeds.len())) {
        for policy in policies {
            let kept: Vec<Kept> = match policy.as_str() {
                BASELINE => bases.to_vec(),
                _ => others.by_ref().take(seeds.len()).collect(),
            };
            groups.push(Group {
                scenario: case.subject.name.clone(),
                policy: policy.clone(),
                value: case.value.clone(),
                kept,
            });
        }
    }
    Ok(groups)
}
