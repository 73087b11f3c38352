//! Writes through the HTTP port: first to the store, then to the cache.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::json;
use sherwood_config::{WriteTo, Writes};
use sherwood_node::{Node, Setup, SnapshotSetup};
use sherwood_store::Store;

use crate::support::{Fake, Http, Mood, NEVER, answer, partition, setup};
use crate::wait::eventually;

/// The setup of a node with one backend, `catalog`, of one store.
fn one() -> (Setup, Arc<Fake>) {
    let fake = Fake::new([("a", &b"old"[..])]);
    (setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]), fake)
}

fn start((setup, fake): (Setup, Arc<Fake>)) -> (Node, Arc<Fake>) {
    (Node::start(setup).unwrap(), fake)
}

/// Requests the key from the gateway; returns status and value.
fn read(http: Http, key: &str) -> (String, String) {
    let answer = http.key("catalog", key);
    let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("value"))
}

fn pair(status: &str, value: &str) -> (String, String) {
    (status.to_owned(), value.to_owned())
}

#[test]
fn written_value_is_in_the_store_and_then_in_the_cache() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "new").status, 204);
    assert_eq!(fake.value("a").unwrap(), "new");
    assert_eq!((read(http, "a"), fake.calls()), (pair("hit", "new"), 0));
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/b%2F1", "").status, 204);
    assert_eq!(read(http, "b/1"), pair("hit", ""));
    assert_eq!(http.ask("DELETE", "/v1/keys/catalog/a", "").status, 204);
    assert_eq!((read(http, "a"), fake.value("a")), (pair("not_found", ""), None));
    assert_eq!(
        http.metric(r#"sherwood_backend_writes_total{backend="catalog",outcome="acknowledged"}"#),
        3.0
    );
}

#[test]
fn value_that_the_store_may_change_is_fetched_after_the_write() {
    let (setup, fake) = one();
    fake.has_its_own_words.store(true, Relaxed);
    let (node, _) = start((setup, fake));
    let http = Http::of(&node);
    assert_eq!(read(http, "a"), pair("miss", "old"));
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "new").status, 204);
    assert_eq!((read(http, "a"), read(http, "a")), (pair("miss", "new"), pair("hit", "new")));
}

#[test]
fn path_that_is_not_a_valid_key_is_refused_with_the_reason() {
    let (node, _) = start(one());
    let http = Http::of(&node);
    let refusal = http.ask("PUT", "/v1/keys/catalog/%FF", "").refusal(400);
    assert!(refusal.contains("UTF-8"), "{refusal}");
    let refusal = http.ask("PUT", "/v1/keys/catalog/a?b", "").refusal(400);
    assert!(refusal.contains("%3F"), "{refusal}");
}

#[test]
fn written_value_enters_the_writers_partition_and_leaves_all_others() {
    let (mut setup, fake) = one();
    setup.tenants.push("shop".to_owned());
    setup.partitions.push(partition(1, 0));
    let (node, _) = start((setup, fake.clone()));
    let http = Http::of(&node);
    let shop = json!({"tenant": "shop", "queries": [{"backend": "catalog", "keys": ["a"]}]});
    assert_eq!(read(http, "a"), pair("miss", "old"));
    assert_eq!(http.request(&shop)["results"][0]["value"], "old");
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a?tenant=shop", "new").status, 204);
    assert_eq!(http.request(&shop)["results"][0]["status"], "hit");
    assert_eq!(read(http, "a"), pair("miss", "new"));
    let refusal = http.ask("PUT", "/v1/keys/catalog/a?tenant=nobody", "").refusal(404);
    assert!(refusal.contains("default, shop"), "{refusal}");
}

