//! `sherwood sim compare`: policies in scenarios, with several seeds.
//!
//! A comparison of all there is takes long, and whoever waits for one wants to lose nothing: each run is kept when it is
//! finished, and the same command takes up where it was stopped.

mod crew;
mod keep;
mod report;
mod runs;
mod series;
mod summary;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use serde::Serialize;
use sherwood_policy::available_without_options;

use super::flags::Flags;
use crate::exit::Failure;
use crate::interrupt;
use crate::out;
use crew::Crew;
use keep::{Keep, Kept, Outcome};
use runs::Run;
use summary::Line;

/// Simulates policies in scenarios, with several seeds, and keeps what was finished
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim compare --report report.html
  sherwood sim compare --scenario onerf-spikes,onerf-random --policies robinhood,shared-lru
  sherwood sim compare --scenario ramp-7-quick --seeds 1,2,3,4,5 --json

Runs are kept in the directory of --results as they finish. The same command goes on with those that
are missing; results of another version or of other settings are made anew. With several seeds,
intervals are given that hold the true mean with a confidence of 95%.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
pub(crate) struct Args {
    /// What happens to the backends: scenarios of the list, or of files [default: all but none]
    #[arg(long = "scenario", value_name = "NAME|FILE.json[#NAME],…", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Who divides the caches
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values = POLICIES, value_parser = clap::builder::PossibleValuesParser::new(available_without_options().iter().copied()), hide_possible_values = true)]
    policies: Vec<String>,
    /// Seeds of the draws; each policy meets the same requests with the same seed
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1])]
    seeds: Vec<u64>,
    #[command(flatten)]
    flags: Flags,
    /// Directory in which finished runs are kept
    #[arg(long, value_name = "DIR", default_value = "sherwood-sim")]
    results: PathBuf,
    /// Runs at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Print summary and results as one JSON document
    #[arg(long)]
    json: bool,
    /// Write summary and plots into this file, as one page of HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Those that RobinHood's paper compares.
const POLICIES: [&str; 6] = ["robinhood", "shared-lru", "tao", "cliffhanger", "fair", "lama"];

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    scale: &'a str,
    settings: &'a [String],
    seeds: &'a [u64],
    /// Time the missing runs took.
    wall_s: f64,
    summary: &'a [Line],
    runs: Vec<&'a Outcome>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (policies, seeds) = (distinct(&args.policies), distinct(&args.seeds));
    let subjects = runs::subjects(&distinct(&args.scenarios))?;
    let runs = runs::of(&args.flags, &subjects, &policies, &seeds)?;
    let keep = Keep::open(&args.results)?;
    let began = Instant::now();
    make_missing(args, &keep, &runs)?;
    let wall_s = began.elapsed().as_secs_f64();
    let kept = runs.iter().map(|run| kept(&keep, run)).collect::<Result<Vec<_>, _>>()?;
    let summary = summary::of(&kept);
    if let Some(path) = &args.report {
        std::fs::write(path, report::page(&kept, &summary))
            .map_err(|error| Failure::failed(format!("writing {}: {error}", path.display())))?;
    }
    if !args.json {
        return out::print(&summary::text(&summary));
    }
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        scale: &args.flags.scale,
        settings: &args.flags.settings,
        seeds: &seeds,
        wall_s,
        summary: &summary,
        runs: kept.iter().map(|kept| &kept.outcome).collect(),
    };
    out::print(&(serde_json::to_string(&document).expect("results have string keys only") + "\n"))
}

/// Makes the runs that are not kept yet.
fn make_missing(args: &Args, keep: &Keep, runs: &[Run]) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for run in runs {
        if keep.read(&run.inputs)?.is_none() {
            missing.push(run);
        }
    }
    let (all, missed) = (runs.len(), missing.len());
    if missed == 0 {
        return Ok(());
    }
    if missed < all {
        out::say(format_args!("{} of {all} runs are kept in {}", all - missed, args.results.display()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    interrupt::on_interrupt(move || stopper.store(true, Relaxed)).map_err(Failure::failed)?;
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok());
    let threads = threads.map_or(1, NonZeroUsize::get).min(missed);
    let finished = Crew::new(keep, &stop, missing).work(threads)?;
    if finished < missed {
        return Err(Failure::interrupted(format!(
            "stopped with {} of {all} runs finished; they are kept in {}, and the same command goes on with the others",
            all - missed + finished,
            args.results.display(),
        )));
    }
    Ok(())
}

fn kept(keep: &Keep, run: &Run) -> Result<Kept, Failure> {
    let missing =
        || Failure::failed(format!("the finished run {} is gone: did anybody remove it?", run.name()));
    keep.read(&run.inputs)?.ok_or_else(missing)
}

/// Each once, in order.
fn distinct<T: Clone + PartialEq>(given: &[T]) -> Vec<T> {
    let mut distinct = Vec::with_capacity(given.len());
    for one in given {
        if !distinct.contains(one) {
            distinct.push(one.clone());
        }
    }
    distinct
}
