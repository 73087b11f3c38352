//! Statistics of a node that is one of several.

use serde_json::{Value, json};
use sherwood_config::{BusSetup, ClusterSetup};
use sherwood_node::{Node, Setup};

use crate::support::{Http, TOTAL, setup};
use crate::wait::eventually;

fn clustered(statistics: &[&str]) -> Setup {
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
    let node = Node::start(clustered(&[])).unwrap();
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
    let mut setup = clustered(&["n2"]);
    setup.control.delta = std::time::Duration::from_millis(100);
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
