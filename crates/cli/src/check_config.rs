//! `sherwood check-config`.

use std::path::PathBuf;

use sherwood_config::Flags;

use crate::exit::Failure;
use crate::out;

/// Checks a configuration file and says what is wrong with it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sherwood check-config sherwood.toml\n\nExit status: 0 valid, 2 not.")]
pub(crate) struct Args {
    /// The file
    file: PathBuf,
}

/// Text after a valid configuration: a reminder of what the check does not cover.
const NOT_SEEN: &str = "not looked at: whether ports are free, files of passwords and certificates can be read, and servers answer; \
                        `sherwood backend check` tries the stores";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let flags = Flags { config: Some(args.file.clone()), ..Flags::default() };
    let config = sherwood_config::load(&flags, sherwood_policy::available_without_options())
        .map_err(Failure::usage)?;
    let (memory, buffers) = (config.memory_line(), config.buffers_line());
    out::print(&format!("{} is valid\n{memory}\n{buffers}\n{NOT_SEEN}\n", args.file.display()))
}
