//! `sherwood sim frontier`: the hardest conditions under which each policy meets the SLO.
//!
//! Policies without violations look alike. This command makes conditions harder or milder until
//! each policy just meets the SLO: the limits of the backends, the size of the caches, the load,
//! one of them at a time.

mod found;
mod trials;
mod workers;

use std::path::PathBuf;

use sherwood_sim::Board;

use super::flags::{BatchFlags, PAPER_POLICIES, Policies};
use super::inputs::distinct;
use super::keep::Keep;
use super::microfuge;
use super::onerf::subject::Subject;
use super::spare;
use crate::exit::Failure;
use crate::interrupt;
use crate::out;
use found::Found;
use trials::Trials;
use workers::Workers;

/// Finds how deep limits, how small caches and how high a load each policy stands
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim frontier --scenario onerf-spikes
  sherwood sim frontier --scenario onerf-random --policies robinhood,lama --seeds 1,2,3,4,5
  sherwood sim frontier --scenario onerf-spikes --violation 0.01 --plot frontier.svg
  sherwood sim frontier --scenario our-shop.json --policies robinhood,shared-lru --json
  sherwood sim frontier --scenario microfuge --missed 0.03 --rejected 0.05
  sherwood sim frontier --scenario spare-mediawiki --policies spare-tad,sherwood --p99-over-quiet 2

One condition is changed at a time, in steps of 5%, from a fifteenth of what it is to fifteen times
that; in microfuge and spare-… the rate alone, in steps of 2%. The first seed is searched from the conditions as they are, the others from where it ended;
what is found is kept with every seed. Runs end when their verdict is certain; verdicts are kept in
the directory of --results, and the same command goes on with what is missing.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
#[command(
    mut_arg("seeds", |arg| arg.default_values(["1", "2", "3"])),
    mut_arg("results", |arg| arg.help("Directory in which verdicts are kept [default: ~/.cache/sherwood/sim]")),
    mut_arg("json", |arg| arg.help("Print what was found as one JSON document"))
)]
pub(crate) struct Args {
    /// Scenario of the list, or of a file: what happens to the backends
    #[arg(long, value_name = "NAME|FILE.json[#NAME]")]
    scenario: String,
    #[command(flatten)]
    policies: Policies,
    /// Share of the observations that may violate the SLO [default: 0.003]
    #[arg(long, value_name = "RATIO")]
    violation: Option<f64>,
    /// Share of the requests that may miss their deadline, in microfuge [default: 0.03]
    #[arg(long, value_name = "RATIO")]
    missed: Option<f64>,
    /// Share of the requests that may be rejected, in microfuge [default: 0.05]
    #[arg(long, value_name = "RATIO")]
    rejected: Option<f64>,
    /// 99th percentile of pages, over that of policy quiet at the default rate, in scenarios of
    /// sPARE [default: 2]
    #[arg(long, value_name = "RATIO")]
    p99_over_quiet: Option<f64>,
    #[command(flatten)]
    batch: BatchFlags,
    /// Draw what was found into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Default of `--violation`.
const VIOLATION: f64 = 0.003;
/// Defaults of `--missed` and `--rejected`.
const MISSED: f64 = 0.03;
const REJECTED: f64 = 0.05;
/// Default of `--p99-over-quiet`.
const P99_OVER_QUIET: f64 = 2.0;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if microfuge::is_asked_for(std::slice::from_ref(&args.scenario))? {
        return microfuge_rate(args);
    }
    if spare::is_asked_for(std::slice::from_ref(&args.scenario))? {
        return spare_rate(args);
    }
    if args.p99_over_quiet.is_some() {
        return Err(Failure::usage(
            "--p99-over-quiet: it is for scenarios of sPARE; others have --violation",
        ));
    }
    if args.missed.is_some() || args.rejected.is_some() {
        return Err(Failure::usage(
            "--missed and --rejected: they are for scenario microfuge; other scenarios have --violation",
        ));
    }
    let violation = args.violation.unwrap_or(VIOLATION);
    if !(0.0..1.0).contains(&violation) {
        return Err(Failure::usage(format!(
            "--violation {violation}: it is a share of the observations; the accepted range is 0 up to, but not including, 1"
        )));
    }
    let policies = distinct(&args.policies.chosen_or(PAPER_POLICIES));
    let seeds = distinct(&args.batch.seeds);
    let subject = Subject::named(&args.scenario)?;
    let threads = args.batch.threads();
    // Each thread executes one run and may leave the warm-up of another for the next.
    let trials = Trials::new(&args.batch.flags, subject, policies, violation, 2 * threads)?;
    let keep = Keep::open(args.batch.results.as_deref())?;
    let stop = interrupt::stop_flag()?;
    let board = Board::new(trials.policies().len(), &seeds);
    let board = Workers::new(&trials, &keep, &stop, board).work(threads)?;
    let found = Found::of(&trials, &board, &seeds);
    if !found.is_complete() {
        return Err(Failure::interrupted(format!(
            "stopped with {} of {} searches finished{}\nverdicts are kept in {}, and the same command goes on with the others",
            found.finished(),
            found.searches(),
            found.so_far(),
            keep.directory(),
        )));
    }
    if let Some(path) = &args.plot {
        out::write_file(path, &found.plot())?;
    }
    out::print(&if args.batch.json { found.json() } else { found.text() })
}

/// Finds the highest rate of requests that each policy of scenario `microfuge` stands.
fn microfuge_rate(args: &Args) -> Result<(), Failure> {
    if args.violation.is_some() || args.plot.is_some() {
        return Err(Failure::usage(
            "--violation and --plot: microfuge has no SLO of all requests; bound --missed and --rejected",
        ));
    }
    let bounds = microfuge::Bounds {
        missed: args.missed.unwrap_or(MISSED),
        rejected: args.rejected.unwrap_or(REJECTED),
    };
    for (flag, share) in [("--missed", bounds.missed), ("--rejected", bounds.rejected)] {
        if !(0.0..=1.0).contains(&share) {
            return Err(Failure::usage(format!(
                "{flag} {share}: it is a share of the requests; the accepted range is 0 to 1"
            )));
        }
    }
    let policies = args.policies.chosen_or(microfuge::policies());
    microfuge::frontier(&policies, &args.batch, bounds)
}

/// Finds the highest rate of pages that each policy of a scenario of sPARE stands.
fn spare_rate(args: &Args) -> Result<(), Failure> {
    if [args.violation, args.missed, args.rejected].iter().any(Option::is_some) || args.plot.is_some() {
        return Err(Failure::usage(
            "--violation, --missed, --rejected and --plot: scenarios of sPARE have --p99-over-quiet",
        ));
    }
    let over_quiet = args.p99_over_quiet.unwrap_or(P99_OVER_QUIET);
    if !(1.0..=1_000.0).contains(&over_quiet) {
        return Err(Failure::usage(format!(
            "--p99-over-quiet {over_quiet}: it is a multiple of a latency; the accepted range is 1 to 1000"
        )));
    }
    let policies = args.policies.chosen_or(spare::policies());
    spare::frontier(spare::Application::find(&args.scenario)?, &policies, &args.batch, over_quiet)
}
