//! `sherwood sim compare`: policies in scenarios, with several seeds.
//!
//! A comparison of everything takes long. Each run is therefore kept when it is finished, and the
//! same command continues where it was stopped.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use sherwood_sim::LimitLine;

use super::batch::workers::Workers;
use super::estimate::{self as summary, SummaryLine};
use super::flags::{BatchFlags, PAPER_POLICIES, Policies};
use super::keep::Keep;
use super::onerf::claims::{self, Claim};
use super::onerf::kept::{Kept, RunOutcome};
use super::onerf::report::{Limits, Study};
use super::onerf::{hits, report};
use super::runs::{self, Run, distinct};
use super::{microfuge, tenants};
use crate::exit::Failure;
use crate::interrupt;
use crate::out;

/// Simulates policies in scenarios, with several seeds, and keeps what was finished
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim compare --report report.html --plots plots
  sherwood sim compare --scenario onerf-spikes,onerf-random --policies robinhood,shared-lru
  sherwood sim compare --scenario ramp-7-quick --seeds 1,2,3,4,5 --json
  sherwood sim compare --scenario microfuge --seeds 1,2,3,4,5 --report deadlines.html
  sherwood sim compare --scenario hare-working-set,hare-skew --report tenants.html

Runs are kept in the directory of --results as they finish. The same command goes on with those that
are missing; results of another build or of other settings are made anew. With several seeds,
intervals are given that hold the true mean with a confidence of 95%.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
#[command(mut_arg("json", |arg| arg.help("Print summary and results as one JSON document")))]
pub(crate) struct Args {
    /// Scenarios of the list, or of files: what happens to the backends, or what tenants ask for
    /// [default: all of OneRF but none]
    #[arg(long = "scenario", value_name = "NAME|FILE.json[#NAME],…", value_delimiter = ',')]
    scenarios: Vec<String>,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    batch: BatchFlags,
    /// Write summary and plots into this file, as one page of HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write each plot into this directory, as a file of SVG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Plot latencies of hits too, from what `sherwood demo --json` printed into this file
    #[arg(long, value_name = "FILE")]
    hits: Option<PathBuf>,
}

/// The JSON document that `sherwood sim compare` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    scale: &'a str,
    settings: &'a [String],
    seeds: &'a [u64],
    /// Time that the runs without kept results took, seconds.
    wall_s: f64,
    summary: &'a [SummaryLine],
    /// Claims of RobinHood's paper with our results.
    claims: &'a [Claim],
    /// Settings that differ from the paper's; if there are any, there are no claims.
    claims_left_out: &'a [String],
    runs: Vec<&'a RunOutcome>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if microfuge::is_asked_for(&args.scenarios)? {
        if args.plots.is_some() || args.hits.is_some() {
            return Err(Failure::usage("--plots and --hits: there are none of microfuge; use --report"));
        }
        let policies = args.policies.chosen_or(microfuge::policies());
        return microfuge::compare(&policies, &args.batch, args.report.as_deref());
    }
    if tenants::is_asked_for(&args.scenarios)? {
        if args.plots.is_some() || args.hits.is_some() {
            return Err(Failure::usage("--plots and --hits: there are none of tenants; use --report"));
        }
        let policies = args.policies.chosen_or(tenants::policies());
        return tenants::compare(&args.scenarios, &policies, &args.batch, args.report.as_deref());
    }
    let policies = distinct(&args.policies.chosen_or(PAPER_POLICIES));
    let seeds = distinct(&args.batch.seeds);
    let subjects = runs::subjects(&distinct(&args.scenarios))?;
    let runs = runs::of(&args.batch.flags, &subjects, &policies, &seeds)?;
    let hits = args.hits.as_deref().map(hits::read).transpose()?.unwrap_or_default();
    let keep = Keep::open(args.batch.results.as_deref())?;
    let began = Instant::now();
    make_missing(&keep, &runs, args.batch.threads())?;
    let wall_s = began.elapsed().as_secs_f64();
    let kept = kept(&keep, &runs)?;
    let (summary, limits) = (summary::of(&kept), limits(&runs)?);
    let (claims, unlike) = (claims::of(&kept, &limits), claims::left_out(&kept));
    let study = Study {
        kept: &kept,
        lines: &summary,
        claims: &claims,
        unlike: &unlike,
        limits: &limits,
        hits: &hits,
    };
    if let Some(path) = &args.report {
        out::write_file(path, &report::page(&study))?;
    }
    if let Some(directory) = &args.plots {
        report::write_plots(&study, directory).map_err(|error| {
            Failure::failed(format!("writing plots into {}: {error}", directory.display()))
        })?;
    }
    if !args.batch.json {
        return out::print(&(summary::text(&summary) + &claims::text(&claims, &unlike)));
    }
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        scale: args.batch.flags.scale(),
        settings: &args.batch.flags.all_settings(),
        seeds: &seeds,
        wall_s,
        summary: &summary,
        claims: &claims,
        claims_left_out: &unlike,
        runs: kept.iter().map(|kept| &kept.outcome).collect(),
    };
    out::print(&(serde_json::to_string(&document).expect("results have string keys only") + "\n"))
}

/// Returns the limits of each scenario's backends.
fn limits(runs: &[Run]) -> Result<BTreeMap<String, Limits>, Failure> {
    let mut limits = BTreeMap::new();
    for run in runs {
        if !limits.contains_key(&run.inputs.scenario) {
            limits.insert(run.inputs.scenario.clone(), LimitLine::of(&run.setup).map_err(Failure::usage)?);
        }
    }
    Ok(limits)
}

/// Executes the runs that are not kept yet, at most `threads` at a time.
pub(super) fn make_missing(keep: &Keep, runs: &[Run], threads: usize) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for run in runs {
        if keep.read::<Kept>(&run.inputs)?.is_none() {
            missing.push(run);
        }
    }
    let (all, missed) = (runs.len(), missing.len());
    if missed == 0 {
        return Ok(());
    }
    if missed < all {
        out::say(format_args!("{} of {all} runs are kept in {}", all - missed, keep.directory()));
    }
    let stop = interrupt::stop_flag()?;
    let (finished, failure) = Workers::new(keep, &stop, missing)?.work(threads.min(missed));
    let there = all - missed + finished;
    let kept = format!(
        "{there} of {all} runs finished; they are kept in {}, and the same command goes on with the others",
        keep.directory()
    );
    match failure {
        Some(failure) => Err(failure.and(format_args!("so there is no result of all: {kept}"))),
        None if finished < missed => Err(Failure::interrupted(format!("stopped with {kept}"))),
        None => Ok(()),
    }
}

/// Reads the kept results of all runs, which must be finished.
pub(super) fn kept(keep: &Keep, runs: &[Run]) -> Result<Vec<Kept>, Failure> {
    let missing =
        |run: &Run| Failure::failed(format!("the finished run {} is gone: did anybody remove it?", run.name));
    runs.iter().map(|run| keep.read(&run.inputs)?.ok_or_else(|| missing(run))).collect()
}
