//! Clients that others wrote, against the memcached listener.
//!
//! Where a client is not installed its test does nothing, except in continuous integration (`CI` is set): there it fails
//! and says what to install.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::{Server, options};

#[test]
fn memccapable_passes_its_ascii_tests() {
    let server = Server::start(options());
    let port = server.address().port().to_string();
    let Some(output) = run(
        Command::new("memccapable").args(["-a", "-h", "127.0.0.1", "-p", &port]),
        "apt-get install libmemcached-tools",
    ) else {
        return;
    };
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("All tests passed"), "{said}{complained}");
}

#[test]
fn pymemcache_works() {
    let server = Server::start(options());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/pymemcache_smoke.py");
    let remedy = "python3 -m venv target/venv && target/venv/bin/pip install pymemcache";
    let python = python();
    let Some(found) = run(Command::new(&python).args(["-c", "import pymemcache"]), remedy) else { return };
    if !found.status.success() {
        return missing("pymemcache", remedy);
    }
    let port = server.address().port().to_string();
    let output = Command::new(&python).args([script, "127.0.0.1", &port]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        (answer.trim(), output.status.success()),
        ("ok", true),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The Python that `make` prepares, or the system's.
fn python() -> PathBuf {
    let prepared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/venv/bin/python");
    let own = std::env::var_os("SHERWOOD_PYTHON").map_or_else(|| PathBuf::from(prepared), PathBuf::from);
    if own.exists() { own } else { PathBuf::from("python3") }
}

/// What a program says, or nothing when it is not installed.
fn run(command: &mut Command, remedy: &str) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            missing(&command.get_program().to_string_lossy(), remedy);
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

fn missing(program: &str, remedy: &str) {
    assert!(std::env::var_os("CI").is_none(), "{program} is not installed: {remedy}");
    eprintln!("skipped: {program} is not installed: {remedy}");
}
