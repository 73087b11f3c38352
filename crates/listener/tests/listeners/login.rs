//! Listeners that require a password, on real sockets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sherwood_listener::{Count, ListenerOptions, Protocol};
use tempfile::TempDir;

use crate::asked;
use crate::packaged::{node_program, php_program, ruby_program};
use crate::programs::{client_program, run};
use crate::support::{Server, options};
use crate::wait::eventually;

const PASSWORDS: &str = "alice:open-sesame\ndefault:12345678\n";

/// Creates a file of names and passwords, in a directory that is removed with the test.
fn passwords() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("passwords");
    fs::write(&path, PASSWORDS).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    (directory, path)
}

fn asking(protocol: Protocol, options: ListenerOptions) -> (Server, TempDir) {
    let (directory, path) = passwords();
    (Server::asking(protocol, options, &path), directory)
}

#[test]
fn lines_before_login_are_answered_as_by_memcached() {
    if asked::version().is_none() {
        eprintln!("skipped: no memcached from 1.6.18 on is installed: apt-get install memcached");
        return;
    }
    let (_directory, path) = passwords();
    let server = Server::asking(Protocol::Memcached, options(), &path);
    // One line per connection, since memcached loses answers to several lines sent together.
    // Versions differ in the length limits.
    for sent in [
        "get a\r\n",
        "mg a v\r\n",
        "version\r\n",
        "set a 0 0\r\n",
        "set a 0 0 x\r\n",
        "add a 0 0 17\r\n",
        "set a 0 0 17\r\nalice open-sesamE\r\n",
        "set a 0 0 17\r\nalice open-sesame\r\n",
        "set a 0 0 17 noreply\r\nalice open-sesame\r\n",
        "set a 0 0 17\r\nalice open-sesame\r\nget a\r\nset b 0 0 1\r\nx\r\nget b\r\n",
        "set a 0 0 3\r\nbob\r\n",
        "set a 0 0 17\r\nalice open-sesame22",
    ] {
        let mut client = server.connect();
        client.send(sent.as_bytes());
        client.finish();
        let file = format!("--auth-file={}", path.display());
        assert_eq!(client.rest(), asked::answer(&[&file], sent), "after {sent:?}");
    }
}

#[test]
fn memcached_client_libraries_log_in_with_a_password() {
    let (server, _directory) = asking(Protocol::Memcached, options());
    let port = server.address().port();
    let text = client_program("pymemcache", "login_pymemcache.py", port);
    let binary = client_program("pylibmc", "login_pylibmc.py", port);
    assert!(
        server.count(Count::AuthErrors) > 0 || !text && !binary,
        "each of them begins with a wrong password"
    );
}

#[test]
fn binary_client_libraries_can_log_in_with_sasl() {
    let (server, _directory) = asking(Protocol::Memcached, options());
    let port = server.address().port();
    let user = ["alice", "open-sesame"];
    let memjs = node_program("memjs.mjs", port, &user);
    assert!(server.count(Count::AuthErrors) > 0 || !memjs, "it ends with a wrong password");
    php_program("session.php", port, &user);
    ruby_program("dalli_.rb", port, &user);
}

#[test]
fn redis_cli_and_redis_py_log_in_with_a_password() {
    let (server, _directory) = asking(Protocol::Redis, options());
    let port = server.address().port().to_string();
    let cli = |args: &[&str]| {
        let output =
            run(Command::new("redis-cli").args(["-p", &port]).args(args), "apt-get install redis-tools");
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if let Some(said) = cli(&["get", "k"]) {
        assert_eq!(said, "NOAUTH Authentication required.");
        assert_eq!(cli(&["-a", "12345678", "--no-auth-warning", "set", "k", "v"]).unwrap(), "OK");
        let user = ["--user", "alice", "--pass", "open-sesame", "--no-auth-warning", "-3", "get", "k"];
        assert_eq!(cli(&user).unwrap(), "\"v\"".trim_matches('"'));
    }
    client_program("redis", "login_redis_py.py", server.address().port());
}

#[test]
fn client_that_does_not_log_in_is_closed_after_the_login_timeout() {
    let quick = ListenerOptions { login_timeout: Duration::from_millis(20), ..options() };
    for (protocol, login, answer, ask, told) in [
        (Protocol::Memcached, "set a 0 0 17\r\nalice open-sesame\r\n", "STORED\r\n", "mn\r\n", "MN\r\n"),
        (Protocol::Redis, "AUTH 12345678\r\n", "+OK\r\n", "PING\r\n", "+PONG\r\n"),
    ] {
        let (server, _directory) = asking(protocol, quick.clone());
        let mut inside = server.connect();
        inside.check(login, answer);
        let mut silent = server.connect();
        let mut slow = server.connect();
        // Occasional bytes do not extend the timeout.
        eventually("who drips is closed on", || slow.try_send(b"g").is_err());
        assert_eq!(silent.rest_until_closed(), "");
        inside.check(ask, told);
        assert_eq!(server.connections(), 1);
        assert_eq!(server.count(Count::IdleKicks), 2);
    }
}
