//! Keys that a backend fails at, declines, or answers slowly: only they fail, and the backend stays
//! usable.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sherwood_node::Node;
use sherwood_store::{BoxFuture, Found, HttpOptions, Store, StoreError, StoreKind, StoreOptions};

use crate::support::{Fake, Http, setup};
use crate::wait::eventually;

const UP: &str = r#"sherwood_replica_up{backend="items",replica="0"}"#;

/// A service that answers every key with its name, except keys that begin with `bad` (answered with
/// `status`) or `slow` (never answered).
fn service(status: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || converse(stream.unwrap(), status));
        }
    });
    address
}

fn converse(stream: TcpStream, bad: u16) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let key = request.split(' ').nth(1).expect("a request has a path").trim_start_matches('/').to_owned();
        lines.by_ref().find(String::is_empty);
        let status = if key.starts_with("bad") { bad } else { 200 };
        if key.starts_with("slow") {
            continue;
        }
        let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: {}\r\n\r\n{key}", key.len());
        if (&stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A node with short timeouts whose backend `items` has this store.
fn node(store: Arc<dyn Store>) -> (Node, Http) {
    let mut setup = setup(vec![("items", vec![store])]);
    setup.backends[0].dispatch.timeout = Duration::from_millis(300);
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    (node, http)
}

fn http_store(status: u16) -> Arc<dyn Store> {
    let mut options = HttpOptions::new(format!("http://{}/{{key}}", service(status)));
    options.remote.answer_timeout_ms = 100;
    sherwood_store::open("items", &StoreOptions::Http(options)).unwrap()
}

/// Requests some keys and returns their values or errors.
fn asked(http: Http, keys: &[&str]) -> Vec<Value> {
    let answer = http.request(&json!({"queries": [{"backend": "items", "keys": keys}]}));
    let results = answer["results"].as_array().unwrap();
    results.iter().map(|key| key.get("value").or(key.get("error")).unwrap().clone()).collect()
}

#[track_caller]
fn failed_with(label: &str, answer: &Value) {
    assert!(answer.as_str().unwrap().contains(&format!(": {label}: could not get 1 key")), "{answer}");
}

#[test]
fn error_status_of_one_key_does_not_affect_the_others() {
    for (status, label) in [(500, "server"), (503, "busy"), (403, "credentials"), (400, "statement")] {
        let (_node, http) = node(http_store(status));
        let answers = asked(http, &["a", "b", "bad", "c"]);
        assert_eq!((&answers[0], &answers[1], &answers[3]), (&json!("a"), &json!("b"), &json!("c")));
        failed_with(label, &answers[2]);
        assert_eq!(
            http.metric(&format!(r#"sherwood_backend_errors_total{{backend="items",cause="{label}"}}"#)),
            1.0
        );
    }
}

#[test]
fn unanswered_key_does_not_affect_the_others() {
    let (_node, http) = node(http_store(500));
    let answers = asked(http, &["slow", "a"]);
    failed_with("silent", &answers[0]);
    assert_eq!(answers[1], "a");
}

#[test]
fn declined_keys_do_not_take_a_replica_down() {
    for status in [403, 400, 503] {
        let (_node, http) = node(http_store(status));
        for _ in 0..10 {
            asked(http, &["bad"]);
            assert_eq!(http.metric(UP), 1.0, "{status}");
        }
        assert_eq!(asked(http, &["a"]), ["a"], "{status}");
    }
}

/// Requests a key until its failures have taken the replica down.
fn until_down(http: Http, key: &str) {
    eventually("the replica is down", || {
        asked(http, &[key])[0].as_str().unwrap().contains("the backend's only replica is down")
    });
}

/// Checks that a replica that answered a key earlier is probed with that key and comes up, even if
/// only the bad key is requested.
fn comes_up_by_an_answered_key(http: Http, bad: &str) {
    assert_eq!(asked(http, &["a"]), ["a"]);
    until_down(http, bad);
    eventually("the replica is up", || http.metric(UP) == 1.0);
    assert_eq!(asked(http, &["b"]), ["b"]);
}

/// Checks that a replica that answered no key yet comes up when another key is requested.
fn comes_up_by_a_requested_key(http: Http, bad: &str) {
    until_down(http, bad);
    eventually("another key is answered", || asked(http, &["a"]) == ["a"]);
}

#[test]
fn replica_that_fails_at_one_key_comes_up_for_others() {
    for key in ["bad", "slow"] {
        let (_node, http) = node(http_store(500));
        comes_up_by_an_answered_key(http, key);
        let (_node, http) = node(http_store(500));
        comes_up_by_a_requested_key(http, key);
    }
}

/// A store that never answers a call for the key `slow`.
struct Slow(Arc<Fake>);

impl Store for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> StoreKind {
        self.0.kind()
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        match keys.iter().any(|key| key == "slow") {
            true => Box::pin(std::future::pending()),
            false => self.0.get_many(keys),
        }
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Store::put(&*self.0, key, value)
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.delete(key)
    }
}

#[test]
fn store_that_is_slow_for_one_key_comes_up_for_others() {
    let slow = || Arc::new(Slow(Fake::new([("a", &b"a"[..]), ("b", b"b")])));
    let (_node, http) = node(slow());
    comes_up_by_an_answered_key(http, "slow");
    let (_node, http) = node(slow());
    comes_up_by_a_requested_key(http, "slow");
}
