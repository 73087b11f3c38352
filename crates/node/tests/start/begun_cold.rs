//! When a node takes its cache for cold, and so lets misses through at the ramp's pace again.
//!
//! A ramp that begins with a key at a time lets no eight through that are asked for together, and
//! one that has ended does.

use std::time::Duration;

use serde_json::{Value, json};
use sherwood_model::PartitionId;

use super::driven::Driven;

const CONFIGURATION: &str = r#"
    [[backend]]
    name = "a"
    ramp = { start = 1 }
    store = { kind = "compute", n = 1, bytes = "1KiB" }
"#;

/// Whether eight keys that nobody has asked for yet are all fetched.
fn is_warm(node: &Driven, new: &mut u32) -> bool {
    let keys: Vec<String> = (*new..*new + 8).map(|key| key.to_string()).collect();
    *new += 8;
    let answer = node.post("/v1/requests", &json!({"queries": [{"backend": "a", "keys": keys}]}));
    let statuses: Vec<_> = answer["results"].as_array().unwrap().iter().map(|key| &key["status"]).collect();
    assert!(statuses.iter().all(|status| *status == "miss" || *status == "rejected"), "{statuses:?}");
    statuses.iter().all(|status| *status == "miss")
}

/// Asks for little until nothing has been refused for long enough.
fn warm_up(node: &Driven, new: &mut u32) {
    for _ in 0..12 {
        node.pass(Duration::from_secs(1));
        node.post("/v1/requests", &json!({"queries": [{"backend": "a", "keys": [new.to_string()]}]}));
        *new += 1;
    }
}

fn invalidate(node: &Driven, which: Value) {
    let mut body = json!({"backend": "a"});
    body.as_object_mut().unwrap().extend(which.as_object().unwrap().clone());
    node.post("/v1/invalidate", &body);
}

#[test]
fn only_what_empties_the_cache_makes_it_cold() {
    let (node, mut new) = (Driven::new(CONFIGURATION), 0);
    assert!(!is_warm(&node, &mut new));
    warm_up(&node, &mut new);
    assert!(is_warm(&node, &mut new));
    for some in [json!({"keys": ["1"]}), json!({"prefix": "2"}), json!({"tag": "x"})] {
        invalidate(&node, some);
        assert!(is_warm(&node, &mut new));
    }
    invalidate(&node, json!({"prefix": ""}));
    assert!(!is_warm(&node, &mut new));
    warm_up(&node, &mut new);
    assert!(is_warm(&node, &mut new));
    let now = node.core.clock.now();
    node.core.flush(PartitionId(0), now, || node.core.cache.flush(Some(PartitionId(0)), now, now));
    assert!(!is_warm(&node, &mut new));
}
