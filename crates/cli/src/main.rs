//! The `sherwood` command.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, sockets and threads"
)]

#[expect(dead_code, reason = "the command that uses these modules is wired next")]
mod demo;
mod load;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps the request tail latency of a multi-tier service inside its SLO.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sends load to a cache or a gateway and reports what it saw.
    Load(Box<load::LoadArgs>),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Load(args) => load::run(&args),
    }
}
