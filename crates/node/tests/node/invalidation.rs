//! Removal of many keys from the cache.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sherwood_config::{WriteTo, Writes};
use sherwood_dispatch::RampOptions;
use sherwood_node::Node;
use sherwood_store::{Found, Store};

use crate::support::{Fake, Http, Mood, NEVER, answer, partition, setup};
use crate::wait::eventually;

fn ask(http: Http, body: Value) -> Value {
    let answer = http.ask("POST", "/v1/invalidate", &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn statuses(http: Http, keys: &[&str]) -> Vec<String> {
    let body = json!({"queries": [{"backend": "catalog", "keys": keys}]});
    let results = http.request(&body)["results"].clone();
    results.as_array().unwrap().iter().map(|key| key["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn invalidated_prefix_is_removed_from_every_tenants_partition() {
    let values = ["user:1", "user:2", "page:1"].map(|key| (key, &b"v"[..]));
    let fake = Fake::new(values);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>]), ("plain", vec![])]);
    setup.tenants.push("shop".to_owned());
    setup.partitions.push(partition(1, 0));
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let keys = ["user:1", "user:2", "page:1"];
    assert_eq!(statuses(http, &keys), ["miss"; 3]);
    http.request(&json!({"tenant": "shop", "queries": [{"backend": "catalog", "keys": ["user:1"]}]}));
    assert_eq!(ask(http, json!({"backend": "catalog", "prefix": "user:"})), json!({"removed": 3}));
    assert_eq!(statuses(http, &keys), ["miss", "miss", "hit"]);
    assert_eq!(
        ask(http, json!({"backend": "catalog", "keys": ["user:1", "page:1", "none"]})),
        json!({"removed": 2})
    );
    assert_eq!(statuses(http, &keys), ["miss", "hit", "miss"]);
    assert_eq!(ask(http, json!({"backend": "catalog", "prefix": ""})), json!({"removed": 3}));
    assert_eq!(ask(http, json!({"backend": "plain", "prefix": ""})), json!({"removed": 0}));
}

#[test]
fn fetch_in_flight_does_not_restore_an_invalidated_key() {
    let fake = Fake::new([("user:1", &b"old"[..]), ("page:1", b"old")]);
    let node = Node::start(setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])])).unwrap();
    let http = Http::of(&node);
    fake.be(Mood::Hang);
    let body = json!({"queries": [{"backend": "catalog", "keys": ["user:1", "page:1"]}]}).to_string();
    let fetch = http.send("POST", "/v1/requests", &body);
    eventually("the old value is read", || fake.calls() == 1);
    fake.put("user:1", "new");
    assert_eq!(ask(http, json!({"backend": "catalog", "prefix": "user"})), json!({"removed": 0}));
    fake.be(Mood::Answer);
    assert_eq!(answer(fetch).json()["results"][0]["value"], "old");
    assert_eq!(http.key("catalog", "user:1")["value"], "new");
    assert_eq!(http.key("catalog", "page:1")["status"], "hit", "it does not begin so");
}

#[test]
fn value_of_a_lagging_replica_is_not_cached_after_an_invalidation() {
    let settle = Duration::from_millis(500);
    for which in [json!({"keys": ["a"]}), json!({"prefix": "a"}), json!({"tag": "any"})] {
        let replicas = [Fake::new([("a", &b"old"[..])]), Fake::new([("a", &b"old"[..])])];
        let tags = [&b"any"[..]].into_iter().collect();
        replicas.iter().for_each(|fake| fake.say(Found { tags, ..Found::default() }));
        let stores = replicas.iter().map(|fake| fake.clone() as Arc<dyn Store>).collect();
        let mut setup = setup(vec![("catalog", stores)]);
        setup.backends[0].writes = Writes { to: WriteTo::First, settle };
        let node = Node::start(setup).unwrap();
        let http = Http::of(&node);
        eventually("what was written before the start has settled", || {
            http.key("catalog", "a")["status"] == "hit"
        });
        replicas[0].put("a", "new");
        let mut body = which;
        body["backend"] = json!("catalog");
        let told = Instant::now();
        ask(http, body);
        while told.elapsed() < settle {
            let answer = http.key("catalog", "a");
            let is_right = (&answer["status"], &answer["value"]) == (&json!("miss"), &json!("new"));
            assert!(is_right || told.elapsed() >= settle, "{answer}");
        }
        node.stop();
    }
}

