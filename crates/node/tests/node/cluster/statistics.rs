//! Statistics of all nodes: one count, two statistics nodes, and a node alone.

use std::time::Duration;

use serde_json::{Value, json};
use sherwood_config::{BusSetup, ClusterSetup};
use sherwood_node::{Node, Setup};

use super::{Bus, cluster, of, store};
use crate::support::{Http, TOTAL, setup};
use crate::wait::eventually;

/// Starts nodes `a`, `b` and `c`.
fn three(bus: &Bus, statistics: &[&str]) -> [Node; 3] {
    let fake = store();
    ["a", "b", "c"].map(|node| {
        let mut setup = of(node, &["a", "b", "c"], bus, &fake);
        let cluster = setup.cluster.as_mut().expect("it is a node of a cluster");
        cluster.statistics = statistics.iter().map(|name| (*name).to_owned()).collect();
        Node::start(setup).unwrap()
    })
}

/// Reports requests of the only backend to a node.
fn report_some(node: &Node, requests: usize) {
    let reports: Vec<_> =
        (1..=requests).map(|i| json!({"latency_us": 10 * i, "blocking": "catalog"})).collect();
    assert_eq!(Http::of(node).ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
}

fn blocked(node: &Node) -> Value {
    let rbc = Http::of(node).get("/v1/rbc");
    json!([rbc["counts"]["catalog"], rbc["nodes"]])
}

/// Waits until each of the nodes counts so many requests of the band, a hundredth of all, of these
/// nodes.
fn agree(nodes: &[&Node], counts: u64, of: &[&str]) {
    for node in nodes {
        eventually("the nodes count alike", || blocked(node) == json!([counts, of]));
    }
}

fn follows(node: &Node, from: Option<&str>) {
    eventually("the node follows it", || cluster(node)["statistics"]["from"] == json!(from));
}

#[test]
fn requests_reported_to_any_node_count_on_all() {
    let bus = Bus::start();
    let [a, b, c] = three(&bus, &[]);
    agree(&[&a, &b, &c], 0, &["a", "b", "c"]);
    report_some(&a, 1_000);
    report_some(&c, 5_000);
    agree(&[&a, &b, &c], 60, &["a", "b", "c"]);
    follows(&b, Some("b"));
    drop(a);
    agree(&[&b, &c], 60, &["b", "c"]);
}

#[test]
fn nodes_follow_the_next_statistics_node_when_one_stops_and_then_decide_alone() {
    let bus = Bus::start();
    let [a, b, c] = three(&bus, &["b", "a"]);
    for node in [&a, &b, &c] {
        follows(node, Some("b"));
    }
    assert!(cluster(&c)["statistics"]["age_s"].as_f64() < Some(5.0));
    report_some(&c, 1_000);
    agree(&[&a, &b, &c], 10, &["a", "b", "c"]);
    drop(b);
    for node in [&a, &c] {
        follows(node, Some("a"));
    }
    agree(&[&a, &c], 10, &["a", "c"]);
    drop(a);
    follows(&c, None);
    assert_eq!(blocked(&c), json!([10, ["c"]]), "its own");
}

fn alone(statistics: &[&str]) -> Setup {
    let nodes = vec!["n1".to_owned(), "n2".to_owned()];
    let server = "nats://127.0.0.1:1".parse().expect("a URL of a server that does not exist");
    let cluster = ClusterSetup {
        name: "shop".to_owned(),
        node: nodes[0].clone(),
        nodes,
        weights: vec![0.5; 2],
        statistics: statistics.iter().map(|name| (*name).to_owned()).collect(),
        bus: BusSetup { servers: vec![server], credentials: None, tls: None },
    };
    let mut setup = setup(vec![("a", vec![]), ("b", vec![])]);
    setup.policy = "robinhood".to_owned();
    setup.cluster = Some(cluster);
    setup
}

/// Reports a thousand requests of which the slowest 3% were blocked by `b`.
fn report(http: Http) {
    let report = |i: u64| json!({"latency_us": 1_000 + 10 * i, "blocking": if i < 970 { "a" } else { "b" }});
    let reports: Vec<Value> = (0..1_000).map(report).collect();
    assert_eq!(http.ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
}

fn allocated_to_b(http: Http) -> u64 {
    http.get("/v1/partitions")[1]["allocated_bytes"].as_u64().expect("it is a number")
}

#[test]
fn requests_of_a_node_count_once_they_are_published_and_decisions_use_them() {
    let node = Node::start(alone(&[])).unwrap();
    let http = Http::of(&node);
    report(http);
    let counts = json!({"a": 0, "b": 10});
    let mut rbc = Value::Null;
    eventually("the requests are published", || {
        rbc = http.get("/v1/rbc");
        rbc["counts"] == counts
    });
    assert_eq!(
        rbc,
        json!({"window_s": 60.0, "reached_s": 60.0, "band": [0.985, 0.995], "counts": counts, "nodes": ["n1"]})
    );
    assert_eq!(http.ask("PUT", "/v1/control", &json!({"policy": "robinhood"}).to_string()).status, 200);
    assert!(allocated_to_b(http) > TOTAL / 2);
}

#[test]
fn node_that_hears_no_statistics_node_decides_on_its_own_requests_and_says_so() {
    let mut setup = alone(&["n2"]);
    setup.control.delta = Duration::from_millis(100);
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    report(http);
    let rbc = http.get("/v1/rbc");
    assert_eq!((&rbc["counts"], &rbc["nodes"]), (&json!({"a": 0, "b": 10}), &json!(["n1"])));
    eventually("it decides", || allocated_to_b(http) > TOTAL / 2);
    eventually("it says so", || {
        node.events()
            .iter()
            .any(|event| event.message.starts_with("decisions use this node's requests alone"))
    });
}
