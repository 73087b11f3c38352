//! Clients that others wrote, against the memcached listener.
//!
//! What becomes of a test whose client is not installed is in `programs`.

use std::process::Command;

use crate::programs::{missing, python, run};
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
