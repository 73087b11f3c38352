//! Lifetimes of values: fresh, stale, negative, and not cached.
//!
//! No test sleeps: values live for a millisecond and are polled until the expected state.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_node::{Node, Rules};
use sherwood_store::{Found, Store};

use crate::support::{Client, Fake, Http, Mood, NEVER, listener, setup};
use crate::wait::eventually;

/// Starts a node with the given freshness rules and one backend that has the key `a`.
fn node(rules: Rules) -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].rules = rules;
    setup.backends[0].late_after = Some(Duration::ZERO);
    setup.listeners = vec![listener(0)];
    (Node::start(setup).unwrap(), fake)
}

/// Returns rules under which values become stale at once and are kept forever.
fn short_lived() -> Rules {
    Rules { ttl: Some(Duration::from_millis(1)), keep_stale: NEVER, ..Rules::default() }
}

/// Requests `a`, accepting a value that is stale by at most `stale_ok_ms`.
fn ask(http: Http, stale_ok_ms: u64) -> Value {
    let query = json!({"backend": "catalog", "keys": ["a"], "stale_ok_ms": stale_ok_ms});
    http.request(&json!({"queries": [query]}))["results"][0].clone()
}

/// Fetches `a`, which becomes stale soon.
fn have_stale(http: Http) {
    assert_eq!(http.key("catalog", "a")["status"], "miss");
}

