//! Logs, to standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging at `level`, which `SHERWOOD_LOG` overrides.
pub(crate) fn start(format: Format, level: &str) {
    let filter = EnvFilter::try_from_env("SHERWOOD_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A line that cannot be written is lost. To complain about that on standard error, too, would be a panic.
    let logs = logs.log_internal_errors(false);
    match format {
        Format::Text => logs.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => logs.json().init(),
    }
}
