//! What memcached's clients do to items, as the gateway before the same cache sees it: a place is no value.

use std::sync::Arc;

use serde_json::json;
use sherwood_node::{MemcachedSetup, Node, Rules};
use sherwood_store::Store;

use crate::patience::eventually;
use crate::support::{Client, Fake, Http, Mood, listener, setup};

/// A node before one backend that has `a`, with these rules, a listener that reads through and one that does not.
fn node(rules: Rules) -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].rules = rules;
    setup.memcached = vec![MemcachedSetup { read_through: false, ..listener(0) }, listener(0)];
    (Node::start(setup).unwrap(), fake)
}

#[test]
fn a_place_for_a_value_is_none_to_the_gateway_which_fills_it() {
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

#[test]
fn a_backend_that_fails_leaves_no_place() {
    let (node, fake) = node(Rules::default());
    let http = Http::of(&node);
    fake.be(Mood::Fail);
    let mut client = Client::connect_to(&node, 1);
    assert_eq!(client.ask("mg a v N30", "EN"), ["EN"]);
    assert_eq!(client.ask("mg none v N30", "EN"), ["EN"]);
    fake.be(Mood::Answer);
    eventually("the backend is used again", || http.key("catalog", "none")["status"] == "not_found");
    assert_eq!(client.ask("mg none v N30", ""), ["VA 0 W", ""], "there is no such value");
    assert_eq!(http.key("catalog", "none")["status"], "not_found");
    assert_eq!(http.key("catalog", "a")["value"], "old");
    node.stop();
}
