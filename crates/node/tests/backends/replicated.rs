//! A node in front of replicated stores: memcached and Redis servers that it keeps equal, killed
//! and restarted in turn. Both start empty: a server that was killed has lost all it had.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use serde_json::{Value, json};
use sherwood_config::Flags;
use sherwood_node::{Node, Setup};
use sherwood_policy::available_without_options;

use crate::client::Client;
use crate::servers::{Server, until_ready};
use crate::wait::eventually;

const KEYS: usize = 40;

/// Returns the configuration of a node with one backend, `a`, of these servers as duplicates of two
/// partitions. `options` are further keys of the backend, and tables.
fn text(kind: &str, servers: &[Server], options: &str) -> String {
    let replica = |server: &Server| {
        let address = server.address();
        format!("{{ kind = \"{kind}\", address = \"{address}\", key_prefix = \"t:\" }}")
    };
    let replicas: Vec<String> = servers.iter().map(replica).collect();
    format!(
        "[admin]\nbind = \"127.0.0.1:0\"\n[[backend]]\nname = \"a\"\ntimeout = \"2s\"\npartitions = 2\n\
         duplicates = {}\nreplicas = [{}]\n{options}",
        servers.len() / 2,
        replicas.join(", ")
    )
}

/// Starts a node with that configuration.
pub(crate) fn node(kind: &str, servers: &[Server], options: &str) -> Node {
    let text = text(kind, servers, options);
    let config = sherwood_config::parse("a.toml", &text, &Flags::default(), available_without_options());
    let setup = Setup::from_config(&config.expect("a valid configuration")).expect("nothing to open");
    Node::start(setup).expect("the node starts")
}

fn states(client: &mut Client) -> Vec<String> {
    let stores = client.ask("GET", "/v1/stores", "").json();
    let nodes = stores[0]["nodes"].as_array().expect("the duplicates").clone();
    nodes.iter().map(|node| node["state"].as_str().expect("a name").to_owned()).collect()
}

pub(crate) fn all_are_read(client: &mut Client) {
    eventually("all duplicates are read", || states(client).iter().all(|state| state == "current"));
}

fn name(key: usize) -> String {
    format!("key-{key}")
}

/// Reads all keys past the cache; none where a key is absent.
fn read_all(client: &mut Client) -> BTreeMap<String, Option<String>> {
    let keys: Vec<String> = (0..KEYS).map(name).collect();
    client.invalidate("a", &keys);
    let results = client.read([("a", keys.clone())]);
    let value = |result: &Value| match result["status"].as_str() {
        Some("miss") => Some(result["value"].as_str().expect("text").to_owned()),
        Some("not_found") => None,
        _ => panic!("{result}"),
    };
    keys.into_iter().zip(results.iter().map(value)).collect()
}

pub(crate) fn servers(kind: &str, count: usize) -> Vec<Server> {
    let server = || if kind == "redis" { Server::redis(&[]) } else { Server::memcached(|_| Vec::new()) };
    (0..count).map(|_| server()).collect()
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
    let reserved = client.write("a", "sherwood.log.marker.0", "v");
    assert!(reserved.status == 422 && reserved.body.contains("reserved"), "{reserved:?}");
    node.stop();
}

/// The variable with the options of the node of [`node_that_another_process_kills`].
const OPTIONS: &str = "SHERWOOD_TEST_REPLICATED";

/// Runs a node for [`acknowledged_writes_survive_a_killed_node_with_its_log_on_disk`], until it is
/// killed.
#[test]
#[ignore = "another test runs it, as a process of its own"]
fn node_that_another_process_kills() {
    let Ok(text) = std::env::var(OPTIONS) else { return };
    let config = sherwood_config::parse("a.toml", &text, &Flags::default(), available_without_options());
    let setup = Setup::from_config(&config.expect("a valid configuration")).expect("nothing to open");
    let _node = Node::start(setup).expect("the node starts");
    loop {
        thread::park();
    }
}

/// Starts a node as a process of its own, with its gateway on this port.
fn node_process(port: u16, servers: &[Server], options: &str) -> Child {
    let text = text("redis", servers, options).replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "--ignored", "replicated::node_that_another_process_kills"]);
    command.env(OPTIONS, text).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().expect("it is started again");
    let ready = until_ready(&mut process, &command, port, || true);
    ready.unwrap_or_else(|status| panic!("the node ended: {status}"));
    process
}

#[test]
fn acknowledged_writes_survive_a_killed_node_with_its_log_on_disk() {
    let mut servers = servers("redis", 4);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log").display().to_string();
    let options = format!("ack = \"first\"\nlog.path = \"{path}\"\n");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut expected: BTreeMap<String, Option<String>> = BTreeMap::new();
    for round in 0..3 {
        let mut expected_one_of = BTreeMap::new();
        let mut process = node_process(port, &servers, &options);
        all_are_read(&mut Client::connect(address));
        let written = &AtomicUsize::new(0);
        let acknowledged = thread::scope(|scope| {
            // Each key has one writer, which knows what was acknowledged last and, at the end, the
            // value that may have been written.
            let writers: Vec<_> = (0..4)
                .map(|writer| scope.spawn(move || write_until_killed(address, round, writer, written)))
                .collect();
            eventually("it writes", || written.load(Relaxed) > 200);
            // The server that is killed loses all it had.
            servers[round].kill();
            let until = written.load(Relaxed) + 200;
            eventually("it goes on", || written.load(Relaxed) > until);
            process.kill().and_then(|()| process.wait()).expect("it is ours");
            writers.into_iter().flat_map(|writer| writer.join().expect("it ends")).collect::<Vec<_>>()
        });
        servers[round].restart();
        for (key, (acknowledged, unknown)) in acknowledged {
            let before = expected.remove(&key).flatten();
            expected_one_of.insert(key, [acknowledged.or(before), unknown]);
        }
        let mut process = node_process(port, &servers, &options);
        let mut client = Client::connect(address);
        all_are_read(&mut client);
        expected = read_all(&mut client);
        for (key, of_key) in expected_one_of {
            assert!(of_key.contains(&expected[&key]), "{key} has {:?}, of {of_key:?}", expected[&key]);
        }
        process.kill().and_then(|()| process.wait()).expect("it is ours");
    }
}

/// Writes some of the keys until the node ends. Returns for each the value acknowledged last, and
/// the one whose outcome is unknown, which is the same if there is none.
fn write_until_killed(
    address: SocketAddr,
    round: usize,
    writer: usize,
    written: &AtomicUsize,
) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let (mut client, mut values) = (Client::connect(address), BTreeMap::new());
    for turn in 0.. {
        for key in (writer..KEYS).step_by(4) {
            let (name, value) = (name(key), Some(format!("{key}:{round}:{turn}")));
            let last: &mut (Option<String>, Option<String>) = values.entry(name.clone()).or_default();
            last.1.clone_from(&value);
            let Some(status) = client.try_write("a", &name, value.as_deref().unwrap_or_default()) else {
                return values;
            };
            assert_eq!(status, 204, "{name}");
            last.0 = value;
            written.fetch_add(1, Relaxed);
        }
    }
    values
}
