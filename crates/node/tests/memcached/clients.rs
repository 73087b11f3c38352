//! Clients that others wrote, against the memcached listener.
//!
//! What becomes of a test whose client is not installed is in `programs`.

use std::process::Command;

use crate::programs::{check_script, run};
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
    check_script("pymemcache_smoke.py", "pymemcache", server.address().port());
}
