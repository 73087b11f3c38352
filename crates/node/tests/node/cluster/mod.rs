//! Nodes of a cluster with a real NATS server, in front of one store.

mod bus;
mod clients;
mod rates;
mod statistics;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_config::{BusSetup, ClusterSetup};
use sherwood_node::{Node, Rules, Setup};
use sherwood_path::{SharedTerms, WithoutBus};
use sherwood_store::Store;

use crate::support::{Fake, Http, setup};
use crate::wait::eventually;
pub(crate) use bus::Bus;

const STALE: Duration = Duration::from_millis(800);

/// The setup of a node of the cluster `test` with these nodes, and a store that all of them share.
pub(crate) fn of(node: &str, nodes: &[&str], bus: &Bus, fake: &Arc<Fake>) -> Setup {
    let mut setup = setup(vec![("catalog", vec![Arc::clone(fake) as Arc<dyn Store>])]);
    let nodes: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
    setup.cluster = Some(ClusterSetup {
        name: "test".to_owned(),
        node: node.to_owned(),
        weights: vec![1.0 / nodes.len() as f64; nodes.len()],
        nodes,
        statistics: Vec::new(),
        bus: BusSetup {
            servers: vec![format!("nats://{}", bus.address).parse().unwrap()],
            credentials: None,
            tls: None,
        },
    });
    setup.backends[0].shared = Some(SharedTerms { stale: STALE, without_bus: WithoutBus::Bounded });
    setup.backends[0].rules = Rules { keep_stale: Duration::from_secs(60), ..Rules::default() };
    setup.partitions.iter_mut().for_each(|partition| partition.initial_bytes = None);
    setup
}

fn start(node: &str, nodes: &[&str], bus: &Bus, fake: &Arc<Fake>) -> Node {
    Node::start(of(node, nodes, bus, fake)).unwrap()
}

/// Waits until every node trusts its values and acknowledges writes.
fn settled(nodes: &[&Node]) {
    for node in nodes {
        let http = Http::of(node);
        eventually("the nodes know each other", || {
            let shared = &http.get("/v1/cluster")["shared"][0];
            shared["writes_in_s"] == json!(0.0) && shared["trusted_s"].as_f64() > Some(0.0)
        });
    }
}

fn store() -> Arc<Fake> {
    Fake::new([("a", &b"old"[..]), ("b", b"old"), ("tag:1", b"old")])
}

fn read(node: &Node, key: &str) -> (String, String) {
    let answer = Http::of(node).key("catalog", key);
    let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("value"))
}

fn pair(status: &str, value: &str) -> (String, String) {
    (status.to_owned(), value.to_owned())
}

fn put(node: &Node, key: &str, value: &str) -> u16 {
    Http::of(node).ask("PUT", &format!("/v1/keys/catalog/{key}"), value).status
}

fn cluster(node: &Node) -> Value {
    Http::of(node).get("/v1/cluster")
}

#[test]
fn write_through_one_node_is_soon_read_through_the_other() {
    let (bus, fake) = (Bus::start(), store());
    let (a, b) = (start("a", &["a", "b"], &bus, &fake), start("b", &["a", "b"], &bus, &fake));
    settled(&[&a, &b]);
    assert_eq!(read(&b, "a"), pair("miss", "old"));
    assert_eq!(read(&b, "a"), pair("hit", "old"));
    assert_eq!(put(&a, "a", "new"), 204);
    eventually("the change has arrived", || read(&b, "a").1 == "new");
    assert_eq!(read(&b, "a"), pair("hit", "new"));
    assert_eq!(read(&a, "a"), pair("hit", "new"));
    // Removals by name, prefix and tag, and a delete.
    for body in [
        r#"{"backend": "catalog", "keys": ["a"]}"#,
        r#"{"backend": "catalog", "prefix": "a"}"#,
        r#"{"backend": "catalog", "tag": "unknown"}"#,
    ] {
        fake.put("a", "behind");
        if body.contains("tag") {
            // Only an absent value matches every tag.
            assert_eq!(read(&b, "none"), pair("not_found", ""));
        }
        assert_eq!(Http::of(&a).ask("POST", "/v1/invalidate", body).status, 200, "{body}");
        if !body.contains("tag") {
            eventually("the values are dropped", || read(&b, "a") == pair("hit", "behind"));
            assert_eq!(put(&a, "a", "again"), 204);
            eventually("the change has arrived", || read(&b, "a").1 == "again");
        }
    }
    assert_eq!(Http::of(&a).ask("DELETE", "/v1/keys/catalog/a", "").status, 204);
    eventually("the delete has arrived", || read(&b, "a").0 == "not_found");
}

