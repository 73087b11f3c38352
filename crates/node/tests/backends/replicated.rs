//! A node in front of replicated stores: memcached and Redis servers that it keeps equal, killed
//! and restarted in turn. Both start empty: a server that was killed has lost all it had.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use serde_json::{Value, json};
use sherwood_config::Flags;
use sherwood_node::{Node, Setup};
use sherwood_policy::available_without_options;

use crate::client::Client;
use crate::replicas::{KEYS, all_are_read, configuration, name, read_all, servers, states};
use crate::servers::Server;
use crate::wait::eventually;

/// Starts a node in front of these servers, with this [`configuration`].
pub(crate) fn node(kind: &str, servers: &[Server], options: &str) -> Node {
    start(&configuration(kind, servers, options))
}

fn start(text: &str) -> Node {
    let config = sherwood_config::parse("a.toml", text, &Flags::default(), available_without_options());
    let setup = Setup::from_config(&config.expect("a valid configuration")).expect("nothing to open");
    Node::start(setup).expect("the node starts")
}

/// Writes and removes each key in turn, and returns what was acknowledged last.
fn write_until(is_over: &AtomicBool, address: SocketAddr) -> BTreeMap<String, Option<String>> {
    let (mut client, mut expected) = (Client::connect(address), BTreeMap::new());
    for round in 0.. {
        for key in 0..KEYS {
            let (name, value) = (name(key), format!("{key}:{round}"));
            let removes = (key + round) % 7 == 0;
            let answer = if removes { client.remove("a", &name) } else { client.write("a", &name, &value) };
            assert_eq!(answer.status, 204, "{answer:?}");
            expected.insert(name, (!removes).then_some(value));
        }
        if is_over.load(Relaxed) {
            break;
        }
    }
    expected
}

fn acknowledged_writes_survive_the_loss_of_each_server(kind: &str) {
    let mut servers = servers(kind, 4);
    let node = node(kind, &servers, "");
    let mut client = Client::connect(node.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    let (is_over, address) = (AtomicBool::new(false), node.admin().expect("it has a gateway"));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&is_over, address));
        for (number, server) in servers.iter_mut().enumerate() {
            server.kill();
            eventually("it is not read", || states(&mut client)[number] != "current");
            server.restart();
            all_are_read(&mut client);
        }
        is_over.store(true, Relaxed);
        let expected = writer.join().expect("all writes are acknowledged");
        assert_eq!(read_all(&mut client), expected);
        // What the second one of each partition has, alone.
        for server in [0, 2] {
            servers[server].kill();
            eventually("it is not read", || states(&mut client)[server] != "current");
        }
        assert_eq!(read_all(&mut client), expected);
    });
    let metrics = client.ask("GET", "/metrics", "").body;
    assert!(metrics.contains("sherwood_duplicate_repaired_total{backend=\"a\"} "), "{metrics}");
    node.stop();
}

#[test]
fn acknowledged_writes_survive_the_loss_of_each_redis_server() {
    acknowledged_writes_survive_the_loss_of_each_server("redis");
}

#[test]
fn acknowledged_writes_survive_the_loss_of_each_memcached_server() {
    acknowledged_writes_survive_the_loss_of_each_server("memcached");
}

/// Asks for a layout, and waits until the store has it.
fn change_layout(client: &mut Client, partitions: u16, duplicates: u8) {
    let body = json!({"partitions": partitions, "duplicates": duplicates}).to_string();
    assert_eq!(client.ask("PUT", "/v1/stores/a", &body).status, 200);
    eventually("the layout is there", || {
        let store = client.ask("GET", "/v1/stores", "").json()[0].clone();
        let nodes = store["nodes"].as_array().expect("the duplicates");
        let are_read = nodes.iter().all(|node| node["state"] == "current");
        store["settled"] == true && are_read && nodes.len() == 2 * usize::from(duplicates)
    });
}

fn layout_changes_under_writes(kind: &str) {
    let mut servers = servers(kind, 4);
    let first = node(kind, &servers, "");
    let mut client = Client::connect(first.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    let (is_over, address) = (AtomicBool::new(false), first.admin().expect("it has a gateway"));
    let expected = thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&is_over, address));
        for (partitions, duplicates) in [(1, 4), (2, 1), (1, 4), (2, 2), (2, 1), (1, 4)] {
            change_layout(&mut client, partitions, duplicates);
        }
        is_over.store(true, Relaxed);
        writer.join().expect("all writes are acknowledged")
    });
    assert_eq!(read_all(&mut client), expected);
    let refused = client.ask("PUT", "/v1/stores/a", r#"{"partitions": 3, "duplicates": 1}"#);
    assert!(refused.status == 422 && refused.body.contains("it can be 2x1, 2x2, 1x4"), "{refused:?}");
    // Each has all keys, also for a process that was not told so, and the others may be gone.
    first.stop();
    servers.iter_mut().take(3).for_each(Server::kill);
    let second = node(kind, &servers, "");
    let mut client = Client::connect(second.admin().expect("it has a gateway"));
    eventually("the last server is read", || {
        states(&mut client).iter().filter(|state| *state == "current").count() == 2
    });
    assert_eq!(read_all(&mut client), expected);
    second.stop();
}

