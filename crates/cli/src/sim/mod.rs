//! `sherwood sim`: simulation of allocation policies.

mod ablate;
mod batch;
mod claims;
mod compare;
mod comparison;
mod estimate;
mod flags;
mod frontier;
mod inputs;
mod keep;
mod list;
mod microfuge;
mod onerf;
mod play;
mod progress;
mod rate_search;
mod record;
mod report;
mod run;
mod spare;
mod study;
mod sweep;
mod table;
mod tenants;
mod zoolander;

use clap::Subcommand;

use crate::exit::Failure;

/// Simulates a service under an allocation policy: application servers with caches before backends
/// with queues
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim list
  sherwood sim run --scenario onerf-spikes --policy robinhood
  sherwood sim run --scenario onerf-random --policy shared-lru --set walk=3 --json
  sherwood sim compare --scenario ramp-7-quick --seeds 1,2,3
  sherwood sim frontier --scenario onerf-spikes --policies robinhood,shared-lru
  sherwood sim compare --scenario microfuge --report deadlines.html
  sherwood sim ablate --scenario onerf-random --seeds 1,2,3
  sherwood sim record --node http://127.0.0.1:8080 shop.json

`sherwood sim COMMAND --help` shows the flags of a command.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists scenarios, policies, scales and settings
    List(list::Args),
    /// Simulates one policy in one scenario
    Run(run::Args),
    /// Simulates policies in scenarios, with several seeds, and keeps what was finished
    Compare(compare::Args),
    /// Finds how deep limits, how small caches and how high a load each policy stands
    Frontier(frontier::Args),
    /// Changes one thing about RobinHood at a time, and compares with RobinHood unchanged
    Ablate(ablate::Args),
    /// Makes a scenario file of a running node
    Record(record::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if !matches!(args.command, Command::List(_) | Command::Record(_)) {
        crate::allocator::keep_freed_memory();
    }
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Frontier(args) => frontier::run(args),
        Command::Ablate(args) => ablate::run(args),
        Command::Record(args) => record::run(args),
    }
}