#[test]
fn fetch_begun_before_a_write_ended_does_not_fill_the_cache() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    fake.be(Mood::Hang);
    let body = json!({"queries": [{"backend": "catalog", "keys": ["a"]}]}).to_string();
    let before = http.send("POST", "/v1/requests", &body);
    eventually("the old value is read", || fake.calls() == 1);
    fake.write(Mood::Hang);
    let write = http.send("PUT", "/v1/keys/catalog/a", "new");
    eventually("the store is asked to write", || fake.writes() == 1);
    fake.be(Mood::Answer);
    assert_eq!(answer(before).json()["results"][0]["value"], "old");
    assert_eq!(read(http, "a"), pair("miss", "old"), "a fetch during the write");
    assert_eq!(read(http, "a"), pair("miss", "old"), "which is not kept either");
    fake.be(Mood::Hang);
    let during = http.send("POST", "/v1/requests", &body);
    eventually("the old value is read again", || fake.calls() == 4);
    fake.write(Mood::Answer);
    assert_eq!(answer(write).status, 204);
    assert_eq!(read(http, "a"), pair("hit", "new"));
    fake.be(Mood::Answer);
    assert_eq!(
        answer(during).json()["results"][0]["value"],
        "old",
        "it asked before the write was acknowledged"
    );
    assert_eq!(read(http, "a"), pair("hit", "new"));
}

#[test]
fn deleted_key_is_not_restored_by_an_earlier_fetch_or_its_waiters() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    fake.be(Mood::Hang);
    let body = json!({"queries": [{"backend": "catalog", "keys": ["a"]}]}).to_string();
    let before = http.send("POST", "/v1/requests", &body);
    eventually("the old value is read", || fake.calls() == 1);
    assert_eq!(http.ask("DELETE", "/v1/keys/catalog/a", "").status, 204);
    let after = http.send("POST", "/v1/requests", &body);
    eventually("who asks afterwards has the store asked again", || fake.calls() == 2);
    fake.be(Mood::Answer);
    assert_eq!(answer(before).json()["results"][0]["value"], "old", "it asked before");
    assert_eq!(answer(after).json()["results"][0]["status"], "not_found");
    assert_eq!(read(http, "a"), pair("not_found", ""));
}

