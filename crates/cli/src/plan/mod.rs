//! `sherwood plan`: what-ifs, from a model and without a system around them.

mod points;
mod slo;

use clap::Subcommand;

use crate::exit::Failure;

/// Plans nodes for an objective, from a model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood plan slo --cdf store.csv --rate 5000 --bound 15ms --percentile 99.9 --nodes 144

`sherwood plan COMMAND --help` shows the flags of a command.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Chooses partitions and duplicates of a replicated store for a latency objective
    Slo(slo::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Slo(args) => slo::run(args),
    }
}
