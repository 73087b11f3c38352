//! `sherwood man`.

use std::fs;
use std::path::PathBuf;

use crate::exit::Failure;

/// Writes the man pages of all commands
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood man ~/.local/share/man/man1        then: man sherwood-serve

Debian's package installs them.")]
pub(crate) struct Args {
    /// The directory of the pages, which is created if missing; sherwood.1 and one page for each
    /// command
    directory: PathBuf,
}

/// Writes the pages of `command`, the definition of the whole command line.
pub(crate) fn run(args: &Args, command: clap::Command) -> Result<(), Failure> {
    let directory = &args.directory;
    fs::create_dir_all(directory)
        // "help" would get a page for each command that it explains.
        .and_then(|()| clap_mangen::generate_to(command.disable_help_subcommand(true), directory))
        .map_err(|error| {
            Failure::failed(format!("cannot write man pages to {}: {error}", directory.display()))
        })
}
