//! Keys that are read most, and what the cache holds of one key.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_node::{Node, Rules};
use sherwood_store::Store;

use crate::support::{Client, Fake, Http, NEVER, listener, setup};
use crate::wait::eventually;

/// A key that is markup, as a memcached client may send it.
const MARKUP: &str = "<b>x</b>";

fn node(rules: Rules) -> Node {
    let fake = Fake::new([("hot", &b"old"[..]), ("warm", b"\xff\xfe"), (MARKUP, b"1")]);
    let mut setup = setup(vec![("catalog", vec![fake as Arc<dyn Store>]), ("prices", Vec::new())]);
    setup.backends[0].rules = rules;
    setup.listeners = vec![listener(0)];
    Node::start(setup).unwrap()
}

/// Reads `hot` in three of four reads, over the listener of a node.
fn read_often(node: &Node) {
    let mut client = Client::connect(node);
    for _ in 0..8 * 64 {
        client.ask(&format!("get hot hot {MARKUP} hot"), "END");
    }
}

#[test]
fn keys_read_most_are_listed_by_partition_with_their_shares() {
    let node = node(Rules::default());
    let http = Http::of(&node);
    read_often(&node);
    let list = http.get("/v1/hot-keys");
    let [catalog, prices] = &list.as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&catalog["partition"], &catalog["tenant"]), (&json!("catalog"), &json!("default")));
    let sampled = catalog["sampled_reads"].as_u64().unwrap();
    assert!((7 * 4..=9 * 4).contains(&sampled), "one round in 64: {catalog}");
    let key = |name: &str, share: f64| json!({"key": name, "encoding": "utf8", "share_ratio": share, "error_ratio": 0.0});
    assert_eq!(catalog["keys"], json!([key("hot", 0.75), key(MARKUP, 0.25)]));
    assert_eq!((&prices["sampled_reads"], &prices["keys"]), (&json!(0), &json!([])));
    let one = http.get("/v1/hot-keys?partition=catalog&max=1");
    assert_eq!(one[0]["keys"], json!([key("hot", 0.75)]));
    assert_eq!(one.as_array().unwrap().len(), 1);
    let refused = http.ask("GET", "/v1/hot-keys?partition=nowhere", "").refusal(404);
    assert!(refused.contains("there are: catalog, prices"), "{refused}");
    node.stop();
}

#[test]
fn keys_of_sampled_gateway_requests_count_as_read() {
    let node = node(Rules::default());
    let http = Http::of(&node);
    for _ in 0..3 * 64 {
        http.key("catalog", "hot");
    }
    let sampled = http.get("/v1/hot-keys?partition=catalog");
    assert!((2..=4).contains(&sampled[0]["sampled_reads"].as_u64().unwrap()), "{sampled}");
    assert_eq!(sampled[0]["keys"][0]["key"], "hot");
    node.stop();
}

#[test]
fn key_is_described_without_a_use_and_without_its_value_unless_that_is_asked_for() {
    let node = node(Rules { ttl: Some(NEVER), keep_stale: NEVER, ..Rules::default() });
    let http = Http::of(&node);
    let look = |query: &str| http.get(&format!("/v1/keys/catalog/hot{query}"));
    let absent = look("");
    assert_eq!(absent, json!({"backend": "catalog", "key": "hot", "partitions": 1, "places": []}));
    for key in ["hot", "warm"] {
        http.key("catalog", key);
    }
    let before = http.get("/v1/partitions")[0].clone();
    let place = look("")["places"][0].clone();
    let (left, age) = (place["expires_in_ms"].as_f64().unwrap(), place["age_ms"].as_f64().unwrap());
    assert!(left > 0.0 && left <= NEVER.as_secs_f64() * 1e3 && age >= 0.0, "{place}");
    assert_eq!((&place["state"], &place["value_bytes"]), (&json!("fresh"), &json!(3)));
    assert_eq!((&place["partition"], &place["class_upto_ms"]), (&json!("catalog"), &Value::Null));
    assert_eq!(place.get("value"), None, "{place}");
    let place = look("?value=true&tenant=default")["places"][0].clone();
    assert_eq!((&place["value"], &place["encoding"]), (&json!("old"), &json!("utf8")));
    let place = http.get("/v1/keys/catalog/warm?value=true")["places"][0].clone();
    assert_eq!((&place["value"], &place["encoding"]), (&json!("//4="), &json!("base64")));
    let after = http.get("/v1/partitions")[0].clone();
    assert_eq!([&before["hits"], &before["misses"]], [&after["hits"], &after["misses"]]);
    for (path, status, said) in [
        ("/v1/keys/nowhere/a", 404, "there are: catalog, prices"),
        ("/v1/keys/catalog/a?tenant=nobody", 404, "there are: default"),
        ("/v1/keys/catalog/a?values=true", 400, "values"),
        (&*format!("/v1/keys/catalog/{}", "k".repeat(251)), 422, "a key of 251 bytes"),
    ] {
        let refused = http.ask("GET", path, "").refusal(status);
        assert!(refused.contains(said), "{path}: {refused}");
    }
    node.stop();
}

#[test]
fn stale_item_is_described_as_such() {
    let node = node(Rules { ttl: Some(Duration::from_millis(1)), keep_stale: NEVER, ..Rules::default() });
    let http = Http::of(&node);
    http.key("catalog", "hot");
    let mut place = Value::Null;
    eventually("it is stale", || {
        place = http.get("/v1/keys/catalog/hot")["places"][0].clone();
        place["state"] == "stale"
    });
    assert!(place["expires_in_ms"].as_f64().unwrap() <= 0.0, "{place}");
    node.stop();
}

#[test]
fn partition_has_the_latency_of_its_own_reads() {
    let node = node(Rules::default());
    let http = Http::of(&node);
    http.key("catalog", "hot");
    let latencies = http.get("/v1/partitions");
    let latency = &latencies[0]["latency_ms"];
    assert!(latency["p50"].as_f64() > Some(0.0) && latency["p99"].as_f64() >= latency["p50"].as_f64());
    assert_eq!(latencies[1]["latency_ms"], Value::Null);
    node.stop();
}
