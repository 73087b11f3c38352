//! Tests of the events after which a node treats its cache as cold and limits misses by the ramp
//! again.
//!
//! A ramp that starts with one key at a time rejects most of eight keys requested together; a ramp
//! that has ended admits them.

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

/// Returns true if eight keys that were not requested before are all fetched, so that no ramp
/// limits them.
fn is_warm(node: &Driven, new: &mut u32) -> bool {
    let keys: Vec<String> = (*new..*new + 8).map(|key| key.to_string()).collect();
    *new += 8;
    let answer = node.post("/v1/requests", &json!({"queries": [{"backend": "a", "keys": keys}]}));
    let statuses: Vec<_> = answer["results"].as_array().unwrap().iter().map(|key| &key["status"]).collect();
    assert!(statuses.iter().all(|status| *status == "miss" || *status == "rejected"), "{statuses:?}");
    statuses.iter().all(|status| *status == "miss")
}

/// Sends single requests until the ramp, which limits misses of a cold cache, has ended.
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
fn cache_counts_as_cold_only_after_it_is_emptied() {
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
