//! `sherwood serve` and `sherwood check-config` as processes: refusals, output and exit statuses.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;

use crate::support::{Program, Server, TIMEOUT};

/// Runs a command that ends by itself; returns its standard error and its exit status.
fn refusal(args: &[&str]) -> (String, i32) {
    refusal_of(Command::cargo_bin("sherwood").unwrap().args(args))
}

fn refusal_of(command: &mut Command) -> (String, i32) {
    let output = command.timeout(TIMEOUT).output().unwrap();
    assert_eq!(output.stdout, b"", "refusals go to standard error");
    (String::from_utf8(output.stderr).unwrap(), output.status.code().expect("it ended by itself"))
}

/// Sends text and reads as many bytes as expected.
#[track_caller]
fn talk(address: &str, sent: &str, expected: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(sent.as_bytes()).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

fn file(directory: &Path, text: &str) -> String {
    let path = directory.join("sherwood.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn invalid_configuration_is_refused_before_binding() {
    let directory = tempfile::tempdir().unwrap();
    // Binding the occupied port would fail with another error.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = format!("bind = \"{}\"", taken.local_addr().unwrap());
    let store = directory.path().join("kv");
    let backend = format!("[[backend]]\nname = \"a\"\nstore = {{ kind = \"kv\", path = {store:?} }}");
    let cases = [
        ("[memory]\ntotal = 0", ":2:9: [memory] total is 0 bytes", "set total = \"1GiB\""),
        ("[memory]\nsize = \"1GiB\"", ":2:1: ", "unknown"),
        ("[control]\npolicy = \"robin\"", ":2:10: ", "robinhood"),
        ("[control]\npolicy = \"offline_opt\"", ":2:10: ", "robinhood"),
        ("[control]\npolicy = \"bubble_wrap\"", ":2:10: ", "robinhood"),
        (
            "[[listener]]\nbind = \"127.0.0.1:4\"\n[[listener]]\nbind = \"127.0.0.1:4\"",
            ":4:8: ",
            "change the port",
        ),
        ("[[listener]]\nprotocol = \"http\"\nbind = \"127.0.0.1:4\"", ":2:12: ", "memcached"),
        ("[admin]\nbind = \"0.0.0.0:8080\"", ":2:8: ", "loopback"),
        (
            "[memory]\ntotal = \"64MiB\"\n[[partition]]\nbackend = \"a\"\nmin = \"65MiB\"\n[[backend]]\nname = \"a\"",
            ":5:7: ",
            "64MiB",
        ),
    ];
    for (text, place, part) in cases {
        let text =
            if text.contains("bind") { text.to_owned() } else { format!("{text}\n[[listener]]\n{bind}") };
        let text = if text.contains("[[backend]]") { text } else { format!("{text}\n{backend}") };
        let path = file(directory.path(), &text);
        for command in [&["serve", "--config", &path][..], &["check-config", &path]] {
            let (said, status) = refusal(command);
            assert_eq!(status, 2, "{said}");
            assert!(
                said.contains(&format!("{path}{place}")) && said.contains(part),
                "{place}{part} in {said}"
            );
        }
    }
    assert!(!store.exists(), "a store was opened for a configuration that is refused");
}

#[test]
fn invalid_flags_of_serve_are_refused() {
    for (args, part) in [
        (&["--eviction", "sieve"][..], "--eviction"),
        (&["--policy", "hare"], "--policy"),
        (&["--policy", "offline_opt"], "--policy"),
        (&["--memory", "1Gb"], "--memory"),
        (&["--memory", "0"], "--memory"),
        (&["--redis", "0.0.0.0:6379"], "--redis"),
        (&["--unix-socket", ""], "--unix-socket"),
        (&["--memcached", "0.0.0.0:11211"], "loopback"),
        (&["--admin", "off"], "nothing to listen on"),
        (&["--threads", "0"], "--threads"),
        (&["--max-connections", "0"], "--max-connections"),
        (&["--config", "/nonexistent/sherwood.toml"], "/nonexistent/sherwood.toml"),
    ] {
        let (said, status) = refusal(&[&["serve"], args].concat());
        assert!(status == 2 && said.contains(part), "{args:?}: {status} {said}");
    }
    let (said, status) = refusal(&["check-config"]);
    assert!(status == 2 && said.contains("FILE"), "{said}");
}

#[test]
fn unknown_log_level_is_refused_with_the_known_ones() {
    for command in ["serve", "demo"] {
        let (said, status) =
            refusal_of(Command::cargo_bin("sherwood").unwrap().arg(command).env("SHERWOOD_LOG", "verbose"));
        assert_eq!(status, 2);
        assert!(
            said.contains("SHERWOOD_LOG") && said.contains("off, error, warn, info, debug, trace"),
            "{said}"
        );
    }
}

#[test]
fn valid_configuration_is_reported_with_its_memory() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sherwood.example.toml");
    let output = Command::cargo_bin("sherwood").unwrap().args(["check-config", example]).assert().success();
    let said = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], format!("{example} is valid"));
    assert_eq!(lines[1], "memory: 1GiB for the cache + 12MiB for 8 embedded stores = 1036MiB");
    assert!(lines[2].starts_with("buffers: at most ") && lines.len() == 4, "{said}");
    assert!(
        lines[3].starts_with("not looked at: ") && lines[3].contains("`sherwood backend check`"),
        "{said}"
    );
}

