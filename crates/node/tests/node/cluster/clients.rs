//! Clients of listeners that keep a shared backend beside its store.

use std::sync::Arc;

use sherwood_config::{Protocol, WriteThrough};
use sherwood_node::{ListenerSetup, Node, RouteSetup, Setup};
use sherwood_store::Store;

use super::{Bus, of, pair, read, settled, store};
use crate::support::{Client, Http, listener, setup};
use crate::wait::eventually;

const REFUSED: &str = "the other nodes of the cluster do not know this process yet and would serve older values; nothing was changed, try again later";

/// Adds listeners for both protocols that neither fetch nor write.
fn beside(setup: Setup) -> Setup {
    let of = |protocol| ListenerSetup { protocol, read_through: false, ..listener(0) };
    let listeners = vec![of(Protocol::Memcached), of(Protocol::Redis)];
    Setup { listeners, ..setup }
}

fn redis(node: &Node) -> Client {
    Client::connect_to(&node.addresses(Protocol::Redis)[0])
}

/// Sends a command whose answer is one line.
fn one(client: &mut Client, command: &str) -> String {
    client.send(command);
    client.lines(1).remove(0)
}

#[test]
fn changes_are_refused_while_the_other_nodes_would_miss_them() {
    let (bus, fake) = (Bus::start(), store());
    let node = Node::start(beside(of("a", &["a", "b"], &bus, &fake))).unwrap();
    let (mut memcached, mut redis) = (Client::connect(&node), redis(&node));
    let refused = format!("SERVER_ERROR {REFUSED}");
    for command in [
        "set k 0 0 1\r\n1",
        "delete k",
        "incr k 1",
        "append k 0 0 1\r\n1",
        "ms k 1\r\n1",
        "md k",
        "touch k -1",
        "gat -1 k",
        "mg k T-1",
        "flush_all",
    ] {
        assert_eq!(one(&mut memcached, command), refused, "{command}");
    }
    assert_eq!(one(&mut memcached, "add k 0 0 1\r\n1"), "STORED", "a client fills the cache");
    assert_eq!(one(&mut memcached, "ms m 1 ME\r\n1"), "HD");
    assert_eq!(one(&mut memcached, "touch k 100"), "TOUCHED");
    let refused = format!("-ERR {REFUSED}");
    for command in ["SET k 2", "DEL k", "INCR k", "EXPIRE k -1", "GETEX k PXAT 1", "FLUSHALL"] {
        assert_eq!(one(&mut redis, command), refused, "{command}");
    }
    assert_eq!(one(&mut redis, "EXPIRE k 100"), ":1");
    redis.send("MULTI\r\nSET k 2\r\nEXEC");
    assert_eq!(redis.lines(3), ["+OK", "+QUEUED", &refused]);
    redis.send("GET k");
    assert_eq!(redis.lines(2), ["$1", "1"]);
    let error = Http::of(&node).ask("POST", "/v1/invalidate", r#"{"backend": "catalog", "keys": ["k"]}"#);
    assert!(error.refusal(503).contains("do not know this process yet"));
}

#[test]
fn commands_that_change_no_value_are_not_announced_and_do_not_restore_trust() {
    let (mut bus, fake) = (Bus::start(), store());
    let [a, b] = ["a", "b"].map(|node| Node::start(beside(of(node, &["a", "b"], &bus, &fake))).unwrap());
    settled(&[&a, &b]);
    let (mut at_a, mut at_b) = (redis(&a), redis(&b));
    for key in ["a", "b"] {
        assert_eq!(read(&b, key), pair("miss", "old"));
    }
    assert_eq!(one(&mut at_a, "SET a own NX"), "+OK", "a client fills the cache");
    for (command, answer) in [("SET a other NX", "$-1"), ("EXPIRE a 100", ":1"), ("PERSIST a", ":1")] {
        assert_eq!(one(&mut at_a, command), answer, "{command}");
    }
    at_a.send("MULTI\r\nEXPIRE a 100\r\nSET a other IFEQ different\r\nEXEC");
    assert_eq!(at_a.lines(6), ["+OK", "+QUEUED", "+QUEUED", "*2", ":1", "$-1"]);
    assert_eq!(one(&mut at_a, "SET b new"), "+OK");
    eventually("the change of the other key has arrived", || read(&b, "b").0 == "miss");
    assert_eq!(read(&b, "a"), pair("hit", "old"));
    bus.kill();
    // Without the bus the value is trusted for some time after it was stored, however often a
    // client changes its lifetime.
    eventually("the value is not trusted", || one(&mut at_b, "EXPIRE a 100") == ":0");
}

#[test]
fn keys_of_a_plain_cache_are_refused_beside_keys_that_are_written_through() {
    let (bus, fake) = (Bus::start(), store());
    let Setup { cluster, backends, .. } = of("a", &["a", "b"], &bus, &fake);
    let both = vec![("sessions", vec![]), ("catalog", vec![fake.clone() as Arc<dyn Store>])];
    let mut setup = Setup { cluster, ..setup(both) };
    setup.backends[0].shared = backends[0].shared;
    let prefixes = setup.partitions.iter().zip(["", "catalog/"]);
    let prefixes = prefixes.map(|(partition, prefix)| (prefix.to_owned(), partition.backend)).collect();
    let write_through = Some(WriteThrough { cache_first: false, admit: true });
    let (protocol, route) = (Protocol::Redis, RouteSetup::Prefix(prefixes));
    setup.listeners = vec![ListenerSetup { protocol, route, write_through, ..listener(0) }];
    let node = Node::start(setup).unwrap();
    let mut redis = redis(&node);
    for command in ["MSET s 1 catalog/a new", "DEL catalog/a s", "UNLINK s catalog/a"] {
        assert_eq!(one(&mut redis, command), format!("-ERR {REFUSED}"), "{command}");
    }
    assert_eq!((one(&mut redis, "EXISTS s"), fake.writes()), (":0".to_owned(), 0));
    assert_eq!(one(&mut redis, "MSET catalog/a new"), "+OK");
    assert_eq!(fake.value("a").as_deref(), Some(&b"new"[..]));
}

#[test]
fn value_that_a_transaction_stored_is_trusted_like_others() {
    let (mut bus, fake) = (Bus::start(), store());
    let [a, b] = ["a", "b"].map(|node| Node::start(beside(of(node, &["a", "b"], &bus, &fake))).unwrap());
    settled(&[&a, &b]);
    let mut redis = redis(&b);
    assert_eq!(one(&mut redis, "SET last 1 NX"), "+OK");
    bus.kill();
    eventually("values are not trusted", || one(&mut redis, "EXISTS last") == ":0");
    let count = "MULTI\r\nINCR k\r\nEXPIRE k 60 NX\r\nEXEC";
    eventually("the second transaction finds the value of the first", || {
        redis.send(&format!("{count}\r\n{count}"));
        let answers = redis.lines(12);
        let [first, second] = [4, 10].map(|at| answers[at][1..].parse::<u64>().unwrap());
        second == first + 1
    });
}

#[test]
fn commands_of_both_protocols_find_no_value_that_is_not_trusted() {
    let (mut bus, fake) = (Bus::start(), store());
    let [a, b] = ["a", "b"].map(|node| Node::start(beside(of(node, &["a", "b"], &bus, &fake))).unwrap());
    settled(&[&a, &b]);
    let (mut memcached, mut redis) = (Client::connect(&b), redis(&b));
    for key in ["get", "mg", "incr", "append", "add", "GET", "EXISTS", "APPEND", "EXEC", "last"] {
        assert_eq!(one(&mut redis, &format!("SET {key} 1 NX")), "+OK");
    }
    memcached.send("get get\r\nmg mg v");
    assert_eq!(memcached.lines(5), ["VALUE get 0 1", "1", "END", "VA 1", "1"]);
    bus.kill();
    eventually("the value stored last is not trusted", || one(&mut redis, "EXISTS last") == ":0");
    memcached.send("get get\r\nmg mg v\r\nincr incr 1\r\nappend append 0 0 1\r\n2\r\nadd add 0 0 1\r\n2");
    assert_eq!(memcached.lines(5), ["END", "EN", "NOT_FOUND", "NOT_STORED", "STORED"]);
    redis.send("GET GET\r\nEXISTS EXISTS\r\nAPPEND APPEND 23\r\nMULTI\r\nGET EXEC\r\nEXEC");
    assert_eq!(redis.lines(7), ["$-1", ":0", ":2", "+OK", "+QUEUED", "*1", "$-1"]);
}
