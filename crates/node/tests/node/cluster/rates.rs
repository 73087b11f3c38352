//! Rates of tenants, lent between nodes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use sherwood_config::{Flags, parse};
use sherwood_node::{Node, ReloadOptions, Setup};

use super::{Bus, cluster};
use crate::support::Http;
use crate::wait::eventually;

const NODES: [&str; 3] = ["a", "b", "c"];
const TOTAL: f64 = 300.0;
/// Reads that a node's tenant sends at the same time.
const CLIENTS: usize = 40;

fn text(bus: &Bus, node: &str, nodes: &[&str]) -> String {
    format!(
        r#"
        [control]
        policy = "static"
        [admin]
        bind = "127.0.0.1:0"
        [cluster]
        name = "test"
        node = "{node}"
        nodes = {nodes:?}
        bus = {{ servers = ["nats://{}"] }}
        [[tenant]]
        name = "default"
        [[tenant]]
        name = "other"
        [[backend]]
        name = "catalog"
        store = {{ kind = "synthetic", bytes = "8B", latency = "0s" }}
        [[resource]]
        name = "catalog-reads"
        kind = "reads"
        backend = "catalog"
        unit = "count"
        total = {TOTAL}
        "#,
        bus.address
    )
}

fn start(bus: &Bus, node: &str) -> Node {
    let config = parse("a.toml", &text(bus, node, &NODES), &Flags::default(), &["static"]);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    Node::start(Setup::from_config(&config).expect("nothing to open")).unwrap()
}

/// Loans of a node's tenant from other nodes: their number, and units per second.
fn borrowed(node: &Node) -> (usize, f64) {
    let loans = cluster(node)["loans"].as_array().cloned().unwrap_or_default();
    assert!(loans.iter().all(|loan| loan["resource"] == json!("catalog-reads")), "{loans:?}");
    (loans.len(), loans.iter().filter_map(|loan| loan["units_per_s"].as_f64()).sum())
}

/// Units per second that a node lends to the tenant of another one.
fn borrowed_of(node: &Node, lender: &str) -> f64 {
    let loans = cluster(node)["loans"].as_array().cloned().unwrap_or_default();
    let of_lender = loans.iter().filter(|loan| loan["node"] == json!(lender));
    of_lender.filter_map(|loan| loan["units_per_s"].as_f64()).sum()
}

/// Ends the reads, also when an assertion fails.
struct EndsReads<'a>(&'a AtomicBool);

impl Drop for EndsReads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Reads keys that are not cached, as fast as the rates allow, while `then` runs.
fn reading<T>(nodes: &[&Node], then: impl FnOnce() -> T) -> T {
    let (ended, keys) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for node in nodes.iter().flat_map(|node| [node; CLIENTS]) {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    let key = keys.fetch_add(1, Relaxed);
                    Http::of(node).key("catalog", &key.to_string());
                }
            });
        }
        let _ended = EndsReads(&ended);
        then()
    })
}

/// Units that the nodes have used.
fn used(nodes: &[&Node]) -> f64 {
    let name = "sherwood_tenant_used_total{tenant=\"default\",resource=\"catalog-reads\"}";
    nodes.iter().map(|node| Http::of(node).metric(name)).sum()
}

#[test]
fn waiting_tenant_borrows_what_the_other_nodes_do_not_use_and_the_total_is_never_exceeded() {
    let bus = Bus::start();
    let nodes = NODES.map(|node| start(&bus, node));
    let [a, b, c] = [&nodes[0], &nodes[1], &nodes[2]];
    // Two thirds of the total, less what each tenant of the lenders keeps.
    let most = TOTAL * 2.0 / 3.0 * 15.0 / 16.0;
    reading(&[a], || {
        eventually("the loans are as large as they can be", || borrowed(a).1 > 0.95 * most);
        let loan = cluster(b)["lent"][0].clone();
        let of = |field: &str| loan[field].clone();
        assert_eq!([of("node"), of("resource"), of("tenant")], ["a", "catalog-reads", "default"]);
        let metric = Http::of(a).metric("sherwood_rate_loans{resource=\"catalog-reads\"}");
        assert!((0.5 * most..=most * 1.001).contains(&metric), "{metric}");
        let (before, start) = (used(&[a, b, c]), Instant::now());
        eventually("some seconds pass", || start.elapsed() > Duration::from_secs(4));
        let (after, passed) = (used(&[a, b, c]), start.elapsed());
        let most = TOTAL * 1.02 * passed.as_secs_f64();
        assert!(after - before <= most, "{} units in {passed:?}, at most {most}", after - before);
    });
    eventually("the loans end with the need", || [a, b, c].iter().all(|node| borrowed(node).0 == 0));
    // Of b's part, one half is of the tenant that waits there, too; the other one's stays lent.
    reading(&[a], || {
        eventually("both lend again", || borrowed(a).1 > 0.95 * most);
        reading(&[b], || eventually("the tenant uses its own at b", || borrowed_of(a, "b") < 0.26 * most));
    });
}

#[test]
fn node_that_is_removed_leaves_its_part_to_the_others() {
    let bus = Bus::start();
    let [a, b] = ["a", "b"].map(|node| start(&bus, node));
    let config = |node: &str, nodes: &[&str]| {
        parse("a.toml", &text(&bus, node, nodes), &Flags::default(), &["static"]).unwrap()
    };
    for (node, name) in [(&a, "a"), (&b, "b")] {
        let (old, new) = (config(name, &NODES), config(name, &["a", "b"]));
        node.reload(&old, &new, ReloadOptions::default()).unwrap();
    }
    // Half of the total, less what each tenant of the lender keeps.
    let most = TOTAL / 2.0 * 15.0 / 16.0;
    reading(&[&a], || {
        eventually("the loan is as large as half of the total allows", || {
            (0.95 * most..=most * 1.001).contains(&borrowed(&a).1)
        });
    });
}