#[test]
fn layout_of_redis_servers_changes_under_writes() {
    layout_changes_under_writes("redis");
}

#[test]
fn layout_of_memcached_servers_changes_under_writes() {
    layout_changes_under_writes("memcached");
}

#[test]
fn node_that_restarts_repairs_the_servers_that_its_predecessor_left_different() {
    let mut servers = servers("redis", 4);
    let first = node("redis", &servers, "");
    let mut client = Client::connect(first.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    assert_eq!(client.write("a", &name(1), "both").status, 204);
    servers[0].kill();
    servers[3].kill();
    eventually("neither is read", || {
        let states = states(&mut client);
        states[0] != "current" && states[3] != "current"
    });
    for key in 1..KEYS {
        assert_eq!(client.write("a", &name(key), "one").status, 204);
    }
    first.stop();
    servers[0].restart();
    servers[3].restart();
    let second = node("redis", &servers, "");
    let mut client = Client::connect(second.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    for server in [1, 2] {
        servers[server].kill();
        eventually("it is not read", || states(&mut client)[server] != "current");
    }
    let expected = (0..KEYS).map(|key| (name(key), (key > 0).then(|| "one".to_owned())));
    assert_eq!(read_all(&mut client), expected.collect());
    second.stop();
}

#[test]
fn store_is_left_alone_while_another_number_of_partitions_is_configured() {
    let servers = servers("redis", 4);
    let text = configuration("redis", &servers, "");
    let first = start(&text);
    let mut client = Client::connect(first.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    (0..KEYS).for_each(|key| assert_eq!(client.write("a", &name(key), "one").status, 204));
    let expected = read_all(&mut client);
    first.stop();
    let other = start(&text.replace("partitions = 2\nduplicates = 2", "partitions = 4\nduplicates = 1"));
    let mut client = Client::connect(other.admin().expect("it has a gateway"));
    eventually("it finds what the servers have", || {
        let refused = client.write("a", "new", "two");
        refused.body.contains("the servers have a store of 2 partitions, and 4 are configured")
    });
    let keys: Vec<String> = (0..KEYS).map(name).collect();
    let results = client.read([("a", keys)]);
    let is_failed =
        |result: &Value| !["hit", "miss", "not_found"].map(Value::from).contains(&result["status"]);
    assert!(results.iter().all(is_failed), "{results:?}");
    other.stop();
    let again = start(&text);
    let mut client = Client::connect(again.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    assert_eq!(read_all(&mut client), expected);
    again.stop();
}

#[test]
fn duplicate_that_is_not_read_is_an_event_and_another_when_it_is_read_again() {
    let mut servers = servers("redis", 4);
    let node = node("redis", &servers, "");
    let mut client = Client::connect(node.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    let mut said = |what: &str| {
        eventually(what, || {
            let events = node.events();
            events.iter().any(|event| {
                let data = &event.data;
                event.message.contains(what)
                    && (&data["partition"], &data["replica"]) == (&json!(0), &json!(1))
            })
        });
        client.ask("GET", "/metrics", "").body
    };
    servers[1].kill();
    let sample = "sherwood_duplicate_read{backend=\"a\",partition=\"0\",replica=\"1\"}";
    let metrics = said("of partition 0 is not read: lost");
    assert!(metrics.contains(&format!("{sample} 0")), "{metrics}");
    servers[1].restart();
    let metrics = said("of partition 0 is read again");
    assert!(metrics.contains(&format!("{sample} 1")), "{metrics}");
    node.stop();
}

#[test]
fn session_of_a_writer_is_in_the_answer_and_taken_back() {
    let servers = servers("memcached", 4);
    let node = node("memcached", &servers, "ack = \"first\"\nconsistency = \"causal\"\n");
    let mut client = Client::connect(node.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    let written = client.write("a", "k", "v");
    assert_eq!(written.status, 204);
    let session = written.session.expect("the store is replicated");
    assert!(session.starts_with("a=") && session.ends_with(".1"), "{session}");
    let body = json!({"queries": [{"backend": "a", "keys": ["k"]}]}).to_string();
    let header = format!("sherwood-session: {session}\r\n");
    let read = client.ask_with("POST", "/v1/requests", &header, &body);
    assert_eq!((read.json()["results"][0]["value"].as_str(), read.session), (Some("v"), Some(session)));
    let refused = client.ask_with("POST", "/v1/requests", "sherwood-session: a=x\r\n", &body);
    assert!(refused.status == 400 && refused.body.contains("is not a session"), "{refused:?}");
    let other = client.ask_with("POST", "/v1/requests", "sherwood-session: gone=1.1\r\n", &body);
    assert_eq!(other.status, 200, "{other:?}");
    for key in ["sherwood.log.marker.0", "sherwood.log.clock"] {
        let reserved = client.write("a", key, "v");
        assert!(reserved.status == 422 && reserved.body.contains("reserved"), "{reserved:?}");
    }
    node.stop();
}