#[test]
fn late_fetch_is_answered_with_a_stale_value_if_the_query_allows_it() {
    let (node, fake) = node(short_lived());
    let http = Http::of(&node);
    have_stale(http);
    fake.put("a", "new");
    fake.be(Mood::Hang);
    let mut answer = Value::Null;
    eventually("it is stale", || {
        answer = ask(http, 600_000);
        answer["status"] == "stale"
    });
    assert_eq!((&answer["value"], &answer["error"]), (&json!("old"), &Value::Null));
    assert!(answer["age_ms"].as_f64().unwrap() >= 0.0, "{answer}");
    // The stale answer does not wait for the call to arrive.
    eventually("the backend is asked", || fake.calls() >= 2);
    assert_eq!(fake.calls(), 2, "all wait for one");
    assert!(http.metric(r#"sherwood_backend_stale_answers_total{backend="catalog"}"#) >= 1.0);
    // Queries that allow no stale value, or none so old, wait.
    eventually("it is older than a millisecond", || ask(http, 600_000)["age_ms"].as_f64().unwrap() > 1.0);
    let joined = || http.metric(r#"sherwood_backend_joined_keys_total{backend="catalog"}"#);
    let before = joined();
    let waiting = [0, 1].map(|stale_ok_ms| std::thread::spawn(move || ask(http, stale_ok_ms)));
    eventually("both have joined the call", || joined() >= before + 2.0);
    fake.be(Mood::Answer);
    for waited in waiting.map(|thread| thread.join().unwrap()) {
        assert_eq!((&waited["status"], &waited["value"]), (&json!("miss"), &json!("new")));
    }
    eventually("what was fetched for nobody is cached", || ask(http, 600_000)["value"] == "new");
    node.stop();
}

#[test]
fn failed_fetch_is_answered_with_a_stale_value_if_rules_or_query_allow_it() {
    for (if_error, stale_ok_ms) in [(NEVER, 0), (Duration::ZERO, 600_000)] {
        let (node, fake) = node(Rules { stale_if_error: if_error, ..short_lived() });
        let http = Http::of(&node);
        have_stale(http);
        fake.be(Mood::Fail);
        eventually("it is stale", || ask(http, stale_ok_ms)["status"] == "stale");
        assert_eq!(ask(http, stale_ok_ms)["value"], "old");
        fake.be(Mood::Answer);
        eventually("the backend is used again", || ask(http, 0)["status"] == "miss");
        node.stop();
    }
    let (node, fake) = node(short_lived());
    let http = Http::of(&node);
    have_stale(http);
    fake.be(Mood::Fail);
    eventually("it is stale", || ask(http, 0)["status"] == "error");
    node.stop();
}

#[test]
fn stale_value_is_served_while_it_is_revalidated() {
    let (node, fake) = node(Rules { stale_while_revalidate: NEVER, ..short_lived() });
    let http = Http::of(&node);
    have_stale(http);
    fake.put("a", "new");
    fake.be(Mood::Hang);
    eventually("it is stale", || http.key("catalog", "a")["status"] == "stale");
    for _ in 0..5 {
        let answer = http.key("catalog", "a");
        assert_eq!((&answer["status"], &answer["value"]), (&json!("stale"), &json!("old")));
    }
    eventually("one call is under way", || fake.calls() == 2);
    assert_eq!(http.metric(r#"sherwood_backend_joined_keys_total{backend="catalog"}"#), 0.0, "nobody waits");
    fake.be(Mood::Answer);
    eventually("the new value is there", || http.key("catalog", "a")["value"] == "new");
    node.stop();
}

#[test]
fn failed_revalidation_is_not_repeated_by_every_reader() {
    let (node, fake) = node(Rules { stale_while_revalidate: NEVER, ..short_lived() });
    let http = Http::of(&node);
    have_stale(http);
    fake.be(Mood::Fail);
    eventually("it is stale", || http.key("catalog", "a")["status"] == "stale");
    let failed = || http.metric(r#"sherwood_backend_failures_total{backend="catalog"}"#);
    eventually("the backend fails", || failed() == 1.0);
    for _ in 0..20 {
        assert_eq!(http.key("catalog", "a")["status"], "stale");
    }
    assert_eq!((fake.calls(), failed()), (2, 1.0));
    node.stop();
}

#[test]
fn absence_is_cached_for_the_negative_ttl() {
    let (node, fake) = node(Rules { negative_ttl: NEVER, ..Rules::default() });
    let http = Http::of(&node);
    for _ in 0..3 {
        assert_eq!(http.key("catalog", "none")["status"], "not_found");
    }
    assert_eq!(fake.calls(), 1);
    assert_eq!(Client::connect(&node).ask("get none", "END"), ["END"], "a listener asks for itself");
    assert_eq!(fake.calls(), 2);
    Client::connect(&node).ask("set none 0 0 7\r\nwritten", "STORED");
    assert_eq!(http.key("catalog", "none")["value"], "written");
    node.stop();
}

#[test]
fn ttl_of_the_store_may_be_shorter_than_the_rules() {
    let (node, fake) = node(Rules::default());
    let http = Http::of(&node);
    fake.say(Found { good_for: Some(Duration::ZERO), ..Found::default() });
    for calls in 1..4 {
        assert_eq!(http.key("catalog", "a")["status"], "miss");
        assert_eq!(fake.calls(), calls);
    }
    node.stop();
}

#[test]
fn listener_serves_only_fresh_values_with_their_flags() {
    let (node, fake) = node(Rules { stale_while_revalidate: NEVER, stale_if_error: NEVER, ..short_lived() });
    let http = Http::of(&node);
    fake.say(Found { flags: 7, ..Found::default() });
    let mut client = Client::connect(&node);
    let mut get = || client.ask("get a", "END");
    assert_eq!(get(), ["VALUE a 7 3", "old", "END"], "as it was fetched");
    fake.put("a", "new");
    eventually("it is fetched again", || get()[1] == "new");
    fake.be(Mood::Fail);
    eventually("it is no longer fresh", || get() == ["END"]);
    assert_eq!(http.key("catalog", "a")["value"], "new", "the listener has left it to the gateway");
    fake.be(Mood::Answer);
    node.stop();
}

#[test]
fn fetched_value_is_cached_with_its_flags() {
    let (node, fake) = node(Rules::default());
    fake.say(Found { flags: 7, ..Found::default() });
    assert_eq!(Http::of(&node).key("catalog", "a")["status"], "miss");
    assert_eq!(Client::connect(&node).ask("get a", "END"), ["VALUE a 7 3", "old", "END"]);
    assert_eq!(fake.calls(), 1);
    node.stop();
}
