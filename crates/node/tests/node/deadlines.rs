//! Tests of deadlines: of requests and queries to the gateway, of listeners' clients, and by rule.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_config::{DeadlineRule, Protocol};
use sherwood_dispatch::AdmitChoice;
use sherwood_model::Percent;
use sherwood_model::{BackendId, TenantId};
use sherwood_node::{ListenerSetup, Node};
use sherwood_store::Store;

use crate::support::{Client, Fake, Http, Mood, answer, listener, partition, setup};
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

/// A time that no answer meets.
const NO_TIME: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn rule(prefix: &str, tenant: Option<u16>, within: Duration) -> DeadlineRule {
    let (backend, tenant) = (Some(BackendId(0)), tenant.map(TenantId));
    DeadlineRule { backend, prefix: prefix.to_owned(), tenant, within }
}

fn node_with_rules(rules: Vec<DeadlineRule>, listeners: Vec<ListenerSetup>) -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a", &b"1"[..]), ("b", b"2"), ("c", b"3")]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.tenants.push("gold".to_owned());
    setup.partitions.push(partition(1, 0));
    (setup.deadlines, setup.listeners) = (rules, listeners);
    (Node::start(setup).unwrap(), fake)
}

#[test]
fn rule_applies_to_queries_without_a_deadline_of_their_own() {
    let rules = vec![rule("a", None, NO_TIME), rule("", Some(1), NO_TIME), rule("b", None, DAY)];
    let (node, _) = node_with_rules(rules, Vec::new());
    let http = Http::of(&node);
    let late = |tenant: &str, keys: &[&str], deadline_ms: Value| {
        let query = json!({"backend": "catalog", "keys": keys, "deadline_ms": deadline_ms});
        let answer = http.request(&json!({"tenant": tenant, "queries": [query]}));
        answer["results"][0].get("late").is_some()
    };
    let default = |key: &str| late("default", &[key], Value::Null);
    assert_eq!(["a", "b", "c"].map(default), [true, false, false]);
    assert_eq!(["b", "c"].map(|key| late("gold", &[key], Value::Null)), [false, true]);
    assert!(!late("default", &["a"], json!(86_400_000)), "the query's own deadline counts");
    assert!(late("default", &["b", "a"], Value::Null), "keys of a query end together");
}

#[test]
fn deadlines_met_and_missed_are_counted_by_backend_tenant_and_class() {
    let (node, fake) = node_with_rules(vec![rule("", Some(1), DAY)], Vec::new());
    let http = Http::of(&node);
    let query = |key: &str, deadline_ms: Value| json!({"backend": "catalog", "keys": [key], "deadline_ms": deadline_ms});
    http.request(&json!({"queries": [query("a", json!(1e-6)), query("b", json!(86_400_000)), query("c", Value::Null)]}));
    http.request(
        &json!({"tenant": "gold", "queries": [query("a", Value::Null), query("none", Value::Null)]}),
    );
    fake.be(Mood::Fail);
    http.request(&json!({"queries": [query("failing", json!(86_400_000))]}));
    let count = |name: &str, tenant: &str| {
        http.metric(&format!(
            "sherwood_deadline_{name}_total{{backend=\"catalog\",tenant=\"{tenant}\",class=\"0\"}}"
        ))
    };
    assert_eq!((count("met", "default"), count("missed", "default")), (1.0, 2.0));
    assert_eq!((count("met", "gold"), count("missed", "gold")), (2.0, 0.0));
}

#[test]
fn beta_rises_while_more_deadlines_are_missed_than_wanted() {
    let fake = Fake::new([("a", &b"1"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake as Arc<dyn Store>])]);
    setup.control.delta = Duration::from_millis(10);
    let target = Percent::new("target", 3.0).unwrap();
    setup.backends[0].dispatch.admit = AdmitChoice::Deadline { target: Some(target) };
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let beta = || http.metric("sherwood_admission_beta{backend=\"catalog\"}");
    assert_eq!(beta(), 88.0);
    // Nothing is known about the replica yet, so that hopeless keys are admitted.
    let keys: Vec<_> = (0..1000).map(|key| format!("k{key}")).collect();
    http.request(&json!({"deadline_ms": 1e-6, "queries": [{"backend": "catalog", "keys": keys}]}));
    eventually("an interval ends in which deadlines were missed", || beta() == 94.0);
    let line = "catalog: 100% of 1000 deadlines were missed, where 3% are wanted: beta rises from 88% to 94%";
    let decision = node.events().into_iter().find(|event| event.kind == "decision" && event.message == line);
    assert_eq!(
        decision.expect("a decision with its reason").data,
        json!({"backend": "catalog", "target_ratio": 0.03, "before_beta": 88.0, "after_beta": 94.0, "applied": true, "line": line})
    );
    eventually("an interval ends without further deadlines", || {
        let view = http.get("/v1/control")["admission"][0].take();
        let line = "catalog: only 0 deadlines were seen, of 100 needed: beta stays 94%";
        view == json!({"backend": "catalog", "target_ratio": 0.03, "beta": 94.0, "line": line})
    });
}

#[test]
fn dry_run_says_which_beta_it_would_choose_and_keeps_the_present_one() {
    let fake = Fake::new([("a", &b"1"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake as Arc<dyn Store>])]);
    (setup.control.delta, setup.control.dry_run) = (Duration::from_millis(10), true);
    let target = Percent::new("target", 3.0).unwrap();
    setup.backends[0].dispatch.admit = AdmitChoice::Deadline { target: Some(target) };
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let keys: Vec<_> = (0..1000).map(|key| format!("k{key}")).collect();
    http.request(&json!({"deadline_ms": 1e-6, "queries": [{"backend": "catalog", "keys": keys}]}));
    let said = || node.events().into_iter().find(|event| event.data.get("after_beta") == Some(&json!(94.0)));
    eventually("an interval ends in which deadlines were missed", || said().is_some());
    assert_eq!(said().unwrap().data["applied"], json!(false));
    assert_eq!(http.metric("sherwood_admission_beta{backend=\"catalog\"}"), 88.0);
}

#[test]
fn deadlines_of_keys_fetched_for_listeners_are_counted() {
    let redis = ListenerSetup { protocol: Protocol::Redis, ..listener(0) };
    let (node, _) =
        node_with_rules(vec![rule("a", None, NO_TIME), rule("b", None, DAY)], vec![listener(0), redis]);
    let mut memcached = Client::connect(&node);
    assert_eq!(memcached.ask("get a b c", "END").len(), 7);
    assert_eq!(memcached.ask("mg none1 v U86400000", "EN"), ["EN"]);
    assert_eq!(memcached.ask("mg ab v U86400000", "EN"), ["EN"]);
    let mut redis = Client::connect_to(&node.addresses(Protocol::Redis)[0]);
    assert_eq!(redis.ask("GET az", "$-1"), ["$-1"]);
    let http = Http::of(&node);
    let count = |name: &str| {
        http.metric(&format!(
            "sherwood_deadline_{name}_total{{backend=\"catalog\",tenant=\"default\",class=\"0\"}}"
        ))
    };
    assert_eq!((count("met"), count("missed")), (3.0, 2.0));
}
