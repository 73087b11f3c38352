//! `sherwood load` against `sherwood serve`, over both protocols: the load's counters match the
//! cache.

use std::process::{Command, Output};

use serde_json::Value;

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
