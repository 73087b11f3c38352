//! memcached's item commands, observed through the gateway on the same cache: a placeholder is not
//! a value.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sherwood_config::Protocol;
use sherwood_node::{ListenerSetup, Node, Rules};
use sherwood_store::Store;

use crate::support::{Client, Fake, Http, Mood, NEVER, answer, listener, setup};
use crate::wait::eventually;

/// A node with one backend that has `a`, with these rules and three listeners: a look-aside and a
/// read-through one for memcached, and one for Redis.
fn node(rules: Rules) -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].rules = rules;
    let aside = || ListenerSetup { read_through: false, ..listener(0) };
    let redis = ListenerSetup { protocol: Protocol::Redis, ..aside() };
    setup.listeners = vec![aside(), listener(0), redis];
    (Node::start(setup).unwrap(), fake)
}

#[test]
fn placeholder_is_a_miss_at_the_gateway_which_fills_it() {
    let (node, fake) = node(Rules::default());
    let http = Http::of(&node);
    let mut client = Client::connect(&node);
    assert_eq!(client.ask("mg a v N30", ""), ["VA 0 W", ""], "it is told to fetch the value");
    let answer = http.key("catalog", "a");
    assert_eq!((&answer["status"], &answer["value"]), (&json!("miss"), &json!("old")));
    assert_eq!((&http.key("catalog", "a")["status"], fake.calls()), (&json!("hit"), 1));
    assert_eq!(client.ask("mg a v", "old"), ["VA 3", "old"]);
    assert_eq!(client.ask("md a x", "HD"), ["HD"]);
    assert_eq!(http.key("catalog", "a")["status"], "miss", "its value was taken away");
    node.stop();
}

/// Caches `a` and makes it stale; only the gateway would serve it.
fn have_stale(http: Http, fake: &Fake) {
    fake.be(Mood::Answer);
    eventually("the backend is used", || http.key("catalog", "a")["value"] == "old");
    fake.be(Mood::Fail);
    eventually("it is stale", || http.key("catalog", "a")["status"] == "stale");
}

#[test]
fn removed_stale_item_is_not_served() {
    let rules = Rules { ttl: Some(Duration::from_millis(1)), stale_if_error: NEVER, ..Rules::default() };
    let (node, fake) = node(rules);
    let http = Http::of(&node);
    let (memcached, redis) = (&node.addresses(Protocol::Memcached)[0], &node.addresses(Protocol::Redis)[0]);
    for (listener, command, last) in [
        (memcached, "delete a", "NOT_FOUND"),
        (memcached, "md a", "NF"),
        (memcached, "md a I", "NF"),
        (memcached, "touch a -1", "NOT_FOUND"),
        (memcached, "gat -1 a", "END"),
        (memcached, "mg a T-1", "EN"),
        (redis, "DEL a", ":0"),
        (redis, "GETDEL a", "$-1"),
    ] {
        have_stale(http, &fake);
        assert_eq!(Client::connect_to(listener).ask(command, last), [last], "{command}");
        assert_eq!(http.key("catalog", "a")["status"], "error", "{command}");
    }
    node.stop();
}

#[test]
fn item_expired_by_a_command_is_not_served_as_stale() {
    let rules = Rules { stale_if_error: NEVER, ttl: Some(NEVER), ..Rules::default() };
    let (node, fake) = node(rules);
    let http = Http::of(&node);
    for (command, answer) in [
        ("touch a -1", &["TOUCHED"][..]),
        ("gat -1 a", &["VALUE a 0 3", "old", "END"]),
        ("mg a v T-1", &["VA 3", "old"]),
        ("md a I T-1", &["HD"]),
    ] {
        fake.be(Mood::Answer);
        eventually("it is cached", || http.key("catalog", "a")["status"] == "hit");
        fake.be(Mood::Fail);
        assert_eq!(Client::connect(&node).ask(command, answer.last().unwrap()), answer);
        assert_eq!(http.key("catalog", "a")["status"], "error", "{command}");
    }
    node.stop();
}

#[test]
fn item_marked_stale_by_a_client_is_a_miss() {
    let (node, fake) = node(Rules::default());
    let http = Http::of(&node);
    assert_eq!(http.key("catalog", "a")["status"], "miss");
    fake.put("a", "new");
    let mut client = Client::connect(&node);
    assert_eq!(client.ask("md a I", "HD"), ["HD"]);
    let answer = http.key("catalog", "a");
    assert_eq!((&answer["status"], &answer["value"]), (&json!("miss"), &json!("new")));
    let answer = http.key("catalog", "a");
    assert_eq!((&answer["status"], &answer["value"]), (&json!("hit"), &json!("new")));
    assert_eq!(client.ask("mg a v", "new"), ["VA 3", "new"], "it is not stale any more");
    node.stop();
}

#[test]
fn value_derived_from_a_tagged_one_keeps_the_tag() {
    let (node, _) = node(Rules::default());
    let http = Http::of(&node);
    let (memcached, redis) = (&node.addresses(Protocol::Memcached)[0], &node.addresses(Protocol::Redis)[0]);
    for (listener, command, last) in [
        (memcached, "append n 0 0 1\r\n1", "STORED"),
        (memcached, "incr n 1", "2"),
        (memcached, "ms n 1 MP\r\n1", "HD"),
        (memcached, "ma n", "HD"),
        (redis, "INCR n", ":2"),
        (redis, "APPEND n 1", ":2"),
        (redis, "SETRANGE n 0 2", ":1"),
        (redis, "INCRBYFLOAT n 1", "2"),
    ] {
        let put = http.send_with("PUT", "/v1/keys/catalog/n", "sherwood-tags: user:7\r\n", "1");
        assert_eq!(answer(put).status, 204);
        let said = Client::connect_to(listener).ask(command, last);
        let body = json!({"backend": "catalog", "tag": "user:7"}).to_string();
        let removed = http.ask("POST", "/v1/invalidate", &body).json();
        assert_eq!(removed, json!({"removed": 1}), "{command}: {said:?}");
    }
    node.stop();
}

#[test]
fn failed_fetch_leaves_no_placeholder() {
    let (node, fake) = node(Rules::default());
    let http = Http::of(&node);
    fake.be(Mood::Fail);
    let mut client = Client::connect_to(&node.addresses(Protocol::Memcached)[1]);
    assert_eq!(client.ask("mg a v N30", "EN"), ["EN"]);
    assert_eq!(client.ask("mg none v N30", "EN"), ["EN"]);
    fake.be(Mood::Answer);
    eventually("the backend is used again", || http.key("catalog", "none")["status"] == "not_found");
    assert_eq!(client.ask("mg none v N30", ""), ["VA 0 W", ""], "there is no such value");
    assert_eq!(http.key("catalog", "none")["status"], "not_found");
    assert_eq!(http.key("catalog", "a")["value"], "old");
    node.stop();
}
