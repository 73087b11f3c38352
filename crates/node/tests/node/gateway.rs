//! Tests of `POST /v1/requests`.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use sherwood_node::Node;
use sherwood_store::{KvOptions, Store, StoreOptions, open};

use crate::support::{Fake, Http, Mood, NEVER, partition, setup, without_latencies};
use crate::wait::eventually;

fn node_with(values: &[(&str, &[u8])]) -> (Node, Arc<Fake>) {
    let fake = Fake::new(values.iter().copied());
    let node = Node::start(setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])])).unwrap();
    (node, fake)
}

fn queries(queries: Value) -> Value {
    json!({ "queries": queries })
}

#[test]
fn value_of_a_store_on_disk_is_a_hit_the_second_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = open("catalog", &StoreOptions::Kv(KvOptions::new(directory.path().join("kv")))).unwrap();
    let blocking = tokio::runtime::Builder::new_current_thread().build().unwrap();
    blocking.block_on(store.put(Bytes::from("chair"), Bytes::from("wood"))).unwrap();
    let node = Node::start(setup(vec![("catalog", vec![store])])).unwrap();
    let http = Http::of(&node);
    let body = queries(json!([{"backend": "catalog", "keys": ["chair", "table"]}]));
    let expected = |status| {
        json!({"blocking_backend": "catalog", "results": [
            {"backend": "catalog", "key": "chair", "status": status, "value": "wood", "encoding": "utf8"},
            {"backend": "catalog", "key": "table", "status": "not_found"},
        ]})
    };
    assert_eq!(without_latencies(http.request(&body)), expected("miss"));
    assert_eq!(without_latencies(http.request(&body)), expected("hit"));
    node.stop();
}

#[test]
fn values_of_an_answer_are_text_or_base64_or_left_out() {
    let (node, _) = node_with(&[("text", b"caf\xc3\xa9 \"x\"\n"), ("bytes", &[0, 255]), ("empty", b"")]);
    let http = Http::of(&node);
    let body = queries(json!([{"backend": "catalog", "keys": ["text", "bytes", "empty"]}]));
    let mut body = json!({"values": true, "queries": body["queries"]});
    for status in ["miss", "hit"] {
        let results = without_latencies(http.request(&body))["results"].clone();
        let expected = json!([
            {"backend": "catalog", "key": "text", "status": status, "value": "caf\u{e9} \"x\"\n", "encoding": "utf8"},
            {"backend": "catalog", "key": "bytes", "status": status, "value": "AP8=", "encoding": "base64"},
            {"backend": "catalog", "key": "empty", "status": status, "value": "", "encoding": "utf8"},
        ]);
        assert_eq!(results, expected);
    }
    body["values"] = json!(false);
    let expected = json!([
        {"backend": "catalog", "key": "text", "status": "hit"},
        {"backend": "catalog", "key": "bytes", "status": "hit"},
        {"backend": "catalog", "key": "empty", "status": "hit"},
    ]);
    assert_eq!(without_latencies(http.request(&body))["results"], expected);
}

#[test]
fn stage_starts_when_the_one_before_has_ended_and_the_last_query_blocks() {
    let (first, second) = (Fake::new([("a", &b"1"[..])]), Fake::new([("b", &b"2"[..])]));
    let stores = |fake: &Arc<Fake>| vec![Arc::clone(fake) as Arc<dyn Store>];
    let node = Node::start(setup(vec![("first", stores(&first)), ("second", stores(&second))])).unwrap();
    let http = Http::of(&node);
    let (a, b) = (json!({"backend": "first", "keys": ["a"]}), json!({"backend": "second", "keys": ["b"]}));
    let body = json!({"stages": [[a], [], [b, a]]});
    let answer = http.request(&body);
    let latency = |at: usize| answer["results"][at]["latency_ms"].as_f64().unwrap();
    assert!(latency(0) <= latency(2) && latency(2) <= latency(1), "{answer}");
    let expected = json!({"blocking_backend": "second", "results": [
        {"backend": "first", "key": "a", "status": "miss", "value": "1", "encoding": "utf8"},
        {"backend": "second", "key": "b", "status": "miss", "value": "2", "encoding": "utf8"},
        {"backend": "first", "key": "a", "status": "hit", "value": "1", "encoding": "utf8"},
    ]});
    assert_eq!(without_latencies(answer), expected, "the second stage finds what the first has fetched");
    assert_eq!((first.calls(), second.calls()), (1, 1));
    let unknown = json!({"stages": [[a], [{"backend": "nosuch", "keys": []}]]});
    let refused = http.ask("POST", "/v1/requests", &unknown.to_string());
    assert!(refused.refusal(422).contains("nosuch"));
}

