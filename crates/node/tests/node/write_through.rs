//! Write-through listeners: what their clients store and delete reaches the store before it is
//! acknowledged, and fails with it.

use std::sync::Arc;
use std::time::Duration;

use sherwood_config::{Protocol, WriteThrough};
use sherwood_node::{ListenerSetup, Node};
use sherwood_store::Store;

use crate::support::{Client, Fake, Http, Mood, listener, setup};
use crate::wait::eventually;

/// A node with one backend that has `a`, and a write-through listener for each protocol.
fn node(through: WriteThrough) -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].dispatch.timeout = Duration::from_secs(30);
    let memcached = || ListenerSetup { write_through: Some(through), ..listener(0) };
    let redis = ListenerSetup { protocol: Protocol::Redis, ..memcached() };
    setup.listeners = vec![memcached(), redis];
    (Node::start(setup).unwrap(), fake)
}

const STORE_FIRST: WriteThrough = WriteThrough { cache_first: false, admit: true };

#[test]
fn writes_of_both_protocols_reach_the_store_and_the_cache() {
    let (node, fake) = node(STORE_FIRST);
    let (mut memcached, mut redis) =
        (Client::connect(&node), Client::connect_to(&node.addresses(Protocol::Redis)[0]));
    assert_eq!(memcached.ask("get a", "END"), ["VALUE a 0 3", "old", "END"]);
    assert_eq!(memcached.ask("set a 0 0 3\r\nnew", "STORED"), ["STORED"]);
    assert_eq!(fake.value("a").as_deref(), Some(&b"new"[..]));
    assert_eq!(redis.ask("GET a", "new"), ["$3", "new"]);
    assert_eq!(redis.ask("MSET b 2 c 3", "+OK"), ["+OK"]);
    assert_eq!(memcached.ask("get b c", "END"), ["VALUE b 0 1", "2", "VALUE c 0 1", "3", "END"]);
    assert_eq!(redis.ask("DEL a b", ":2"), [":2"]);
    assert_eq!((fake.value("a"), fake.value("b"), fake.writes()), (None, None, 5));
    assert_eq!(fake.calls(), 1, "written values are read from the cache");
    assert_eq!(memcached.ask("get a", "END"), ["END"]);
    node.stop();
}

#[test]
fn write_that_the_store_refuses_is_an_error_and_removes_the_value() {
    for cache_first in [false, true] {
        let (node, fake) = node(WriteThrough { cache_first, admit: true });
        let (http, mut client) = (Http::of(&node), Client::connect(&node));
        client.ask("get a", "END");
        fake.write(Mood::Fail);
        client.send("set a 0 0 3\r\nnew\r\nversion");
        let answer = client.lines(2);
        assert!(answer[0].starts_with("SERVER_ERROR ") && answer[0].contains("unplugged"), "{answer:?}");
        assert_eq!(http.key("catalog", "a")["status"], "miss", "the cache has dropped it");
        node.stop();
    }
}

#[test]
fn value_that_goes_to_the_cache_first_is_read_before_the_store_has_it() {
    let (node, fake) = node(WriteThrough { cache_first: true, admit: true });
    let (mut writer, mut reader) = (Client::connect(&node), Client::connect(&node));
    fake.write(Mood::Hang);
    writer.send("set a 0 0 3\r\nnew");
    eventually("the write is in flight", || fake.writes() == 1);
    assert_eq!(reader.ask("get a", "END"), ["VALUE a 0 3", "new", "END"]);
    assert_eq!(fake.value("a").as_deref(), Some(&b"old"[..]));
    fake.write(Mood::Answer);
    assert_eq!(writer.lines(1), ["STORED"]);
    assert_eq!(fake.value("a").as_deref(), Some(&b"new"[..]));
    node.stop();
}

#[test]
fn value_that_is_not_admitted_is_cached_only_over_an_older_one() {
    let (node, fake) = node(WriteThrough { cache_first: false, admit: false });
    let mut client = Client::connect(&node);
    client.ask("set b 0 0 1\r\n2", "STORED");
    client.ask("get a", "END");
    client.ask("set a 0 0 3\r\nnew", "STORED");
    assert_eq!(client.ask("get a b", "END"), ["VALUE a 0 3", "new", "VALUE b 0 1", "2", "END"]);
    assert_eq!(fake.calls(), 2, "`a`, and `b` after it was written");
    node.stop();
}
