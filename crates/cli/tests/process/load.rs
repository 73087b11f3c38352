//! `sherwood load` against `sherwood serve`, over both protocols: the load's counters match the
//! cache.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::Server;

fn node() -> Server {
    Server::start(&[
        "--memory",
        "64MiB",
        "--memcached",
        "127.0.0.1:0",
        "--redis",
        "127.0.0.1:0",
        "--admin",
        "off",
    ])
}

/// Runs `sherwood load` against the node with these options.
fn load(node: &Server, protocol: &str, options: &str) -> Output {
    let target = format!("{protocol}://{}", node.address(protocol));
    Command::new(env!("CARGO_BIN_EXE_sherwood"))
        .args(["load", "--json", "--target", &target])
        .args(options.split_whitespace())
        .output()
        .unwrap()
}

/// Runs a load that must succeed and returns its report.
#[track_caller]
fn report(node: &Server, protocol: &str, options: &str) -> Value {
    let output = load(node, protocol, options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn counts<const N: usize>(report: &Value, fields: [&str; N]) -> [u64; N] {
    fields.map(|field| report[field].as_u64().unwrap())
}

#[test]
fn values_loaded_over_redis_are_found_over_both_protocols() {
    let node = node();
    let gets = "--keys 100 --get-ratio 1 --ops 2000";
    let filled = report(&node, "redis", &format!("{gets} --look-aside"));
    let [ops, hits, misses, sets, errors] = counts(&filled, ["ops", "hits", "misses", "sets", "errors"]);
    assert_eq!((ops, hits + misses, sets, errors), (2_000, 2_000, misses, 0));
    assert!((1..=100).contains(&misses), "each key once: {misses}");
    for protocol in ["redis", "memcached"] {
        let found = report(&node, protocol, &format!("{gets} --connections 4 --pipeline 8"));
        assert_eq!(counts(&found, ["ops", "hits", "misses"]), [2_000, 2_000, 0], "{protocol}");
    }
}

#[test]
fn gets_of_many_keys_over_redis_count_each_key() {
    let node = node();
    report(&node, "redis", "--keys 50 --get-ratio 0 --ops 20");
    let options = "--keys 50 --zipf 0 --get-ratio 0.9 --batch 10 --ops 300 --pipeline 4 --connections 2";
    let report = report(&node, "redis", options);
    let [ops, hits, misses, sets, errors] = counts(&report, ["ops", "hits", "misses", "sets", "errors"]);
    assert_eq!((hits + misses, errors), ((ops - sets) * 10, 0));
    assert!(hits > 0 && misses > 0 && sets > 0, "{report}");
}

#[test]
fn values_of_each_distribution_of_sizes_are_set_and_found() {
    let node = node();
    // A seed draws the same keys for gets as for sets.
    let operations = "--keys 100 --zipf 0 --ops 300 --pipeline 4";
    let sizes = ["64KiB", "uniform:0-100000", "lognormal:1100,1.8,900KiB", "choice:20,5000,100KiB"];
    for (sizes, protocol) in sizes.into_iter().zip(["memcached", "redis", "memcached", "redis"]) {
        let set = report(&node, protocol, &format!("{operations} --get-ratio 0 --value-size {sizes}"));
        assert_eq!(counts(&set, ["ops", "sets", "errors"]), [300, 300, 0], "{sizes}");
        let found = report(&node, protocol, &format!("{operations} --get-ratio 1"));
        assert_eq!(counts(&found, ["hits", "misses", "errors"]), [300, 0, 0], "{sizes}");
    }
}

#[test]
fn refusals_of_the_redis_listener_are_counted_and_quoted() {
    let output = load(&node(), "redis", "--value-size 2000000 --get-ratio 0 --ops 5 --pipeline 2");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counts(&report, ["ops", "errors", "sets"]), [5, 5, 0]);
    assert_eq!(report["complete"], true);
    let refusal = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert!(report["first_error"].as_str().unwrap().contains(refusal), "{report}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(refusal) && said.contains("every operation failed: 5 were refused"), "{said}");
}

/// A node whose ports all need TLS and a password or a token.
const SECURE: &str = r#"
[memory]
total = "64MiB"
[admin]
bind = "127.0.0.1:0"
tls = { cert = "HERE/cert.pem", key = "HERE/key.pem" }
token_file = "HERE/tokens"
[[backend]]
name = "stock"
store = { kind = "synthetic", bytes = "8B", latency = "0s" }
[[listener]]
protocol = "memcached"
bind = "127.0.0.1:0"
tls = { cert = "HERE/cert.pem", key = "HERE/key.pem" }
auth_file = "HERE/users"
backend = "stock"
[[listener]]
protocol = "redis"
bind = "127.0.0.1:0"
tls = { cert = "HERE/cert.pem", key = "HERE/key.pem" }
auth_file = "HERE/users"
backend = "stock"
"#;

/// Starts a node with this configuration, in which `HERE` is the directory of its files.
fn node_with(config: &str) -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (name, text) in [
        ("cert.pem", certified.cert.pem()),
        ("key.pem", certified.signing_key.serialize_pem()),
        ("users", "ann:first password\nbob:second password\n".to_owned()),
        ("tokens", "a-token-that-is-long-enough-for-a-node\n".to_owned()),
        ("sherwood.toml", config.replace("HERE", here.to_str().unwrap())),
    ] {
        fs::write(here.join(name), text).unwrap();
        fs::set_permissions(here.join(name), Permissions::from_mode(0o600)).unwrap();
    }
    let server = Server::start(&["--config", here.join("sherwood.toml").to_str().unwrap()]);
    (server, directory)
}

/// Runs `sherwood load` with these options, in which `HERE` is a directory.
fn load_with(here: &Path, target: &str, options: &str) -> Output {
    let options = options.replace("HERE", here.to_str().unwrap());
    Command::new(env!("CARGO_BIN_EXE_sherwood"))
        .args(["load", "--json", "--target", target])
        .args(options.split_whitespace())
        .output()
        .unwrap()
}

#[test]
fn load_over_tls_with_passwords_and_tokens_reaches_every_port() {
    let (node, directory) = node_with(SECURE);
    let here = directory.path();
    let port = |name: &str| node.address(name).rsplit_once(':').unwrap().1.to_owned();
    let caches = "--ca HERE/cert.pem --password-file HERE/users --keys 50 --look-aside --ops 500 \
                  --connections 3 --pipeline 8 --value-size 20000";
    for (scheme, protocol, user) in [
        ("memcacheds", "memcached", ""),
        ("memcacheds-binary", "memcached", "--user bob"),
        ("rediss", "redis", "--user bob"),
    ] {
        let target = format!("{scheme}://localhost:{}", port(protocol));
        let output = load_with(here, &target, &format!("{caches} {user}"));
        assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counts(&report, ["ops", "errors"]), [500, 0], "{target}");
        assert!(report["hits"].as_u64() > Some(0), "{report}");
    }
    let gateway = format!("https://localhost:{}", port("admin"));
    let options = "--ca HERE/cert.pem --token-file HERE/tokens --backend stock --keys 50 --ops 100";
    let output = load_with(here, &gateway, options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counts(&report, ["ops", "errors", "not_found"]), [100, 0, 0]);
}

