//! `sherwood sim ablate`: the effect of each part of RobinHood's control loop.
//!
//! The loop has a window, a band, a tax and a rule about unfilled space. This command changes one
//! of them at a time and compares the result with the unchanged loop under the same requests.

mod change;
mod table;

use std::path::PathBuf;
use std::time::Instant;

use super::batch::make_all;
use super::flags::{BatchFlags, Flags};
use super::inputs::distinct;
use super::keep::Keep;
use super::onerf::subject::{Subject, subjects};
use super::study::{Run, Study};
use crate::exit::Failure;
use crate::out;
use change::Change;
use table::Changes;

/// Changes one thing about RobinHood at a time, and compares with RobinHood unchanged
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim ablate
  sherwood sim ablate --scenario onerf-random --seeds 1,2,3 --report ablations.html
  sherwood sim ablate --scenario ramp-7-quick --change window,stale --json

Each change is settings of `sherwood sim run` over policy robinhood, or another policy made from it;
--set goes for all of them. Runs are kept in the directory of --results as those of `sherwood sim
compare` are, and the same command goes on with those that are missing. With several seeds, intervals
are given that hold the true mean with a confidence of 95%; differences are taken seed by seed.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
#[command(mut_arg("seeds", |arg| arg.help("Seeds of the draws; each change meets the same requests with the same seed")))]
pub(crate) struct Args {
    /// Scenarios of the list, or of files: what happens to the backends
    #[arg(long = "scenario", value_name = "NAME|FILE.json[#NAME],…", value_delimiter = ',', default_values = ["onerf-spikes", "onerf-random"])]
    scenarios: Vec<String>,
    /// What is changed [default: all of it]
    #[arg(long = "change", value_name = "NAME,…", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(change::NAMES))]
    changes: Vec<String>,
    #[command(flatten)]
    batch: BatchFlags,
    /// Write the tables into this file, as one page of HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { scenarios, changes, batch, report } = args;
    let seeds = distinct(&batch.seeds);
    let changes = change::of(changes);
    let mut runs = Vec::new();
    for subject in &subjects(&distinct(scenarios))? {
        for change in &changes {
            for &seed in &seeds {
                runs.push(run_of(&batch.flags, subject, change, seed)?);
            }
        }
    }
    runs.iter().step_by(seeds.len()).try_for_each(Run::check)?;
    let keep = Keep::open(batch.results.as_deref())?;
    let began = Instant::now();
    let kept = make_all(&keep, &runs, batch.threads())?;
    let wall_s = began.elapsed().as_secs_f64();
    let table = Changes::of(&kept, &changes, &seeds);
    if let Some(path) = report {
        out::write_file(path, &table.page(&batch.flags))?;
    }
    out::print(&if batch.json { table.json(&batch.flags, wall_s) } else { table.text() })
}

fn run_of(flags: &Flags, subject: &Subject, change: &Change, seed: u64) -> Result<Run<Subject>, Failure> {
    let settings = flags.all_settings().into_iter().chain(change.settings()).collect();
    let mut run = Run::new(subject, flags, settings, change.policy(), seed)?;
    run.name = format!("{} {change} seed {seed}", subject.name());
    Ok(run)
}