#[test]
fn values_are_fetched_again_while_the_bus_is_away_and_hits_afterwards() {
    let (mut bus, fake) = (Bus::start(), store());
    let (a, b) = (start("a", &["a", "b"], &bus, &fake), start("b", &["a", "b"], &bus, &fake));
    settled(&[&a, &b]);
    assert_eq!(read(&b, "a"), pair("miss", "old"));
    bus.kill();
    assert_eq!(put(&a, "a", "new"), 204, "the peers know this process");
    eventually("the value is not trusted any more", || read(&b, "a").1 == "new");
    assert!(Http::of(&b).metric(r#"sherwood_shared_untrusted_total{backend="catalog"}"#) >= 1.0);
    bus.restart();
    settled(&[&a, &b]);
    assert_eq!(read(&b, "a").1, "new");
    eventually("what was missed was sent again", || read(&b, "a") == pair("hit", "new"));
    assert!(cluster(&b)["peers"][0]["seen_s"].as_f64() < Some(5.0));
}

#[test]
fn node_that_stopped_is_relied_on_and_its_successor_waits_for_an_answer() {
    let (bus, fake) = (Bus::start(), store());
    let (a, b) = (start("a", &["a", "b"], &bus, &fake), start("b", &["a", "b"], &bus, &fake));
    settled(&[&a, &b]);
    assert_eq!(read(&b, "a"), pair("miss", "old"));
    let before = cluster(&b)["peers"][0]["incarnation"].as_u64().unwrap();
    a.stop();
    eventually("the farewell has arrived", || cluster(&b)["peers"][0]["trusted_s"].as_f64() > Some(30.0));
    assert_eq!(read(&b, "a"), pair("hit", "old"));
    let a = start("a", &["a", "b"], &bus, &fake);
    settled(&[&a, &b]);
    assert!(cluster(&b)["peers"][0]["incarnation"].as_u64().unwrap() > before);
    assert_eq!(read(&b, "a"), pair("hit", "old"), "nothing was dropped");
    assert_eq!(put(&a, "a", "new"), 204);
    eventually("the change has arrived", || read(&b, "a").1 == "new");
}

#[test]
fn writes_are_refused_while_a_peer_is_not_heard_or_does_not_name_this_node() {
    let (bus, fake) = (Bus::start(), store());
    let a = start("a", &["a", "b"], &bus, &fake);
    let refused = Http::of(&a).ask("PUT", "/v1/keys/catalog/a", "new");
    let error = refused.refusal(503);
    assert!(error.contains("do not know this process yet") && error.contains("write again in"), "{error}");
    assert_eq!(refused.json()["outcome"], "not_done");
    assert_eq!(fake.value("a").unwrap(), "old");
    let b = start("b", &["b"], &bus, &fake);
    eventually("the node hears that it is not named", || {
        cluster(&a)["peers"][0]["lacks_us"] == json!(true)
            && cluster(&a)["shared"][0]["writes_in_s"].is_null()
    });
    let error = Http::of(&a).ask("PUT", "/v1/keys/catalog/a", "new").refusal(503);
    assert!(error.contains("when the `nodes` of each of them name this node"), "{error}");
    assert!(b.events().iter().any(|event| event.message.contains("`a` are ignored")), "{:?}", b.events());
}

#[test]
fn messages_of_others_are_counted_and_ignored() {
    let (bus, fake) = (Bus::start(), store());
    let node = start("a", &["a", "b"], &bus, &fake);
    let http = Http::of(&node);
    let connected = || http.metric(r#"sherwood_bus_messages_total{direction="sent"}"#) >= 1.0;
    eventually("the node is connected and has subscribed", connected);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(bus.address.to_string()).await.unwrap();
        for (subject, payload) in [
            ("sherwood.v1.test.changes.b", b"\xff\xff".to_vec()),
            ("sherwood.v1.test.changes.b", Vec::new()),
            ("sherwood.v1.test.novelties.b", Vec::new()),
            ("sherwood.v1.test.beats.b", vec![0; 300 << 10]),
            ("sherwood.v2.test.beats.b", Vec::new()),
        ] {
            client.publish(subject.to_owned(), payload.into()).await.unwrap();
        }
        client.flush().await.unwrap();
    });
    eventually("all were counted", || {
        http.metric(r#"sherwood_bus_dropped_total{direction="received"}"#) >= 5.0
    });
    assert!(node.events().iter().any(|event| event.message.contains("version v2")), "{:?}", node.events());
}
