//! Listeners that reach backends with a store and plain caches, by the prefix of a key.

use std::sync::Arc;

use sherwood_config::{Protocol, WriteThrough};
use sherwood_node::{ListenerSetup, Node, RouteSetup};
use sherwood_store::Store;

use crate::support::{Client, Fake, Http, Mood, listener, setup};
use crate::wait::eventually;

/// A node with the plain cache `sessions` and the backend `catalog`, which has `a`, and a listener
/// of each protocol that reaches both.
fn node(write_through: Option<WriteThrough>) -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    let mut setup = setup(vec![("sessions", vec![]), ("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    let prefixes = setup.partitions.iter().zip(["", "catalog/"]);
    let prefixes = prefixes.map(|(partition, prefix)| (prefix.to_owned(), partition.backend)).collect();
    let route = RouteSetup::Prefix(prefixes);
    let memcached = ListenerSetup { route, write_through, ..listener(0) };
    let redis = ListenerSetup { protocol: Protocol::Redis, ..memcached.clone() };
    setup.listeners = vec![memcached, redis];
    (Node::start(setup).unwrap(), fake)
}

fn clients(node: &Node) -> (Client, Client) {
    (Client::connect(node), Client::connect_to(&node.addresses(Protocol::Redis)[0]))
}

#[test]
fn keys_of_a_plain_cache_are_not_fetched_and_those_of_a_store_are() {
    let (node, fake) = node(None);
    let (mut memcached, mut redis) = clients(&node);
    assert_eq!(memcached.ask("get s catalog/a", "END"), ["VALUE catalog/a 0 3", "old", "END"]);
    assert_eq!(redis.ask("SET s 1", "+OK"), ["+OK"]);
    assert_eq!(redis.ask("MGET s catalog/a", "old"), ["*2", "$1", "1", "$3", "old"]);
    assert_eq!(redis.ask("INCR s", ":2"), [":2"]);
    assert_eq!(memcached.ask("get s", "END"), ["VALUE s 0 1", "2", "END"]);
    assert_eq!((fake.calls(), fake.writes()), (1, 0));
    node.stop();
}

#[test]
fn writes_go_to_the_store_of_their_key_or_to_the_plain_cache_alone() {
    let (node, fake) = node(Some(WriteThrough { cache_first: false, admit: true }));
    let (mut memcached, mut redis) = clients(&node);
    assert_eq!(redis.ask("MSET s 1 catalog/a new", "+OK"), ["+OK"]);
    assert_eq!((fake.value("a").as_deref(), fake.value("s"), fake.writes()), (Some(&b"new"[..]), None, 1));
    assert_eq!(memcached.ask("add t 0 0 1\r\n2", "STORED"), ["STORED"]);
    assert_eq!(redis.ask("MULTI\r\nINCR t\r\nEXEC", ":3"), ["+OK", "+QUEUED", "*1", ":3"]);
    memcached.send("add catalog/b 0 0 1\r\n2");
    let refused = memcached.lines(1);
    assert!(refused[0].contains("only the store knows"), "{refused:?}");
    assert_eq!(fake.writes(), 1);
    node.stop();
}

#[test]
fn transaction_whose_fetch_is_overtaken_by_a_write_reads_the_written_value() {
    let (node, fake) = node(None);
    let (mut other, mut client) = clients(&node);
    fake.be(Mood::Hang);
    client.send("MULTI\r\nSET s 1\r\nGET catalog/a\r\nEXEC");
    eventually("the value is being fetched", || fake.calls() == 1);
    assert_eq!(other.ask("get s", "END"), ["END"], "nothing of the transaction is executed yet");
    assert_eq!(other.ask("set catalog/a 0 0 3\r\nnew", "STORED"), ["STORED"]);
    fake.be(Mood::Answer);
    let answers = ["+OK", "+QUEUED", "+QUEUED", "*2", "+OK", "$3", "new"];
    assert_eq!(client.lines(answers.len()), answers);
    assert_eq!(other.ask("get s catalog/a", "END").len(), 5);
    assert_eq!(other.ask("get catalog/a", "END"), ["VALUE catalog/a 0 3", "new", "END"]);
    node.stop();
}

#[test]
fn transaction_of_a_client_that_left_during_its_fetch_is_executed_as_it_was_sent() {
    let (node, fake) = node(None);
    let (mut other, mut client) = clients(&node);
    fake.be(Mood::Hang);
    client.send("MULTI\r\nINCR s\r\nGET catalog/a\r\nEXEC");
    eventually("the value is being fetched", || fake.calls() == 1);
    drop(client);
    fake.be(Mood::Answer);
    eventually("it is executed", || other.ask("get s", "END").len() == 3);
    let gone =
        format!("sherwood_listener_connections{{listener=\"{}\"}} 0", node.addresses(Protocol::Redis)[0]);
    eventually("the client has gone", || {
        Http::of(&node).ask("GET", "/metrics", "").body.lines().any(|line| line.starts_with(&gone))
    });
    assert_eq!(other.ask("get s", "END"), ["VALUE s 0 1", "1", "END"]);
    node.stop();
}
