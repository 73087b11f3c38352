//! Logging to standard error.

use std::env::VarError;
use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::log_lines;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    #[value(help = "One JSON object a line")]
    Json,
}

/// The environment variable that selects the lines that are written.
const VARIABLE: &str = "SHERWOOD_LOG";

/// The log levels, from the fewest lines to the most.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Returns the filter of log lines: `level` and above, unless `SHERWOOD_LOG` is set.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Failure> {
    match std::env::var(VARIABLE) {
        Ok(text) => parsed(&text, level),
        Err(VarError::NotPresent) => Ok(usual(level)),
        Err(VarError::NotUnicode(text)) => Err(refusal(&text.to_string_lossy())),
    }
}

/// Parses the value of `SHERWOOD_LOG`. A word that is no level is refused: the logging library
/// would take a misspelt level for the name of a module, log everything from it and nothing else.
fn parsed(text: &str, level: &str) -> Result<EnvFilter, Failure> {
    if text.is_empty() {
        return Ok(usual(level));
    }
    let is_known = |word: &str| {
        let level = word.rsplit_once('=').map_or(word, |(_, level)| level).trim();
        LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
    };
    match text.split(',').find(|word| !is_known(word)) {
        Some(word) => Err(refusal(word)),
        None => EnvFilter::builder().parse(text).map_err(|_| refusal(text)),
    }
}

/// Returns the filter of a level without what a library says often. The client of the bus logs each
/// attempt to connect; the node itself says that the connection is lost, and open again.
fn usual(level: &str) -> EnvFilter {
    EnvFilter::new(if level == "info" { "info,async_nats=warn" } else { level })
}

fn refusal(word: &str) -> Failure {
    let levels = LEVELS.join(", ");
    Failure::usage(format!(
        "{VARIABLE} asks for the log level {word:?}; accepted are {levels}, and module=level, separated by commas"
    ))
}

/// Starts logging of the events that pass `filter`.
pub(crate) fn start(format: Format, filter: EnvFilter) {
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A line that cannot be written is dropped. Reporting the error on standard error would fail
    // too, and panic.
    let logs = logs.log_internal_errors(false);
    match format {
        Format::Text => logs.with_ansi(std::io::stderr().is_terminal()).fmt_fields(log_lines::Text).init(),
        Format::Json => logs.event_format(log_lines::Json).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_and_module_log_levels_are_accepted() {
        let shown = |text| parsed(text, "info").map(|filter| filter.to_string()).ok();
        assert_eq!(shown(""), Some("async_nats=warn,info".to_owned()));
        assert_eq!(shown("DEBUG"), Some("debug".to_owned()));
        assert_eq!(shown("warn,sherwood_node=trace"), Some("sherwood_node=trace,warn".to_owned()));
        assert_eq!(shown("off"), Some("off".to_owned()));
    }

    #[test]
    fn unknown_log_level_is_refused_with_the_known_levels() {
        for (text, word) in [
            ("loud", "\"loud\""),
            ("info,sherwood_node", "\"sherwood_node\""),
            ("sherwood_node=loud", "\"sherwood_node=loud\""),
            ("info,", "\"\""),
            (" ", "\" \""),
        ] {
            let Err(Failure::Usage(message)) = parsed(text, "info") else { panic!("{text:?} was accepted") };
            assert!(message.contains(word) && message.contains("warn, info, debug"), "{message}");
        }
    }
}