#[test]
fn invalidation_must_select_by_exactly_one_of_keys_prefix_or_tag() {
    let node = Node::start(setup(vec![("catalog", vec![])])).unwrap();
    let refused = |body: Value, status| {
        Http::of(&node).ask("POST", "/v1/invalidate", &body.to_string()).refusal(status)
    };
    assert!(refused(json!({"backend": "other", "prefix": ""}), 404).contains("catalog"));
    for body in [json!({"backend": "catalog"}), json!({"backend": "catalog", "prefix": "a", "keys": []})] {
        assert!(refused(body, 400).contains("give one of `keys`"));
    }
    assert!(refused(json!({"backend": "catalog", "prefx": ""}), 400).contains("prefx"));
}

#[test]
fn invalidated_tag_removes_the_items_that_have_it() {
    let fake = Fake::new([("plain", &b"v"[..])]);
    let node = Node::start(setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])])).unwrap();
    let http = Http::of(&node);
    for (key, tags) in [("a", "user:1, page"), ("b", "user:2,,page"), ("c", "")] {
        let headers = format!("sherwood-tags: {tags}\r\n");
        assert_eq!(
            answer(http.send_with("PUT", &format!("/v1/keys/catalog/{key}"), &headers, "v")).status,
            204
        );
    }
    assert_eq!(http.key("catalog", "plain")["status"], "miss");
    assert_eq!(ask(http, json!({"backend": "catalog", "tag": "user:1"})), json!({"removed": 1}));
    assert_eq!(statuses(http, &["a", "b", "c", "plain"]), ["miss", "hit", "hit", "hit"]);
    assert_eq!(ask(http, json!({"backend": "catalog", "tag": "page"})), json!({"removed": 1}));
    assert_eq!(
        statuses(http, &["a", "b", "c", "plain"]),
        ["hit", "miss", "hit", "hit"],
        "what was fetched has no tag"
    );
}

#[test]
fn invalidation_removes_cached_absences_too() {
    let fake = Fake::new([]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].rules.negative_ttl = NEVER;
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    for which in [json!({"prefix": "us"}), json!({"tag": "any"}), json!({"keys": ["user:1"]})] {
        http.key("catalog", "user:1");
        let before = fake.calls();
        assert_eq!((&http.key("catalog", "user:1")["status"], fake.calls()), (&json!("not_found"), before));
        let mut body = which;
        body["backend"] = json!("catalog");
        ask(http, body);
        assert_eq!(
            (&http.key("catalog", "user:1")["status"], fake.calls()),
            (&json!("not_found"), before + 1)
        );
    }
}

/// A ramp learns the load that the backend sustains with a cold cache. Removing a few items does
/// not make the cache cold.
#[test]
fn ramp_keeps_its_limit_when_few_items_are_removed() {
    let fake = Fake::new([("a", &b"v"[..]), ("b", b"v"), ("c", b"v")]);
    let mut setup = setup(vec![("catalog", vec![fake.clone() as Arc<dyn Store>])]);
    let interval = Duration::from_millis(10);
    setup.backends[0].dispatch.ramp = Some(RampOptions { start_keys: 1_000, interval, ..Default::default() });
    // The replica must stay up: the ramp learns nothing from one that is down.
    setup.backends[0].dispatch.probe.failures_max = u32::MAX;
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    assert_eq!(statuses(http, &["a", "b", "c"]), ["miss"; 3]);
    fake.be(Mood::Fail);
    let window = || http.metric(r#"sherwood_backend_ramp_keys{backend="catalog"}"#);
    let begun = window();
    eventually("it is asked less", || {
        http.key("catalog", "none");
        window() < begun
    });
    let learned = window();
    assert_eq!(ask(http, json!({"backend": "catalog", "prefix": "a"})), json!({"removed": 1}));
    assert_eq!(ask(http, json!({"backend": "catalog", "tag": "page"})), json!({"removed": 0}));
    assert_eq!(window(), learned);
    assert_eq!(ask(http, json!({"backend": "catalog", "prefix": ""})), json!({"removed": 2}));
    assert_eq!(window(), 1_000.0, "now it is cold");
}
