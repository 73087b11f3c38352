//! Memcached listeners of a node: they share the cache, the backends and the bound on connections.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use sherwood_config::Protocol;
use sherwood_listener::Address;
use sherwood_node::{ListenerSetup, Node};
use sherwood_store::Store;

use crate::support::{Fake, Http, Mood, listener, setup};
use crate::wait::{TIMEOUT, eventually};

/// A memcached client that reads answers line by line.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &Address) -> Self {
        let stream = TcpStream::connect(address.tcp().expect("a port")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends `get key` and returns the value, or none.
    fn get(&mut self, key: &str) -> Option<String> {
        self.send(&format!("get {key}"));
        self.value()
    }

    fn value(&mut self) -> Option<String> {
        if self.line() == "END" {
            return None;
        }
        let value = self.line();
        assert_eq!(self.line(), "END");
        Some(value)
    }
}

fn node() -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.listeners = vec![listener(0), listener(0)];
    setup.listener_connections_max = 3;
    (Node::start(setup).unwrap(), fake)
}

#[test]
fn value_fetched_by_a_listener_is_a_hit_at_the_gateway() {
    let (node, fake) = node();
    let mut client = Client::connect(&node.addresses(Protocol::Memcached)[0]);
    assert_eq!(client.get("a").as_deref(), Some("old"));
    assert_eq!(client.get("b"), None);
    assert_eq!(Http::of(&node).key("catalog", "a")["status"], "hit");
    assert_eq!(fake.calls(), 2);
}

