//! `sherwood sim frontier`: the hardest conditions under which each policy meets the SLO.
//!
//! Policies without violations look alike. This command makes conditions harder or milder until
//! each policy just meets the SLO: the limits of the backends, the size of the caches, the load,
//! one of them at a time.

mod found;
mod trials;
mod warm;
mod workers;

use std::path::PathBuf;
use std::sync::Arc;

use sherwood_sim::Board;
use sherwood_workload::onerf::Model;

use super::flags::{BatchFlags, Policies};
use super::keep::Keep;
use super::runs::distinct;
use super::subject::Subject;
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

One condition is changed at a time, in steps of 5%, from a fifteenth of what it is to fifteen times
that. The first seed is searched from the conditions as they are, the others from where it ended;
what is found is kept with every seed. Runs end when their verdict is certain; verdicts are kept in
the directory of --results, and the same command goes on with what is missing.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
#[command(
    mut_arg("seeds", |arg| arg.default_values(["1", "2", "3"])),
    mut_arg("results", |arg| arg.help("Directory in which verdicts are kept")),
    mut_arg("json", |arg| arg.help("Print what was found as one JSON document"))
)]
pub(crate) struct Args {
    /// What happens to the backends: a scenario of the list, or one of a file
    #[arg(long, value_name = "NAME|FILE.json[#NAME]")]
    scenario: String,
    #[command(flatten)]
    policies: Policies,
    /// Share of the observations that may violate the SLO
    #[arg(long, value_name = "RATIO", default_value_t = 0.003)]
    violation: f64,
    #[command(flatten)]
    batch: BatchFlags,
    /// Draw what was found into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if !(0.0..1.0).contains(&args.violation) {
        return Err(Failure::usage(format!(
            "--violation {}: it is a share of the observations; the accepted range is 0 up to, but not including, 1",
            args.violation
        )));
    }
    let (policies, seeds) = (distinct(&args.policies.policies), distinct(&args.batch.seeds));
    let subject = Subject::find(&args.scenario, &Arc::new(Model::onerf()))?;
    let threads = args.batch.threads();
    // Each thread executes one run and may leave the warm-up of another for the next.
    let trials = Trials::new(&args.batch.flags, subject, policies, args.violation, 2 * threads)?;
    let keep = Keep::open(&args.batch.results)?;
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
