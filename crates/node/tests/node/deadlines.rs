//! Tests of deadlines: of requests and queries to the gateway.

use std::sync::Arc;

use serde_json::{Value, json};
use sherwood_node::Node;
use sherwood_store::Store;

use crate::support::{Fake, Http, Mood, answer, setup};
use crate::wait::eventually;

fn node() -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"1"[..]), ("b", b"2")]);
    let node = Node::start(setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])])).unwrap();
    (node, fake)
}

fn one_key(key: &str) -> Value {
    json!({"queries": [{"backend": "catalog", "keys": [key]}]})
}

/// Sends a request with `headers`, each ending with CRLF, and returns the status and the body.
fn with_headers(http: Http, headers: &str, body: &Value) -> (u16, Value) {
    let answer = answer(http.send_with("POST", "/v1/requests", headers, &body.to_string()));
    (answer.status, answer.json())
}

#[test]
fn answer_after_the_deadline_comes_complete_and_is_marked_late() {
    let (node, fake) = node();
    let http = Http::of(&node);
    fake.be(Mood::Hang);
    let query = |key: &str, deadline_ms: f64| json!({"backend": "catalog", "keys": [key], "deadline_ms": deadline_ms});
    let body = json!({"queries": [query("a", 1e-6), query("b", 86_400_000.0)]});
    let waiting = http.send("POST", "/v1/requests", &body.to_string());
    eventually("both keys are fetched", || fake.calls() > 0);
    fake.be(Mood::Answer);
    let results = answer(waiting).json()["results"].clone();
    assert_eq!((&results[0]["value"], &results[0]["late"]), (&json!("1"), &json!(true)));
    assert_eq!((&results[1]["value"], results[1].get("late")), (&json!("2"), None));
}

#[test]
fn deadline_of_a_request_is_that_of_its_queries_unless_theirs_is_earlier() {
    let (node, _) = node();
    let http = Http::of(&node);
    let late = |request_ms: Value, query_ms: Value| {
        let query = json!({"backend": "catalog", "keys": ["a"], "deadline_ms": query_ms});
        let answer = http.request(&json!({"deadline_ms": request_ms, "queries": [query]}));
        answer["results"][0].get("late").is_some()
    };
    let (past, day) = (json!(1e-6), json!(86_400_000));
    assert!(late(past.clone(), Value::Null) && late(Value::Null, past.clone()));
    assert!(late(past.clone(), day.clone()) && late(day.clone(), past));
    assert!(!late(day.clone(), day) && !late(Value::Null, Value::Null));
}

#[test]
fn deadline_headers_apply_to_the_whole_request() {
    let (node, _) = node();
    let http = Http::of(&node);
    for (headers, expected) in [
        ("grpc-timeout: 0n\r\n", Some(true)),
        ("Grpc-Timeout: 23H\r\n", None),
        ("grpc-timeout: 25H\r\n", None),
        ("sherwood-deadline-ms: 0.000001\r\n", Some(true)),
        ("sherwood-deadline-ms: 86400000\r\ngrpc-timeout: 0S\r\n", Some(true)),
    ] {
        let (status, body) = with_headers(http, headers, &one_key("a"));
        let result = &body["results"][0];
        let late = result.get("late").and_then(Value::as_bool);
        assert_eq!((status, &result["value"], late), (200, &json!("1"), expected), "{headers}");
    }
}

#[test]
fn malformed_deadline_header_is_refused_by_name() {
    let (node, fake) = node();
    let http = Http::of(&node);
    for (name, value, part) in [
        ("grpc-timeout", "soon", "one to eight digits and a unit"),
        ("grpc-timeout", "-1m", "one to eight digits and a unit"),
        ("sherwood-deadline-ms", "soon", "a number of milliseconds"),
        ("sherwood-deadline-ms", "0", "above 0 and at most 86400000 ms"),
        ("sherwood-deadline-ms", "nan", "above 0 and at most 86400000 ms"),
        ("sherwood-deadline-ms", "86400001", "above 0 and at most 86400000 ms"),
    ] {
        let (status, body) = with_headers(http, &format!("{name}: {value}\r\n"), &one_key("a"));
        assert_eq!((status, &body["header"]), (400, &json!(name)), "{value}");
        assert!(body["error"].as_str().unwrap().contains(part), "{body}");
    }
    assert_eq!(fake.calls(), 0);
}
