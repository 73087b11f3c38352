//! The published policies in a running node: each gets its inputs, moves bytes, and reports the
//! reason.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_node::{Node, Setup};
use sherwood_policy::{FairMode, TaoOptions};
use sherwood_store::{ComputeOptions, Store, StoreOptions, open};

use crate::support::{Http, TOTAL, setup};
use crate::wait::eventually;

const MIB: u64 = 1 << 20;

fn compute() -> Arc<dyn Store> {
    let options = ComputeOptions { n: 1, bytes: 1000, ..ComputeOptions::default() };
    open("compute", &StoreOptions::Compute(options)).unwrap()
}

/// A node of two backends with exact miss ratio curves; `a` has a mebibyte and `b` the rest.
fn node(change: impl FnOnce(&mut Setup)) -> Node {
    let mut setup = setup(vec![("a", vec![compute()]), ("b", vec![compute()])]);
    setup.cache.ghost_rate = 1.0;
    setup.partitions[0].initial_bytes = Some(MIB);
    setup.partitions[1].initial_bytes = Some(TOTAL - MIB);
    change(&mut setup);
    Node::start(setup).unwrap()
}

fn allocated(http: Http) -> Vec<u64> {
    let partitions = http.get("/v1/partitions");
    partitions.as_array().unwrap().iter().map(|one| one["allocated_bytes"].as_u64().unwrap()).collect()
}

/// Switches to the policy, which decides at once, and returns the decision.
#[track_caller]
fn decide(http: Http, policy: &str) -> Value {
    let answer = http.ask("PUT", "/v1/control", &json!({"policy": policy}).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["latest"].clone()
}

fn ask(http: Http, backend: &str, keys: std::ops::Range<u32>) {
    let keys: Vec<_> = keys.map(|key| key.to_string()).collect();
    http.request(&json!({"values": false, "queries": [{"backend": backend, "keys": keys}]}));
}

/// Requests a fifth more keys of `a` than it has room for, and a few of `b`; both have some hits.
fn load(http: Http) {
    for _ in 0..4 {
        ask(http, "a", 0..1_150);
        ask(http, "a", 1_149..1_150);
        ask(http, "b", 0..100);
    }
}

/// Checks that the decision moved bytes from `b` to `a`, and that its message has these words.
#[track_caller]
fn a_got(http: Http, decision: &Value, words: &str) {
    let [a, b] = allocated(http)[..] else { panic!("two partitions") };
    assert!(a > MIB && a <= MIB + TOTAL / 100 && a + b == TOTAL, "{a} {b}: {decision}");
    assert!(decision["line"].as_str().unwrap().contains(words), "{decision}");
    assert_eq!((&decision["kept"], &decision["applied"]), (&Value::Null, &json!(true)));
}

#[test]
fn cliffhanger_grows_the_partition_with_the_steeper_miss_ratio_curve() {
    let node = node(|_| ());
    let http = Http::of(&node);
    assert_eq!(decide(http, "cliffhanger")["kept"], "no key was looked up in the window");
    load(http);
    let decision = decide(http, "cliffhanger");
    a_got(http, &decision, "of the hits just beyond the budgets); given by b -");
}

#[test]
fn fair_grows_the_partition_with_the_lowest_hit_ratio() {
    let node = node(|_| ());
    let http = Http::of(&node);
    load(http);
    let decision = decide(http, "fair");
    a_got(http, &decision, "of what is missing to the mean hit ratio");
}

#[test]
fn fair_can_use_miss_ratio_curves() {
    let node = node(|setup| setup.control.fair.mode = FairMode::Waterfill);
    let http = Http::of(&node);
    load(http);
    let decision = decide(http, "fair");
    a_got(http, &decision, "(misses from ");
}

#[test]
fn lama_times_misses_while_selected_and_uses_miss_ratio_curves() {
    let node = node(|_| ());
    let http = Http::of(&node);
    load(http);
    let unknown = "what other sizes would bring is not known";
    assert_eq!(decide(http, "lama")["kept"], unknown, "misses were not timed before");
    // New keys, so that both backends have misses.
    ask(http, "a", 2_000..2_010);
    ask(http, "b", 2_000..2_010);
    let decision = decide(http, "lama");
    a_got(http, &decision, "(query P99 from ");
    decide(http, "static");
    ask(http, "a", 3_000..3_010);
    assert_eq!(decide(http, "lama")["kept"], unknown, "what was timed is dropped");
}

#[test]
fn policies_that_need_miss_ratio_curves_keep_the_budgets_without_them() {
    let node = node(|setup| setup.cache.ghost_rate = 0.0);
    let http = Http::of(&node);
    for policy in ["cliffhanger", "lama"] {
        // Each decision uses the look-ups since the one before.
        load(http);
        assert_eq!(decide(http, policy)["kept"], "what other sizes would bring is not known");
    }
    assert_eq!(allocated(http), [MIB, TOTAL - MIB]);
}

/// Reports requests of which the slow ones were slowest at `a`, so that `a` counts as blocking
/// them.
fn report(http: Http) {
    let report = |i: u64| json!({"latency_us": 1_000 + 10 * i, "blocking": if i >= 970 { "a" } else { "b" }});
    let reports: Vec<_> = (0..1_000).map(report).collect();
    assert_eq!(http.ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
}

#[test]
fn tao_decides_like_robinhood_while_it_learns() {
    let node = node(|_| ());
    let http = Http::of(&node);
    report(http);
    let decision = decide(http, "tao");
    a_got(http, &decision, "of the slow requests");
}

#[test]
fn tao_moves_nothing_after_its_learning_phase() {
    let node = node(|setup| {
        setup.policy = "tao".to_owned();
        setup.control.delta = Duration::from_millis(10);
        setup.control.tao = TaoOptions { learn: Duration::from_millis(1), ..TaoOptions::default() };
    });
    let http = Http::of(&node);
    // Learning begins at the first decision, which has no requests, and ends at the next.
    eventually("it begins", || http.get("/v1/control")["decisions"].as_u64().unwrap() > 0);
    report(http);
    eventually("it sees the requests", || {
        http.get("/v1/control")["latest"]["kept"] == "they are as they should be"
    });
    assert_eq!(allocated(http), [MIB, TOTAL - MIB]);
}
