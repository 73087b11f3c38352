//! Graceful shutdown.

use std::io::{Read, Write};
use std::sync::Arc;

use sherwood_config::Protocol;
use sherwood_node::{Node, SnapshotSetup, StartError};
use sherwood_store::Store;

use crate::support::{Fake, Http, Mood, answer, listener, setup};
use crate::wait::eventually;

#[test]
fn draining_node_is_not_ready_and_ends_requests_in_flight() {
    let fake = Fake::new([("a", &b"1"[..])]);
    let node = Node::start(setup(vec![("slow", vec![fake.clone() as Arc<dyn Store>])])).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.ask("GET", "/readyz", "").status, 200);
    fake.be(Mood::Hang);
    let client = http.send("POST", "/v1/requests", r#"{"queries":[{"backend":"slow","keys":["a"]}]}"#);
    eventually("the backend is asked", || fake.calls() == 1);
    let mut events = http.send("GET", "/v1/events", "");
    let mut head = [0; 15];
    events.read_exact(&mut head).unwrap();
    let stopping = std::thread::spawn(move || node.stop());
    eventually("it is not ready", || {
        // A connection without a request may be closed as soon as the node begins to drain.
        let mut said = Vec::new();
        let _ = http.send("GET", "/readyz", "").read_to_end(&mut said);
        said.starts_with(b"HTTP/1.1 503")
    });
    assert_eq!(http.ask("GET", "/healthz", "").status, 200, "it is alive");
    let mut rest = String::new();
    events.read_to_string(&mut rest).expect("the stream of events ends");
    fake.be(Mood::Answer);
    let answer = answer(client);
    assert_eq!((answer.status, &answer.json()["results"][0]["value"]), (200, &"1".into()));
    stopping.join().unwrap();
    assert!(std::net::TcpStream::connect(http.0).is_err(), "nobody listens any more");
}

#[test]
fn dropped_node_releases_its_ports() {
    let mut setup = setup(vec![("plain", vec![])]);
    setup.listeners = vec![listener(0)];
    let node = Node::start(setup).unwrap();
    let addresses = [node.admin().unwrap(), node.addresses(Protocol::Memcached)[0].tcp().unwrap()];
    drop(node);
    for address in addresses {
        eventually("the port is free", || std::net::TcpListener::bind(address).is_ok());
    }
}

#[test]
fn port_in_use_is_named_in_the_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut in_use = setup(vec![("plain", vec![])]);
    in_use.admin = Some(address);
    let error = Node::start(in_use).err().expect("refused");
    assert!(matches!(error, StartError::Bind { .. }) && error.to_string().contains(&address.to_string()));
    let mut in_use = setup(vec![("plain", vec![])]);
    in_use.listeners = vec![sherwood_node::ListenerSetup { bind: address.into(), ..listener(0) }];
    let error = Node::start(in_use).err().expect("refused");
    assert!(matches!(error, StartError::Listener(_)) && error.to_string().contains(&address.to_string()));
}

#[test]
fn partial_and_malformed_requests_do_not_block_other_clients() {
    let node = Node::start(setup(vec![("plain", vec![])])).unwrap();
    let http = Http::of(&node);
    let mut half = std::net::TcpStream::connect(http.0).unwrap();
    half.write_all(b"GET /healthz HT").unwrap();
    let mut nonsense = std::net::TcpStream::connect(http.0).unwrap();
    nonsense.write_all(b"\x16\x03\x01\0\0\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = nonsense.read_to_end(&mut said);
    assert!(said.starts_with(b"HTTP/1.1 400"), "{said:?}");
    assert_eq!(http.ask("GET", "/healthz", "").body, "ok\n");
    half.write_all(b"TP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(half).body, "ok\n");
}

#[test]
fn stopped_node_starts_warm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let fake = Fake::new([("a", &b"1"[..])]);
    let start = |fingerprint| {
        let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>]), ("other", vec![])]);
        setup.policy = "robinhood".to_owned();
        let time_max = std::time::Duration::from_secs(60);
        setup.snapshot = Some(SnapshotSetup { path: path.clone(), time_max, fingerprint });
        Node::start(setup).unwrap()
    };
    let node = start(1);
    let http = Http::of(&node);
    assert_eq!(http.key("catalog", "a")["status"], "miss");
    // The policy's budgets are kept, too.
    http.ask("PUT", "/v1/control", r#"{"policy":"static"}"#);
    for (name, bytes) in [("catalog", 10 << 20), ("other", 22 << 20)] {
        let body = format!(r#"{{"allocated_bytes":{bytes}}}"#);
        assert_eq!(http.ask("PUT", &format!("/v1/partitions/{name}"), &body).status, 200);
    }
    node.stop();
    assert!(path.exists());
    let node = start(1);
    let http = Http::of(&node);
    assert_eq!(http.key("catalog", "a")["status"], "hit");
    assert_eq!(http.get("/v1/partitions")[0]["allocated_bytes"], 10 << 20);
    assert!(node.events().iter().any(|event| event.message.starts_with("warm start: 1 items")));
    assert!(!path.exists(), "a node that is killed from here on starts cold");
    node.stop();
    let node = start(2);
    assert_eq!(Http::of(&node).key("catalog", "a")["status"], "miss", "the backends are others");
}

#[test]
fn node_with_an_unwritable_snapshot_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none/snapshot");
    let mut setup = setup(vec![("catalog", vec![])]);
    let time_max = std::time::Duration::from_secs(60);
    setup.snapshot = Some(SnapshotSetup { path, time_max, fingerprint: 1 });
    let Err(refused) = Node::start(setup) else { panic!("it started") };
    let refused = refused.to_string();
    assert!(
        refused.contains("none/snapshot cannot be written") && refused.contains("make its directory"),
        "{refused}"
    );
}

#[test]
fn blocked_task_does_not_delay_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let fake = Fake::new([("a", &b"1"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    let time_max = std::time::Duration::from_secs(60);
    setup.snapshot = Some(SnapshotSetup { path: path.clone(), time_max, fingerprint: 1 });
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.key("catalog", "a")["status"], "miss");
    fake.be(Mood::Stick);
    let client = http.send("POST", "/v1/requests", r#"{"queries":[{"backend":"catalog","keys":["b"]}]}"#);
    eventually("the backend is asked", || fake.calls() == 2);
    drop(client);
    let stopping = std::thread::spawn(move || node.stop());
    eventually("it has stopped", || stopping.is_finished());
    assert!(path.exists());
    fake.be(Mood::Answer);
}
