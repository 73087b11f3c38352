//! `sherwood policy`: decisions between tenants without a system around them.

mod allocate;
mod input;
mod table;

use clap::Subcommand;

use crate::exit::Failure;

pub(crate) use table::plain;

/// Asks a policy between tenants for a decision
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood policy allocate --policy hare --input examples/tenants/files.json

`sherwood policy COMMAND --help` shows the flags of a command.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Divides cache, read units, write units and network among tenants, once
    Allocate(allocate::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Allocate(args) => allocate::run(args),
    }
}