#[test]
fn failed_write_removes_and_fences_its_key() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "new").status, 204);
    fake.write(Mood::Fail);
    let failed = http.ask("PUT", "/v1/keys/catalog/a", "newer");
    let error = failed.refusal(502);
    assert!(
        error.contains("`catalog`") && error.contains("unplugged") && error.contains("may be done"),
        "{error}"
    );
    assert_eq!((&failed.json()["cause"], &failed.json()["outcome"]), (&json!("engine"), &json!("unknown")));
    assert_eq!((read(http, "a"), read(http, "a")), (pair("miss", "new"), pair("miss", "new")));
    assert_eq!(http.metric(r#"sherwood_backend_errors_total{backend="catalog",cause="engine"}"#), 1.0);
    let page = http.ask("GET", "/status", "").body;
    assert!(page.contains("failed at catalog since the start: 1 engine\n"), "{page}");
    fake.be(Mood::Fail);
    let failed = http.key("catalog", "b")["error"].as_str().unwrap().to_owned();
    assert!(
        failed.contains("after 1 attempt: engine: could not get 1 key on store `fake`")
            && failed.contains("look at the disk"),
        "{failed}"
    );
}

#[test]
fn timed_out_write_has_an_unknown_outcome() {
    let (mut setup, fake) = one();
    setup.backends[0].dispatch.timeout = Duration::from_millis(30);
    let (node, fake) = start((setup, fake));
    let http = Http::of(&node);
    fake.write(Mood::Hang);
    let late = http.ask("PUT", "/v1/keys/catalog/a", "new");
    assert!(late.refusal(504).contains("within 30ms"), "{late:?}");
    assert_eq!((&late.json()["cause"], &late.json()["outcome"]), (&json!("timeout"), &json!("unknown")));
    assert_eq!(http.metric(r#"sherwood_backend_errors_total{backend="catalog",cause="timeout"}"#), 1.0);
}

#[test]
fn write_of_a_disconnected_client_completes() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    fake.write(Mood::Hang);
    let client = http.send("PUT", "/v1/keys/catalog/a", "new");
    eventually("the store is asked to write", || fake.writes() == 1);
    drop(client);
    fake.write(Mood::Answer);
    eventually("it is cached", || read(http, "a") == pair("hit", "new"));
    assert_eq!(fake.value("a").unwrap(), "new");
}

#[test]
fn concurrent_writes_of_a_key_are_not_cached() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    fake.write(Mood::Hang);
    let writes = ["1", "2"].map(|value| http.send("PUT", "/v1/keys/catalog/a", value));
    eventually("both are under way", || fake.writes() == 2);
    fake.write(Mood::Answer);
    assert!(writes.into_iter().all(|write| answer(write).status == 204));
    assert_eq!(read(http, "a").0, "miss");
    assert_eq!(read(http, "a").0, "hit", "it is quiet again");
}

#[test]
fn writes_beyond_the_bound_in_flight_are_refused() {
    let (mut setup, fake) = one();
    let dispatch = &mut setup.backends[0].dispatch;
    (dispatch.in_flight_calls_max, dispatch.queued_calls_max) = (1, 0);
    let (node, fake) = start((setup, fake));
    let http = Http::of(&node);
    fake.write(Mood::Hang);
    let first = http.send("PUT", "/v1/keys/catalog/a", "1");
    eventually("it is under way", || fake.writes() == 1);
    let refused = http.ask("PUT", "/v1/keys/catalog/b", "2");
    assert!(refused.refusal(503).contains("1 writes to the backend are under way"), "{refused:?}");
    assert_eq!((&refused.json()["outcome"], fake.writes()), (&json!("not_done"), 1));
    fake.write(Mood::Answer);
    assert_eq!(answer(first).status, 204);
}

#[test]
fn write_to_a_read_only_store_is_refused_and_removes_the_cached_value() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    fake.write(Mood::Refuse);
    assert_eq!(read(http, "a"), pair("miss", "old"));
    let refused = http.ask("PUT", "/v1/keys/catalog/a", "new");
    assert!(refused.refusal(422).contains("it is read-only; write elsewhere"), "{refused:?}");
    assert_eq!(refused.json()["cause"], "unsupported");
    assert_eq!((read(http, "a").0, read(http, "a").0), ("miss".to_owned(), "hit".to_owned()));
    assert_eq!(http.ask("DELETE", "/v1/keys/catalog/a", "").status, 204);
    assert_eq!(read(http, "a"), pair("miss", "old"));
    // If a store accepts writes but refuses this removal, it would return the key again after the
    // client was told that it is gone.
    fake.write(Mood::Lack);
    let refused = http.ask("DELETE", "/v1/keys/catalog/a", "");
    assert!(refused.refusal(422).contains("it has no way to; do it elsewhere"), "{refused:?}");
    assert_eq!(
        (&refused.json()["cause"], &refused.json()["outcome"]),
        (&json!("unsupported"), &json!("not_done"))
    );
    assert_eq!(read(http, "a"), pair("miss", "old"), "the cache lets go of it");
}

#[test]
fn unescaped_question_mark_in_a_key_is_refused() {
    let (node, fake) = start(one());
    let http = Http::of(&node);
    for (method, query) in
        [("DELETE", "?page=2"), ("DELETE", "?"), ("DELETE", "?&"), ("PUT", "?page=2"), ("PUT", "?&")]
    {
        let refused = http.ask(method, &format!("/v1/keys/catalog/a{query}"), "");
        assert!(refused.refusal(400).contains("%3F"), "{method} {query}: {refused:?}");
    }
    assert_eq!((fake.writes(), fake.value("a")), (0, Some("old".into())));
    assert_eq!(http.ask("DELETE", "/v1/keys/catalog/a%3Fpage=2", "").status, 204);
    assert_eq!((fake.writes(), fake.value("a")), (1, Some("old".into())));
}

