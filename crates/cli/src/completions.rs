//! `sherwood completions`.

use clap_complete::Shell;

use crate::exit::Failure;
use crate::out;

/// Prints the completions of commands and flags for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood completions bash > ~/.local/share/bash-completion/completions/sherwood
  sherwood completions zsh > ~/.zfunc/_sherwood        where ~/.zfunc is in the fpath
  sherwood completions fish > ~/.config/fish/completions/sherwood.fish

Debian's package installs those of bash, zsh and fish.")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completions of `command`, the definition of the whole command line.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "sherwood", &mut script);
    out::print(&String::from_utf8_lossy(&script))
}
