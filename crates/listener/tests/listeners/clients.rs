//! Third-party clients of memcached and Redis, run against the listeners.
//!
//! `programs` decides what happens if a test's client is not installed.

use std::process::Command;

use sherwood_listener::ListenerOptions;

use crate::packaged::{node_program, php_program, ruby_program};
use crate::programs::{client_program, client_program_as, run};
use crate::support::{Server, options};

#[test]
fn memccapable_passes_its_ascii_tests_against_the_memcached_listener() {
    memccapable_passes("-a");
}

#[test]
fn memccapable_passes_its_binary_tests_against_the_memcached_listener() {
    if let Some(said) = memccapable_passes("-b") {
        assert_eq!(said.matches("[pass]").count(), 27, "{said}");
    }
}

/// Runs the tests of the program `memccapable` for one of memcached's protocols: `-a` for text,
/// `-b` for binary. Returns its output; none if it is not installed.
#[track_caller]
fn memccapable_passes(protocol: &str) -> Option<String> {
    let server = Server::start(options());
    let port = server.address().port().to_string();
    let output = run(
        Command::new("memccapable").args([protocol, "-h", "127.0.0.1", "-p", &port]),
        "apt-get install libmemcached-tools",
    )?;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("All tests passed"), "{said}{complained}");
    Some(said.into_owned())
}

#[test]
fn pymemcache_program_passes_against_the_memcached_listener() {
    let server = Server::start(options());
    client_program("pymemcache", "pymemcache_.py", server.address().port());
}

#[test]
fn pylibmc_program_passes_against_the_memcached_listener() {
    let server = Server::start(options());
    client_program("pylibmc", "pylibmc_.py", server.address().port());
}

#[test]
fn pylibmc_client_program_passes_with_the_binary_protocol() {
    let server = Server::start(options());
    client_program_as("pylibmc", "pylibmc_.py", server.address().port(), &["binary"]);
}

#[test]
fn php_sessions_stored_by_the_packaged_memcached_extension_are_read_back() {
    let server = Server::start(options());
    php_program("session.php", server.address().port(), &[]);
}

#[test]
fn dalli_client_program_passes_against_the_memcached_listener() {
    let server = Server::start(options());
    ruby_program("dalli_.rb", server.address().port(), &[]);
}

#[test]
fn memjs_client_program_passes_against_the_memcached_listener() {
    let server = Server::start(options());
    node_program("memjs.mjs", server.address().port(), &[]);
}

#[test]
fn redis_py_program_passes_against_the_redis_listener() {
    let server = Server::redis(options());
    client_program("redis", "redis_py.py", server.address().port());
}

#[test]
fn redis_py_program_with_several_databases_passes_against_the_redis_listener() {
    let server = Server::redis(ListenerOptions { databases: 16, ..options() });
    client_program("redis", "databases_redis_py.py", server.address().port());
}

#[test]
fn django_cache_program_passes_against_both_listeners() {
    let (redis, memcached) = (Server::redis(options()), Server::start(options()));
    client_program_as("django", "django_.py", redis.address().port(), &["redis"]);
    client_program_as("django", "django_.py", memcached.address().port(), &["memcached"]);
}

#[test]
fn redis_cli_and_redis_benchmark_work_against_the_redis_listener() {
    let remedy = "apt-get install redis-tools";
    let server = Server::redis(options());
    let port = server.address().port().to_string();
    let cli = |args: &[&str]| run(Command::new("redis-cli").args(["-p", &port]).args(args), remedy);
    let Some(set) = cli(&["set", "k", "v", "ex", "100"]) else { return };
    assert_eq!(String::from_utf8_lossy(&set.stdout).trim(), "OK");
    let info = cli(&["-3", "info"]).expect("it was there a moment ago");
    assert!(String::from_utf8_lossy(&info.stdout).contains("redis_version"), "{info:?}");
    let Some(bench) = run(
        Command::new("redis-benchmark").args([
            "-p",
            &port,
            "-n",
            "1000",
            "-c",
            "8",
            "-P",
            "4",
            "-q",
            "-t",
            "ping,set,get,incr,mset",
        ]),
        remedy,
    ) else {
        return;
    };
    let said = String::from_utf8_lossy(&bench.stdout);
    assert!(bench.status.success() && said.contains("MSET (10 keys)"), "{said}");
}