#[test]
fn start_says_memory_backends_sources_of_requests_and_addresses() {
    let server =
        Server::start(&["--memory", "32MiB", "--memcached", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let (cache, admin) = (server.address("memcached"), server.address("admin"));
    // How listeners receive and send depends on the system.
    let (io, said): (Vec<_>, Vec<_>) =
        server.said.iter().cloned().partition(|line| line.contains("INFO listeners use "));
    assert_eq!(io.len(), 1, "{io:?}");
    assert_eq!(
        said,
        [
            "memory: 32MiB for the cache".to_owned(),
            "backends: none, a plain cache".to_owned(),
            "requests: from the gateway, reports and traces, else from batches of listeners' clients"
                .to_owned(),
            format!("dashboard: http://{admin}/"),
            format!("ready memcached={cache} admin=http://{admin}"),
        ]
    );
}

#[test]
fn occupied_port_is_named_and_exits_with_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for args in [
        ["--admin", &address, "--memcached", "127.0.0.1:0"],
        ["--admin", "127.0.0.1:0", "--memcached", &address],
    ] {
        let (said, status) = refusal(&[&["serve"][..], &args].concat());
        assert_eq!(status, 1, "{said}");
        assert!(said.contains(&address) && !said.contains("\nready"), "{said}");
    }
}

#[test]
fn ready_line_follows_all_listeners_and_sigterm_exits_with_0() {
    let server = Server::start(&["--memcached", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--threads", "2"]);
    assert!(server.said.iter().any(|line| line == "memory: 64MiB for the cache"), "{:?}", server.said);
    let (memcached, admin) = (server.address("memcached"), server.address("admin"));
    talk(&memcached, "set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    talk(&admin, "GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    server.signal(libc::SIGTERM);
    let (status, rest) = server.end();
    assert_eq!(status.code(), Some(0), "{rest}");
    assert!(!rest.contains("ready"), "{rest}");
    for address in [memcached, admin] {
        assert!(TcpStream::connect(&address).is_err(), "nobody listens on {address} any more");
    }
}

#[test]
fn node_without_listeners_runs() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sherwood.example.toml");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_sherwood"));
    let checked =
        check.args(["check-config", example]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((checked.status.code(), String::from_utf8_lossy(&checked.stderr).as_ref()), (Some(0), ""));

    let mut server = Server::start(&["--memcached", "127.0.0.1:0", "--admin", "off"]);
    server.ignore();
    // The node must still run, so that the signal ends it.
    server.signal(libc::SIGTERM);
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn unix_socket_is_created_replaced_when_stale_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.sock");
    let args = ["--unix-socket", path.to_str().unwrap(), "--admin", "off"];
    let server = Server::start(&args);
    assert_eq!(server.address("memcached"), format!("unix:{}", path.display()));
    let (said, status) = refusal(&[&["serve"], &args[..]].concat());
    assert!(status == 1 && said.contains("somebody listens there"), "{status} {said}");
    server.signal(libc::SIGKILL);
    server.end();
    assert!(path.exists(), "it had no time to clear away");
    let server = Server::start(&args);
    server.signal(libc::SIGTERM);
    assert_eq!(server.end().0.code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn unix_socket_serves_redis() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("redis.sock").display().to_string();
    let text =
        format!("[admin]\nbind = \"off\"\n[[listener]]\nprotocol = \"redis\"\nbind = \"unix:{path}\"\n");
    let server = Server::start(&["--config", &file(directory.path(), &text)]);
    assert_eq!(server.address("redis"), format!("unix:{path}"));
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"CONFIG GET unixsocket\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, format!("*2\r\n$10\r\nunixsocket\r\n${}\r\n{path}\r\n+OK\r\n", path.len()));
}

#[test]
fn sigint_without_admin_api_exits_with_0() {
    let server = Server::start(&["--memcached", "127.0.0.1:0", "--admin", "off"]);
    assert!(!server.said.last().unwrap().contains("admin"));
    server.signal(libc::SIGINT);
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn killed_node_restarts_on_the_same_ports_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let config = |memcached: &str, admin: &str| {
        let (kv, sqlite) = (directory.path().join("kv"), directory.path().join("values.db"));
        let text = format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"{memcached}\"\nbackend = \"kv\"\n\
             [[backend]]\nname = \"kv\"\nstore = {{ kind = \"kv\", path = {kv:?} }}\n\
             [[backend]]\nname = \"sqlite\"\nstore = {{ kind = \"sqlite\", path = {sqlite:?} }}\n"
        );
        file(directory.path(), &text)
    };
    let server = Server::start(&["--config", &config("127.0.0.1:0", "127.0.0.1:0")]);
    let (memcached, admin) = (server.address("memcached"), server.address("admin"));
    talk(&memcached, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    server.signal(libc::SIGKILL);
    assert_eq!(server.end().0.code(), None, "it was killed");
    let server = Server::start(&["--config", &config(&memcached, &admin)]);
    assert_eq!((server.address("memcached"), server.address("admin")), (memcached.clone(), admin));
    talk(&memcached, "get a\r\n", "END\r\n");
}

#[test]
fn every_line_is_json_with_that_log_format() {
    let message = |line: &str| -> String {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        line["fields"]["message"].as_str().expect("a message").to_owned()
    };
    let format = ["--log-format", "json"];
    let listens = ["serve", "--memcached", "127.0.0.1:0", "--admin", "off"];
    let mut node = Program::start(&[&listens[..], &format].concat());
    let said = node.read_until(|line| message(line).starts_with("ready memcached="));
    assert!(said.len() > 2, "{said:?}");
    node.signal(libc::SIGTERM);
    let (status, rest) = node.end();
    assert!(status.success() && rest.lines().any(|line| message(line) == "shutting down"), "{rest}");
    let (status, refused) = Program::start(&[&["serve", "--policy", "best"], &format[..]].concat()).end();
    assert_eq!(status.code(), Some(2));
    assert!(refused.lines().any(|line| message(line).contains("--policy is \"best\"")), "{refused}");
}
