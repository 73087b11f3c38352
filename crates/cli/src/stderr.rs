//! Lines on standard error that are not subject to log levels.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::log_lines;

/// True if all lines are JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes all later lines JSON: what a node announces, errors and panics.
pub(crate) fn use_json() {
    JSON.store(true, Relaxed);
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// Prints what a node announces.
pub(crate) fn announce(line: impl Display) {
    line_of("INFO", line);
}

/// Prints an error that ends the command.
pub(crate) fn fail(line: impl Display) {
    line_of("ERROR", line);
}

fn line_of(level: &str, line: impl Display) {
    if JSON.load(Relaxed) { say(log_lines::json(level, &line.to_string())) } else { say(line) }
}

/// Prints a line as it is. Errors are ignored, since they could not be reported anyway.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