#[test]
fn load_that_does_not_trust_the_target_or_has_no_login_says_so() {
    let (node, directory) = node_with(SECURE);
    let (here, redis) = (directory.path(), node.address("redis"));
    let target = format!("rediss://localhost:{}", redis.rsplit_once(':').unwrap().1);
    let refused = |options: &str, part: &str| {
        let output = load_with(here, &target, &format!("{options} --ops 5"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(part), "{options}: {said}");
    };
    fs::write(here.join("others"), "ann:a wrong password\n").unwrap();
    fs::write(here.join("other.pem"), rcgen::generate_simple_self_signed([]).unwrap().cert.pem()).unwrap();
    refused(
        "--ca HERE/other.pem --password-file HERE/users",
        "trust the authority of the target's certificate",
    );
    refused("--ca HERE/cert.pem --password-file HERE/others", "logging in as \"ann\"");
    refused("--ca HERE/cert.pem", "NOAUTH");
}

#[test]
fn load_that_finds_nothing_names_its_keys_and_the_remedy() {
    let node = node();
    let keys = tempfile::NamedTempFile::new().unwrap();
    fs::write(keys.path(), "first\nsecond\n").unwrap();
    let options = format!("--get-ratio 1 --ops 20 --keys-from {}", keys.path().display());
    let output = load(&node, "redis", &options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all 20 gets missed, such as first, second;"), "{said}");
    let filled = report(&node, "redis", &format!("{options} --look-aside"));
    assert_eq!(counts(&filled, ["ops", "misses", "sets"]), [20, 2, 2]);
}

/// Serves the values of the keys 1 to 9 over HTTP, until the process ends.
fn items() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || item(stream.unwrap()));
        }
    });
    address
}

/// Answers one request.
fn item(mut stream: TcpStream) {
    let mut request = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = request.next() else { return };
    let key = first.strip_prefix("GET /").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
    let known = key.and_then(|key| key.parse().ok()).is_some_and(|number| (1..10).contains(&number));
    let status = if known { "200 OK" } else { "404 Not Found" };
    request.take_while(|line| !line.is_empty()).for_each(drop);
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    stream.write_all(answer.as_bytes()).unwrap();
}

#[test]
fn backend_with_numbers_as_keys_is_asked_for_numbers() {
    let config = format!(
        "[admin]\nbind = \"127.0.0.1:0\"\n[[backend]]\nname = \"items\"\n\
         store = {{ kind = \"http\", url = \"http://{}/{{key}}\" }}\n",
        items()
    );
    let (node, directory) = node_with(&config);
    let target = format!("http://{}", node.address("admin"));
    let output = load_with(directory.path(), &target, "--backend items --keys 9 --ops 50");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counts(&report, ["ops", "hits", "not_found", "failed_keys"]), [50, 50, 0, 0], "{report}");
    let output = load_with(directory.path(), &target, "--backend items --key-format n{n} --ops 20");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nothing was found") && said.contains(", such as n1, n2, n3; ask"), "{said}");
}
