//! `sherwood backend`: commands about the configured backends.

mod check;
mod table;

use clap::Subcommand;

use crate::exit::Failure;

/// Looks at the backends of a configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood backend check sherwood.toml            every replica of every backend
  sherwood backend check sherwood.toml catalog    one of them

`sherwood backend COMMAND --help` shows the flags of a command.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tries each replica and says what answers there, or what is wrong and what to do
    Check(check::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Check(args) => check::run(args),
    }
}
