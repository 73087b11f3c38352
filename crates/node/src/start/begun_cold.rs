//! When a node takes its cache for cold, and so lets misses through at the ramp's pace again.
//!
//! On a clock that stands still, a ramp that begins with a key a second lets one key through and no other, until it begins anew.

use serde_json::{Value, json};
use sherwood_model::PartitionId;

use super::driven::Driven;

const CONFIGURATION: &str = r#"
    [[backend]]
    name = "a"
    ramp = { start = 1 }
    store = { kind = "compute", n = 1, bytes = "1KiB" }
"#;

fn status(node: &Driven, key: &str) -> Value {
    let answer = node.post("/v1/requests", &json!({"queries": [{"backend": "a", "keys": [key]}]}));
    answer["results"][0]["status"].clone()
}

fn invalidate(node: &Driven, which: Value) {
    let mut body = json!({"backend": "a"});
    body.as_object_mut().unwrap().extend(which.as_object().unwrap().clone());
    node.post("/v1/invalidate", &body);
}

#[test]
fn only_what_empties_the_cache_makes_it_cold() {
    let node = Driven::new(CONFIGURATION);
    assert_eq!([status(&node, "1"), status(&node, "1"), status(&node, "2")], ["miss", "hit", "rejected"]);
    for some in [json!({"keys": ["9"]}), json!({"prefix": "9"}), json!({"tag": "x"})] {
        invalidate(&node, some);
        assert_eq!(status(&node, "2"), "rejected");
    }
    invalidate(&node, json!({"prefix": ""}));
    assert_eq!([status(&node, "2"), status(&node, "3")], ["miss", "rejected"]);
    let now = node.core.clock.now();
    node.core.flush(PartitionId(0), now, || node.core.cache.flush(Some(PartitionId(0)), now, now));
    assert_eq!([status(&node, "3"), status(&node, "4")], ["miss", "rejected"]);
}
