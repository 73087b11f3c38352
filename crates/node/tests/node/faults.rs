//! Backends that fail and recover, and clients that disconnect.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sherwood_node::Node;
use sherwood_store::Store;

use crate::support::{Fake, Http, Mood, setup};
use crate::wait::eventually;

/// A node of two backends; the first has a short timeout.
fn node() -> (Node, Arc<Fake>) {
    let (dying, healthy) = (Fake::new([("a", &b"1"[..])]), Fake::new([("b", &b"2"[..])]));
    let mut setup = setup(vec![
        ("dying", vec![dying.clone() as Arc<dyn Store>]),
        ("healthy", vec![healthy as Arc<dyn Store>]),
    ]);
    setup.backends[0].dispatch.timeout = Duration::from_millis(50);
    (Node::start(setup).unwrap(), dying)
}

#[test]
fn dead_backend_fails_only_its_queries_and_is_used_again_once_back() {
    let (node, dying) = node();
    let http = Http::of(&node);
    let body =
        json!({"queries": [{"backend": "dying", "keys": ["a"]}, {"backend": "healthy", "keys": ["b"]}]});
    let mut seen = Vec::new();
    dying.be(Mood::Hang);
    eventually("the replica is down", || {
        let results = http.request(&body)["results"].clone();
        assert_eq!(results[1]["value"], "2", "the other backend is untouched");
        let reason = results[0]["error"].as_str().unwrap();
        seen.push(results[0]["status"].as_str().unwrap().to_owned());
        reason.contains("the backend's only replica is down (last failure: no answer in time)")
    });
    assert!(seen.iter().any(|status| status == "timeout") && seen.last().unwrap() == "error", "{seen:?}");
    assert_eq!(http.metric(r#"sherwood_replica_up{backend="dying",replica="0"}"#), 0.0);
    dying.be(Mood::Answer);
    eventually("a probe finds it back", || http.key("dying", "a")["value"] == "1");
    assert_eq!(http.metric(r#"sherwood_replica_up{backend="dying",replica="0"}"#), 1.0);
}

#[test]
fn replica_that_declines_the_probed_key_is_up() {
    let (node, dying) = node();
    let http = Http::of(&node);
    dying.be(Mood::Hang);
    eventually("the replica is down", || {
        http.key("dying", "a")["error"].as_str().is_some_and(|reason| reason.contains("is down"))
    });
    dying.be(Mood::Refuse);
    eventually("a probe finds it back", || {
        http.metric(r#"sherwood_replica_up{backend="dying",replica="0"}"#) == 1.0
    });
}

#[test]
fn request_of_a_disconnected_client_counts_at_least_the_timeout() {
    let fake = Fake::new([("a", &b"1"[..])]);
    let mut setup = setup(vec![("slow", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].dispatch.timeout = Duration::from_secs(300);
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    fake.be(Mood::Hang);
    let client = http.send("POST", "/v1/requests", r#"{"queries":[{"backend":"slow","keys":["a"]}]}"#);
    eventually("the backend is asked", || fake.calls() == 1);
    drop(client);
    eventually("the request has ended", || http.metric("sherwood_requests_total") == 1.0);
    eventually("it is observed", || {
        http.get("/v1/slo")["current_ms"].as_f64().is_some_and(|ms| ms >= 300_000.0)
    });
    // The fetched value fills the cache for the next client.
    fake.be(Mood::Answer);
    eventually("the answer is cached", || http.get("/v1/partitions")[0]["items"] == 1);
}
