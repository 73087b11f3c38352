//! Programs that others wrote and that tests need.
//!
//! Where one is not installed its test does nothing, except in continuous integration (`CI` is set): there it fails and
//! says what to install.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The Python that `make` prepares, or the system's.
pub(crate) fn python() -> PathBuf {
    let prepared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/venv/bin/python");
    let own = std::env::var_os("SHERWOOD_PYTHON").map_or_else(|| PathBuf::from(prepared), PathBuf::from);
    if own.exists() { own } else { PathBuf::from("python3") }
}

/// What a program says, or nothing when it is not installed.
pub(crate) fn run(command: &mut Command, remedy: &str) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            missing(&command.get_program().to_string_lossy(), remedy);
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Says that a program is missing, and what brings it.
pub(crate) fn missing(program: &str, remedy: &str) {
    assert!(std::env::var_os("CI").is_none(), "{program} is not installed: {remedy}");
    eprintln!("skipped: {program} is not installed: {remedy}");
}