#[test]
fn fetched_value_over_the_buffer_budget_is_a_miss() {
    let large = vec![b'x'; 4 << 10];
    let fake = Fake::new([("large", &large[..]), ("small", &b"s"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.listeners = vec![listener(0)];
    setup.buffers_bytes_max = 10 << 10;
    let node = Node::start(setup).unwrap();
    let mut client = Client::connect(&node.addresses(Protocol::Memcached)[0]);
    client.send("get large small");
    assert_eq!([client.line(), client.line(), client.line()], ["VALUE small 0 1", "s", "END"]);
    client.send("stats");
    let stats: Vec<_> = std::iter::repeat_with(|| client.line()).take_while(|line| line != "END").collect();
    assert!(stats.iter().any(|line| line == "STAT fetch_errors 1"), "{stats:?}");
    // It was cached anyway, and a hit needs only the connection's own buffers.
    assert_eq!(client.get("large").map(|value| value.len()), Some(large.len()));
}

#[test]
fn counters_of_listeners_are_in_the_metrics() {
    let (node, _) = node();
    let mut client = Client::connect(&node.addresses(Protocol::Memcached)[0]);
    assert_eq!((client.get("a").as_deref(), client.get("a").as_deref()), (Some("old"), Some("old")));
    let metric = |listener: usize, name: &str, labels: &str| {
        let address = &node.addresses(Protocol::Memcached)[listener];
        Http::of(&node).metric(&format!("sherwood_listener_{name}{{listener=\"{address}\"{labels}}}"))
    };
    assert_eq!(metric(0, "commands_total", r#",command="get",result="miss""#), 1.0);
    assert_eq!(metric(0, "commands_total", r#",command="get",result="hit""#), 1.0);
    assert_eq!(metric(1, "commands_total", r#",command="get",result="hit""#), 0.0);
    assert_eq!((metric(0, "connections", ""), metric(1, "connections", "")), (1.0, 0.0));
    assert_eq!(metric(0, "accepted_connections_total", ""), 1.0);
    assert_eq!(metric(0, "read_bytes_total", ""), 14.0);
    let fetched = r#"{partition="catalog",operation="get",outcome="fetched"}"#;
    let fetched = format!("sherwood_query_duration_seconds_count{fetched}");
    assert_eq!(Http::of(&node).metric(&fetched), 1.0);
    // Sent bytes are counted after they were sent.
    eventually("both answers", || metric(0, "written_bytes_total", "") == 46.0);
}

#[test]
fn all_listeners_share_one_bound_on_connections() {
    let (node, _) = node();
    let [first, second] = &node.addresses(Protocol::Memcached)[..] else { panic!("two listeners") };
    let mut clients: Vec<_> = [first, second, first].into_iter().map(Client::connect).collect();
    for client in &mut clients {
        client.send("version");
        assert!(client.line().starts_with("VERSION"));
    }
    assert_eq!(Client::connect(second).line(), "ERROR Too many open connections");
    clients.pop();
    eventually("there is room again", || {
        let mut client = Client::connect(second);
        client.send("version");
        client.line().starts_with("VERSION")
    });
}

/// Starts a fetch of `a`, runs `change` after the backend has read the old value, and returns the
/// status of `a` afterwards.
fn fetched_across(change: impl FnOnce(&Node, &mut Client)) -> String {
    let (node, fake) = node();
    fake.be(Mood::Hang);
    let mut waiting = Client::connect(&node.addresses(Protocol::Memcached)[0]);
    waiting.send("get a");
    eventually("the backend is asked", || fake.calls() == 1);
    change(&node, &mut Client::connect(&node.addresses(Protocol::Memcached)[1]));
    fake.put("a", "new");
    fake.be(Mood::Answer);
    assert_eq!(waiting.value().as_deref(), Some("old"), "who asked before is answered");
    Http::of(&node).key("catalog", "a")["value"].as_str().unwrap().to_owned()
}

#[test]
fn fetch_fills_the_cache_unless_its_key_changed_meanwhile() {
    assert_eq!(fetched_across(|_, _| {}), "old");
    let deleted = fetched_across(|_, client| {
        client.send("delete a");
        assert_eq!(client.line(), "NOT_FOUND");
    });
    assert_eq!(deleted, "new");
    let written = fetched_across(|_, client| {
        client.send("set a 0 0 4\r\nmine");
        assert_eq!(client.line(), "STORED");
    });
    assert_eq!(written, "mine");
    let taken_out = fetched_across(|node, _| {
        assert_eq!(Http::of(node).ask("DELETE", "/v1/keys/catalog/a", "").status, 204);
    });
    assert_eq!(taken_out, "new");
}

#[test]
fn flush_keeps_fetches_in_flight_from_filling_the_cache() {
    let now = fetched_across(|_, client| {
        client.send("flush_all");
        assert_eq!(client.line(), "OK");
    });
    assert_eq!(now, "new");
    let later = fetched_across(|_, client| {
        client.send("set witness 0 0 1\r\nx");
        assert_eq!(client.line(), "STORED");
        client.send("flush_all 1");
        assert_eq!(client.line(), "OK");
        eventually("the time of the flush has come", || {
            // `gat` of a cached key; a miss would be fetched, and the backend hangs.
            client.send("touch witness 0");
            client.line() == "NOT_FOUND"
        });
    });
    assert_eq!(later, "new");
}

#[test]
fn fetch_that_ends_before_a_scheduled_flush_fills_the_cache_until_then() {
    let value = fetched_across(|_, client| {
        client.send("flush_all 1000");
        assert_eq!(client.line(), "OK");
    });
    assert_eq!(value, "old");
}

#[test]
fn changed_password_file_is_in_force_for_new_connections() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("passwords");
    fs::write(&path, "alice:open-sesame\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let mut setup = setup(vec![("catalog", vec![Fake::new([]) as Arc<dyn Store>])]);
    setup.listeners = vec![ListenerSetup { auth_file: Some(path.clone()), ..listener(0) }];
    let node = Node::start(setup).unwrap();
    let connect = || Client::connect(&node.addresses(Protocol::Memcached)[0]);
    let log_in = |client: &mut Client, password: &str| {
        client.send(&format!("set a 0 0 {}\r\nalice {password}", 6 + password.len()));
        client.line()
    };
    let mut inside = connect();
    assert_eq!(log_in(&mut inside, "open-sesame"), "STORED");
    fs::write(&path, "alice:another password\n").unwrap();
    eventually("the new password is known", || log_in(&mut connect(), "another password") == "STORED");
    assert_eq!(log_in(&mut connect(), "open-sesame"), "CLIENT_ERROR authentication failure");
    inside.send("mn");
    assert_eq!(inside.line(), "MN");
}
