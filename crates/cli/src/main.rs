//! The `sherwood` command.
//!
//! A thin layer: each command has a file that turns flags into options, calls the crate that does
//! the work, and prints the result. Exit status: 0 done, 1 ran and failed, 2 bad usage, 3 a result
//! that does not count, 130 interrupted.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, sockets and threads"
)]

mod admin;
mod allocator;
mod backend;
mod cache_dir;
mod chart;
mod check_config;
mod completions;
mod config_schema;
mod demo;
mod descriptors;
mod duration;
mod exit;
mod hanging;
mod interrupt;
mod load;
mod log_lines;
mod logs;
mod man;
mod mrc;
mod out;
mod plan;
mod policy;
mod ready;
mod serve;
mod sim;
mod stderr;
mod tenants;
mod terminal;
mod token;
mod top;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps the request tail latency of a multi-tier service inside its SLO.
#[derive(Debug, Parser)]
#[command(name = "sherwood", version, propagate_version = true, max_term_width = 110)]
#[command(after_help = "Examples:
  sherwood demo                                                the whole system, nothing to install
  sherwood serve --memory 1GiB --memcached 127.0.0.1:11211     a plain cache
  sherwood load --target memcached://127.0.0.1:11211           load for it

`sherwood COMMAND --help` shows the flags of a command and more examples.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a node: a cache, or a sidecar in front of backends
    Serve(serve::Args),
    /// Shows a service of twenty backends hold its request P99 while backends slow down
    Demo(demo::Args),
    /// Sends load to a cache or a gateway and reports what it saw
    Load(Box<load::LoadArgs>),
    /// Draws the miss ratio curve of a trace
    Mrc(mrc::Args),
    /// Plans nodes for an objective, from a model
    Plan(plan::Args),
    /// Asks a policy between tenants how it would divide cache and units
    Policy(policy::Args),
    /// Shows how a node divides cache and units among its tenants
    Tenants(tenants::Args),
    /// Shows a running node live: latencies, partitions, backends, keys, decisions
    Top(top::Args),
    /// Simulates a service of application servers and backends under an allocation policy
    Sim(sim::Args),
    /// Checks a configuration file and says what is wrong with it
    CheckConfig(check_config::Args),
    /// Prints the JSON Schema of configuration files, for editors
    ConfigSchema(config_schema::Args),
    /// Looks at the backends of a configuration
    Backend(backend::Args),
    /// Checks that a node serves, for health checks of containers
    Ready(ready::Args),
    /// Prints the completions of commands and flags for a shell
    Completions(completions::Args),
    /// Writes the man pages of all commands
    Man(man::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Mrc(args) => mrc::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Tenants(args) => tenants::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::ConfigSchema(args) => config_schema::run(&args),
        Command::Backend(args) => backend::run(&args),
        Command::Ready(args) => ready::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    exit::report(outcome)
}
