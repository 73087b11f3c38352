//! Tests of a store that throttles reads while the level between tenants observes them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sherwood_store::{Attempt, BoxFuture, Cause, Found, Store, StoreError, StoreKind};

use super::driven::Driven;
use crate::start::*;

const CONFIGURATION: &str = r#"
    [memory]
    total = "8MiB"
    mrc_sample = 1.0
    [tenants]
    period = "2s"
    window = "8s"
    [[tenant]]
    name = "a"
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
    total = 10000
"#;

const TICK: Duration = Duration::from_millis(20);

/// A store that throttles every second call, and has the node observe its tenants meanwhile: the
/// units of the call are charged then, and given back afterwards.
#[derive(Default)]
struct Throttling {
    core: OnceLock<Weak<Core>>,
    calls: AtomicU64,
}

impl Store for Throttling {
    fn name(&self) -> &str {
        "orders"
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Kv
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        Box::pin(async move {
            if self.calls.fetch_add(1, Relaxed).is_multiple_of(2) {
                let found = |_| Some(Found::from(Bytes::from_static(&[0; 1_000])));
                return Ok(keys.into_iter().map(found).collect());
            }
            let core = self.core.get().and_then(Weak::upgrade).expect("the node runs");
            core.control().advance(core.clock.now());
            let cause = Cause::Throttled { detail: "as told".to_owned() };
            Err(StoreError::new("orders", StoreKind::Kv, Attempt::Get { keys: keys.len() }, cause))
        })
    }

    fn put(&self, _: Bytes, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("nothing is written")
    }

    fn delete(&self, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("nothing is written")
    }
}

#[test]
fn units_that_are_given_back_lower_no_counter_and_keep_the_window() {
    let store = Arc::new(Throttling::default());
    let node = Driven::with(CONFIGURATION, |setup| {
        setup.backends[0].stores = vec![Arc::clone(&store) as Arc<dyn Store>];
        setup.backends[0].dispatch.retry.per_call_max = 0;
    });
    assert!(store.core.set(Arc::downgrade(&node.core)).is_ok());
    let used = || {
        node.core.counters.as_ref().expect("there are tenants").uses_of(sherwood_model::TenantId(0))[0]
            .units()
    };
    let mut most = 0.0;
    for tick in 0..1_000 {
        node.pass(TICK);
        let queries = json!([{"backend": "orders", "keys": [format!("k{}", tick % 400)]}]);
        node.post("/v1/requests", &json!({"tenant": "a", "values": false, "queries": queries}));
        node.pass(TICK);
        node.advance();
        assert!(used() >= most, "{} after {most}", used());
        most = used();
    }
    let tenant = node.get("/v1/tenants")["tenants"][0].clone();
    // A request in 40 ms, half of which are answered.
    let requests_per_s = tenant["requests_per_s"].as_f64().unwrap();
    assert!((8.0..=26.0).contains(&requests_per_s), "{tenant}");
    assert!(tenant["hit_ratio"].is_number() && tenant["used_total"]["orders-reads"] == most, "{tenant}");
}