#[test]
fn values_omitted_from_the_answer_are_cached() {
    let (node, fake) = node_with(&[("a", b"1")]);
    let http = Http::of(&node);
    http.request(&json!({"values": false, "queries": [{"backend": "catalog", "keys": ["a"]}]}));
    assert_eq!(http.key("catalog", "a")["value"], "1");
    assert_eq!(fake.calls(), 1);
}

#[test]
fn repeated_key_is_answered_each_time_and_fetched_once() {
    let (node, fake) = node_with(&[("a", b"1")]);
    let query = json!({"backend": "catalog", "keys": ["a", "b", "a"]});
    let results = Http::of(&node).request(&queries(json!([query, query])))["results"].clone();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|key| key["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["miss", "not_found", "miss", "miss", "not_found", "miss"]);
    assert_eq!(fake.calls(), 1);
}

#[test]
fn request_without_keys_has_no_results() {
    let (node, fake) = node_with(&[]);
    let http = Http::of(&node);
    for body in [json!({"queries": []}), queries(json!([{"backend": "catalog", "keys": []}]))] {
        assert_eq!(without_latencies(http.request(&body)), json!({"blocking_backend": null, "results": []}));
    }
    assert_eq!(fake.calls(), 0);
}

#[test]
fn backend_without_a_store_answers_from_the_cache_only() {
    let node = Node::start(setup(vec![("plain", vec![])])).unwrap();
    assert_eq!(Http::of(&node).key("plain", "a")["status"], "not_found");
}

#[test]
fn malformed_request_body_is_refused_with_its_json_path() {
    let (node, fake) = node_with(&[]);
    let http = Http::of(&node);
    let long = format!(r#"{{"queries":[{{"backend":"catalog","keys":["{}"]}}]}}"#, "k".repeat(251));
    let many = format!(r#"{{"queries":[{{"backend":"catalog","keys":[{}"k"]}}]}}"#, r#""k","#.repeat(16_384));
    for (body, status, path, part) in [
        (r#"{"queries":[{"backend":"catalog","keys":[1]}]}"#, 400, "queries[0].keys[0]", "write a text"),
        (r#"{"queries":[{"backend":"catalog"}]}"#, 400, "queries[0]", "keys"),
        (r#"{"queries":[],"quieres":[]}"#, 400, "quieres", "did you mean `queries`"),
        (r#"{"queries":[],"deadline_ms":0}"#, 400, "deadline_ms", "above 0 and at most 86400000 ms"),
        (
            r#"{"queries":[{"backend":"catalog","keys":[],"deadline_ms":-5}]}"#,
            400,
            "queries[0].deadline_ms",
            "-5 ms; it must be above 0 and at most 86400000 ms",
        ),
        (
            r#"{"queries":[{"backend":"catalog","keys":[],"stale_ok_ms":604800001}]}"#,
            400,
            "queries[0].stale_ok_ms",
            "0 to 604800000 ms",
        ),
        (r#"{"queries":[{"backend":"catalog","keys":["a",""]}]}"#, 400, "queries[0].keys[1]", "0 bytes"),
        (&long, 400, "queries[0].keys[0]", "251 bytes"),
        (&many, 400, "queries", "16385 keys"),
        (r#"{"queries":"#, 400, "queries", "ends within a value"),
        ("", 400, ".", "there is no JSON"),
        (r#"{"queries":[{"backend":"catalogue","keys":[]}]}"#, 422, "queries[0].backend", "known: catalog"),
        (r#"{"tenant":"gold","queries":[]}"#, 422, "tenant", "known: default"),
    ] {
        let answer = http.ask("POST", "/v1/requests", body);
        let error = answer.refusal(status);
        assert!(error.contains(part), "{part:?} in {error:?}");
        assert_eq!(answer.json()["path"], path, "{error}");
    }
    assert_eq!(fake.calls(), 0);
}

#[test]
fn too_large_request_body_is_refused() {
    let (node, _) = node_with(&[]);
    let answer = Http::of(&node).ask("POST", "/v1/requests", &" ".repeat((4 << 20) + 1));
    assert!(answer.refusal(413).contains("4194304 bytes"));
}

#[test]
fn answer_over_its_bound_omits_values_with_a_reason() {
    let large = vec![b'x'; 1 << 20];
    let (node, _) = node_with(&[("large", &large), ("small", b"s")]);
    let http = Http::of(&node);
    for _ in 0..2 {
        let keys: Vec<_> = std::iter::repeat_n("large", 17).chain(["small"]).collect();
        let answer = http.request(&queries(json!([{"backend": "catalog", "keys": keys}])));
        let results = answer["results"].as_array().unwrap();
        assert!(results[..16].iter().all(|key| key["value"].as_str().unwrap().len() == 1 << 20));
        assert_eq!(results[16]["status"], "rejected");
        assert!(results[16]["error"].as_str().unwrap().contains("16 MiB"));
        assert_eq!(results[17]["value"].as_str().or(results[17]["status"].as_str()), Some("rejected"));
    }
}

/// A node whose buffers are limited to `bytes_max`.
fn node_with_buffers(bytes_max: u64, values: &[(&str, &[u8])]) -> (Node, Arc<Fake>) {
    let fake = Fake::new(values.iter().copied());
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.buffers_bytes_max = bytes_max;
    (Node::start(setup).unwrap(), fake)
}

#[test]
fn values_over_the_buffer_budget_are_rejected_and_counted() {
    let (large, half) = (vec![b'x'; 300 << 10], vec![b'x'; 200 << 10]);
    let (node, _) = node_with_buffers(256 << 10, &[("large", &large), ("half", &half), ("small", b"s")]);
    let http = Http::of(&node);
    // The first value exceeds the budget; the second fits, but not together with its text.
    for (round, key) in ["large", "half", "large", "half"].into_iter().enumerate() {
        let answer = http.request(&queries(json!([{"backend": "catalog", "keys": [key, "small"]}])));
        assert_eq!(answer["results"][0]["status"], "rejected", "{key}");
        let error = answer["results"][0]["error"].as_str().unwrap();
        assert!(error.contains("256KiB") && error.contains("buffers in [memory]"), "{error}");
        assert_eq!(answer["results"][1]["value"], "s");
        assert_eq!(http.metric("sherwood_buffers_refusals_total"), (round + 1) as f64);
    }
    let body = json!({"values": false, "queries": [{"backend": "catalog", "keys": ["large"]}]});
    assert_eq!(http.request(&body)["results"][0]["status"], "hit");
    let keys = vec!["small"; 1000];
    let many = queries(json!([{"backend": "catalog", "keys": keys}])).to_string();
    assert!(http.ask("POST", "/v1/requests", &many).refusal(503).contains("256KiB"));
    eventually("all is given back", || http.metric("sherwood_buffers_bytes") == 0.0);
}

#[test]
fn unread_answer_holds_buffers_until_its_client_disconnects() {
    let mut values = vec![b'x'; 1 << 20];
    values[0] = b'"';
    let (node, _) = node_with_buffers(40 << 20, &[("large", &values)]);
    let http = Http::of(&node);
    let body = queries(json!([{"backend": "catalog", "keys": vec!["large"; 16]}]));
    assert_eq!(http.key("catalog", "large")["value"].as_str().unwrap().len(), 1 << 20);
    let silent = http.send("POST", "/v1/requests", &body.to_string());
    eventually("the answer waits", || {
        (16 << 20..20 << 20).contains(&(http.metric("sherwood_buffers_bytes") as u64))
    });
    let statuses: Vec<_> =
        http.request(&body)["results"].as_array().unwrap().iter().map(|key| key["status"].clone()).collect();
    assert!(statuses.contains(&json!("rejected")) && statuses[0] == "hit", "{statuses:?}");
    drop(silent);
    eventually("all is given back", || http.metric("sherwood_buffers_bytes") == 0.0);
    let results = http.request(&body)["results"].clone();
    assert!(results.as_array().unwrap().iter().all(|key| key["status"] == "hit"));
}

#[test]
fn incomplete_body_holds_buffers_until_its_client_disconnects() {
    let (node, _) = node_with_buffers(256 << 10, &[]);
    let http = Http::of(&node);
    let mut slow = http.begin("POST", "/v1/requests", 4 << 20);
    slow.write_all(&[b' '; 100 << 10]).unwrap();
    let held = || http.metric("sherwood_buffers_bytes");
    eventually("the beginning of the body is held", || held() >= f64::from(200 << 10));
    let body = " ".repeat(100 << 10);
    for path in ["/v1/requests", "/v1/reports"] {
        assert!(http.ask("POST", path, &body).refusal(503).contains("raise buffers in [memory]"));
    }
    assert_eq!(http.metric("sherwood_buffers_refusals_total"), 2.0);
    drop(slow);
    eventually("all is given back", || held() == 0.0);
    assert_eq!(http.ask("POST", "/v1/reports", &format!("[]{body}")).status, 200);
}

/// The highest latency in the SLO's window, once there is one.
fn slowest_ms(http: Http) -> f64 {
    let mut current = None;
    eventually("a request is observed", || {
        current = http.get("/v1/slo")["current_ms"].as_f64();
        current.is_some()
    });
    current.unwrap()
}

#[test]
fn failed_query_counts_with_its_timeout_and_best_effort_query_with_its_latency() {
    for (best_effort, counts_as_time_out) in [(false, true), (true, false)] {
        let (node, fake) = node_with(&[]);
        fake.be(Mood::Fail);
        let http = Http::of(&node);
        let query = json!({"backend": "catalog", "keys": ["a"], "best_effort": best_effort});
        let answer = http.request(&queries(json!([query])));
        assert_eq!(answer["results"][0]["status"], "error");
        let error = answer["results"][0]["error"].as_str().unwrap();
        assert!(error.contains("unplugged"), "{error}");
        assert_eq!((http.metric("sherwood_requests_total"), http.metric("sherwood_keys_total")), (1.0, 1.0));
        // The answer has the time that the client waited.
        assert_eq!(answer["latency_ms"], answer["results"][0]["latency_ms"]);
        assert_eq!(slowest_ms(http) >= NEVER.as_secs_f64() * 1e3, counts_as_time_out);
    }
}

#[test]
fn tenant_without_a_partition_of_its_own_uses_the_default_tenants() {
    let fake = Fake::new([("a", &b"1"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.tenants = ["default", "gold", "free"].map(str::to_owned).to_vec();
    setup.partitions.push(partition(1, 0));
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let status = |tenant: &str| {
        let body = json!({"tenant": tenant, "queries": [{"backend": "catalog", "keys": ["a"]}]});
        http.request(&body)["results"][0]["status"].clone()
    };
    assert_eq!(
        ["default", "gold", "free", "gold", "default"].map(status),
        ["miss", "miss", "hit", "hit", "hit"]
    );
    let partitions = http.get("/v1/partitions");
    assert_eq!((&partitions[0]["name"], &partitions[1]["name"]), (&json!("catalog"), &json!("gold:catalog")));
    assert_eq!((&partitions[0]["hits"], &partitions[1]["hits"]), (&json!(2), &json!(1)));
}
