//! `sherwood sim frontier`: the hardest conditions under which each policy meets the SLO.
//!
//! Policies without violations look alike. This command makes conditions harder or milder until
//! each policy just meets the SLO: the limits of the backends, the size of the caches, the load,
//! one of them at a time.

mod found;
mod trials;
mod warm;
mod workers;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sherwood_policy::available_without_options;
use sherwood_sim::Board;
use sherwood_workload::onerf::Model;

use super::compare::POLICIES;
use super::flags::Flags;
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
pub(crate) struct Args {
    /// What happens to the backends: a scenario of the list, or one of a file
    #[arg(long, value_name = "NAME|FILE.json[#NAME]")]
    scenario: String,
    /// Who divides the caches
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values = POLICIES, value_parser = clap::builder::PossibleValuesParser::new(available_without_options().iter().copied()), hide_possible_values = true)]
    policies: Vec<String>,
    /// Share of the observations that may violate the SLO
    #[arg(long, value_name = "RATIO", default_value_t = 0.003)]
    violation: f64,
    /// Seeds of the draws; each policy meets the same requests with the same seed
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 3])]
    seeds: Vec<u64>,
    #[command(flatten)]
    flags: Flags,
    /// Directory in which verdicts are kept
    #[arg(long, value_name = "DIR", default_value = "sherwood-sim")]
    results: PathBuf,
    /// Runs at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Print what was found as one JSON document
    #[arg(long)]
    json: bool,
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
    let (policies, seeds) = (distinct(&args.policies), distinct(&args.seeds));
    let subject = Subject::find(&args.scenario, &Arc::new(Model::onerf()))?;
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok());
    let threads = threads.map_or(1, NonZeroUsize::get);
    // Each thread executes one run and may leave the warm-up of another for the next.
    let trials = Trials::new(&args.flags, subject, policies, args.violation, 2 * threads)?;
    let keep = Keep::open(&args.results)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    interrupt::on_interrupt(move || stopper.store(true, Relaxed)).map_err(Failure::failed)?;
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
        std::fs::write(path, found.plot())
            .map_err(|error| Failure::failed(format!("writing {}: {error}", path.display())))?;
    }
    out::print(&if args.json { found.json() } else { found.text() })
}
