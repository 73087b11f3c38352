//! External programs that tests need.
//!
//! A test whose program is not installed is skipped, except in continuous integration (`CI` is
//! set), where it fails with the package to install.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::missing::missing;

/// Runs a program of `tests/conformance/python` that connects to the listener at `port` with this
/// library. Returns false if it was skipped.
#[track_caller]
pub(crate) fn client_program(library: &str, name: &str, port: u16) -> bool {
    client_program_as(library, name, port, &[])
}

/// Runs a program like [`client_program`], with further arguments: often a user and a password to
/// log in with.
#[track_caller]
pub(crate) fn client_program_as(library: &str, name: &str, port: u16, further: &[&str]) -> bool {
    let remedy =
        "python3 -m venv target/venv && target/venv/bin/pip install -r scripts/python-requirements.txt";
    let python = python();
    let import = format!("import {library}");
    let Some(found) = run(Command::new(&python).args(["-c", &import]), remedy) else { return false };
    if !found.status.success() {
        missing(library, remedy);
        return false;
    }
    // -B: writes no bytecode beside the sources.
    ask(Command::new(&python).arg("-B").arg(conformance().join("python").join(name)), port, further);
    true
}

/// The folder of the client programs, `tests/conformance`.
pub(crate) fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

/// Runs a program with the listener's address and `further` arguments, and checks that each of its
/// lines says `ok`.
#[track_caller]
pub(crate) fn ask(program: &mut Command, port: u16, further: &[&str]) {
    let output = program.args(["127.0.0.1", &port.to_string()]).args(further).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok")).collect();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && wrong.is_empty() && !said.is_empty(), "{wrong:#?}\n{complaint}");
}

/// The Python that `make` prepares, or the system's.
pub(crate) fn python() -> PathBuf {
    let prepared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/venv/bin/python");
    let own = std::env::var_os("SHERWOOD_PYTHON").map_or_else(|| PathBuf::from(prepared), PathBuf::from);
    if own.exists() { own } else { PathBuf::from("python3") }
}

/// Runs a program and returns its output; none if it is not installed.
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