#[test]
fn invalid_write_is_refused_before_it_is_sent() {
    let (mut setup, fake) = one();
    setup.cache.item_bytes_max = 1 << 10;
    let (node, fake) = start((setup, fake));
    let http = Http::of(&node);
    let large = "x".repeat((1 << 10) + 1);
    assert!(http.ask("PUT", "/v1/keys/catalog/a", &large).refusal(413).contains("1024 bytes"));
    let long = format!("/v1/keys/catalog/{}", "k".repeat(251));
    for method in ["PUT", "DELETE"] {
        assert!(http.ask(method, &long, "").refusal(422).contains("1 to 250"));
    }
    assert!(http.ask("PUT", "/v1/keys/other/a", "").refusal(404).contains("catalog"));
    assert!(http.ask("PUT", "/v1/keys/catalog/a?tenat=x", "").refusal(400).contains("tenat"));
    assert_eq!(fake.writes(), 0);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", &large[1..]).status, 204);
}

#[test]
fn write_is_acknowledged_by_every_replica() {
    let replicas = [Fake::new([]), Fake::new([])];
    let stores = || replicas.iter().map(|fake| fake.clone() as Arc<dyn Store>).collect();
    let node = Node::start(setup(vec![("catalog", stores())])).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "1").status, 204);
    assert!(replicas.iter().all(|fake| fake.value("a").unwrap() == "1"));
    // Writes of a key run one after the other, or the replicas could differ permanently.
    replicas[1].write(Mood::Hang);
    let first = http.send("PUT", "/v1/keys/catalog/b", "1");
    eventually("it is under way", || replicas[1].writes() == 2);
    let second = http.send("PUT", "/v1/keys/catalog/b", "2");
    replicas[1].write(Mood::Answer);
    assert_eq!((answer(first).status, answer(second).status), (204, 204));
    assert_eq!(replicas.each_ref().map(|fake| fake.value("b").unwrap()), ["2", "2"]);
    assert_eq!(read(http, "b"), pair("hit", "2"));
    replicas[0].write(Mood::Refuse);
    let part = http.ask("PUT", "/v1/keys/catalog/a", "2");
    assert_eq!((part.status, &part.json()["outcome"]), (422, &json!("unknown")), "the other one has it");
    assert_eq!(read(http, "a").0, "miss");
}

#[test]
fn removal_is_not_acknowledged_if_only_some_replicas_are_read_only() {
    let replicas = [Fake::new([]), Fake::new([("a", &b"1"[..])])];
    let stores = replicas.iter().map(|fake| fake.clone() as Arc<dyn Store>).collect();
    let mut setup = setup(vec![("catalog", stores)]);
    setup.backends[0].dispatch.timeout = Duration::from_millis(100);
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    replicas[0].write(Mood::Refuse);
    // A different key each time: after an unknown outcome, the next write of the key waits.
    for (key, mood, status, cause) in [
        ("a", Mood::Hang, 504, "timeout"),
        ("b", Mood::Fail, 502, "engine"),
        ("c", Mood::Answer, 422, "unsupported"),
    ] {
        replicas[1].write(mood);
        let answer = http.ask("DELETE", &format!("/v1/keys/catalog/{key}"), "");
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!((&answer.json()["cause"], &answer.json()["outcome"]), (&json!(cause), &json!("unknown")));
    }
    replicas[1].write(Mood::Refuse);
    assert_eq!(http.ask("DELETE", "/v1/keys/catalog/d", "").status, 204);
}

