//! Tests of changes that are refused in part: nothing has changed then.

use serde_json::{Value, json};
use sherwood_config::{Changes, Config, Flags, parse};

use super::driven::Driven;
use crate::start::reload::apply;

const CONFIGURATION: &str = r#"
    [memory]
    total = "8MiB"
    [control]
    policy = "equal"
    [tenants]
    policy = "hare"
    [[tenant]]
    name = "a"
    weight = 1.0
    [[tenant]]
    name = "b"
    [[backend]]
    name = "orders"
    store = { kind = "compute", n = 1, bytes = "4KiB" }
    [[resource]]
    name = "orders-reads"
    kind = "reads"
    backend = "orders"
    unit = "count"
    total = 200
"#;

fn config(text: &str) -> Config {
    let policies = sherwood_policy::available_without_options();
    parse("changes.toml", text, &Flags::default(), policies).unwrap()
}

fn state(node: &Driven) -> (Value, Value, Vec<String>) {
    let (control, tenants) = (node.get("/v1/control"), node.get("/v1/tenants")["tenants"].clone());
    let said = node.core.events.latest().into_iter().map(|event| event.message);
    (control, tenants, said.collect())
}

#[test]
fn reload_that_is_refused_in_part_changes_nothing() {
    let node = Driven::new(CONFIGURATION);
    let before = state(&node);
    let new = CONFIGURATION.replace("weight = 1.0", "weight = 3.0").replace("\"hare\"", "\"drf\"");
    let (old, new) = (config(CONFIGURATION), config(&new));
    let changes = Changes::between(&old, &new).unwrap();
    let refused = Changes { policy: Some("shared-lru".to_owned()), ..changes.clone() };
    let error = apply(&node.core, &refused, &new, || Ok(())).unwrap_err();
    assert!(error.to_string().contains("nothing was changed: cannot use shared-lru"), "{error}");
    assert_eq!(state(&node), before);
    apply(&node.core, &changes, &new, || Ok(())).unwrap();
    let after = state(&node);
    assert_eq!((&after.0["between"], &after.1[0]["weight"]), (&json!("drf"), &json!(3.0)));
}

#[test]
fn change_of_the_control_loop_that_is_refused_in_part_changes_nothing() {
    let node = Driven::new(CONFIGURATION);
    let before = state(&node);
    for refused in [
        json!({"dry_run": false, "policy": "shared-lru"}),
        json!({"dry_run": false, "guard": true}),
        json!({"guard": false, "policy": "robinhod"}),
        json!({"policy": "robinhood", "dry_run": true}),
    ] {
        let (status, answer) = node.answer("PUT", "/v1/control", &refused);
        assert_eq!(status, 422, "{refused}: {answer}");
        assert_eq!(state(&node), before, "{refused}");
    }
}