#[test]
fn write_to_replicas_waits_for_an_earlier_one_of_unknown_outcome() {
    let replicas = [Fake::new([]), Fake::new([])];
    let stores = replicas.iter().map(|fake| fake.clone() as Arc<dyn Store>).collect();
    let mut setup = setup(vec![("catalog", stores)]);
    let timeout = Duration::from_millis(100);
    setup.backends[0].dispatch.timeout = timeout;
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    replicas[1].write(Mood::Fail);
    let begun = Instant::now();
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "1").json()["outcome"], "unknown");
    replicas[1].write(Mood::Answer);
    let second = http.ask("PUT", "/v1/keys/catalog/a", "2");
    let is_refused = second.status == 503 && second.json()["outcome"] == "not_done";
    assert!(is_refused || begun.elapsed() >= timeout, "{second:?}");
    let rewritten = || http.ask("PUT", "/v1/keys/catalog/a", "3").status == 204;
    eventually("it is written again", rewritten);
    assert!(replicas.iter().all(|fake| fake.value("a").unwrap() == "3"));
}

#[test]
fn only_the_first_replica_is_written_and_the_others_get_time_to_settle() {
    let replicas = [Fake::new([]), Fake::new([("a", &b"old"[..])])];
    let stores = replicas.iter().map(|fake| fake.clone() as Arc<dyn Store>).collect();
    let mut setup = setup(vec![("catalog", stores)]);
    setup.backends[0].writes.to = WriteTo::First;
    setup.backends[0].writes.settle = Duration::from_secs(600);
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "new").status, 204);
    assert_eq!((replicas[0].writes(), replicas[1].writes()), (1, 0));
    assert_eq!(read(http, "a"), pair("hit", "new"), "what was written is kept at once");
    let body = json!({"backend": "catalog", "keys": ["a"]});
    assert_eq!(http.ask("POST", "/v1/invalidate", &body.to_string()).json(), json!({"removed": 1}));
    for _ in 0..20 {
        assert_eq!(
            read(http, "a"),
            pair("miss", "new"),
            "the other replica is not asked, and nothing is kept"
        );
    }
    assert_eq!((replicas[0].calls(), replicas[1].calls()), (20, 0));
    replicas[0].be(Mood::Fail);
    assert_eq!(read(http, "a").0, "error", "it has not got the value, and so is no way out");
}

#[test]
fn started_node_waits_for_replicas_to_settle() {
    let start = |settle| {
        let replicas = [Fake::new([("a", &b"new"[..])]), Fake::new([("a", &b"old"[..])])];
        let stores = replicas.iter().map(|fake| fake.clone() as Arc<dyn Store>).collect();
        let mut setup = setup(vec![("catalog", stores)]);
        setup.backends[0].writes = Writes { to: WriteTo::First, settle };
        (Node::start(setup).unwrap(), replicas)
    };
    let (node, replicas) = start(NEVER);
    for _ in 0..20 {
        assert_eq!(read(Http::of(&node), "a"), pair("miss", "new"));
    }
    assert_eq!((replicas[0].calls(), replicas[1].calls()), (20, 0), "it may have been written just before");
    node.stop();
    let (node, replicas) = start(Duration::from_millis(1));
    let mut number = 0;
    eventually("all are asked for what nobody wrote", || {
        number += 1;
        read(Http::of(&node), &number.to_string());
        replicas[1].calls() > 0
    });
    eventually("and it is kept", || read(Http::of(&node), "a").0 == "hit");
}

#[test]
fn write_of_unknown_outcome_keeps_fetches_from_filling_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new([("a", &b"old"[..])]);
    let start = || {
        let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
        let path = directory.path().join("snapshot");
        setup.snapshot = Some(SnapshotSetup { path, time_max: NEVER, fingerprint: 1 });
        Node::start(setup).unwrap()
    };
    let node = start();
    fake.write(Mood::Fail);
    assert_eq!(Http::of(&node).ask("PUT", "/v1/keys/catalog/a", "new").json()["outcome"], "unknown");
    node.stop();
    let node = start();
    let http = Http::of(&node);
    assert_eq!([read(http, "a"), read(http, "a")], [pair("miss", "old"), pair("miss", "old")]);
    fake.put("a", "new");
    assert_eq!(read(http, "a"), pair("miss", "new"));
    node.stop();
}
