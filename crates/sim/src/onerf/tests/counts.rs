//! Tests that the counts of hits and misses reach the policy.

use std::sync::Arc;

use sherwood_model::Instant;
use sherwood_workload::onerf::Model;

use super::{Setup, World};

/// Returns the setup of a server under policy `fair`. Each request reads one of four objects of the
/// first backend and one of 500 objects of the second, of which half of the cache holds about 150.
fn always_and_seldom_hit() -> Setup {
    let backend = |id, objects| {
        format!(
            r#"{{"id":{id},"name":"b{id}","objects":{{"p":{objects}}},"zipf_alpha":0,"unique_fraction":0,
            "size":{{"dist":"lognormal","mean_bytes":100,"ln_mu":4.6,"ln_sigma":0,"min":100,"max":100}},
            "service":{{"base_ms":1,"per_item_ms":0,"cv":0,"workers":{{"p":1}}}}}}"#
        )
    };
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"counts",
        "slo":{{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5}},"timeout_ms":1000,"hit_latency_ms":0,
        "profiles":{{"p":{{"app_servers":1,"request_rate":50,"cache_bytes_per_server":65536,
            "alloc_granularity_bytes":1,"alloc_floor_bytes":0}}}},
        "backends":[{},{}],"request_types":[[1.0,[[1,1],[2,1]]]],
        "scenarios":{{"none":{{"warmup_min":0,"measure_min":1,"kind":"piecewise_linear","limits":{{}}}}}}}}"#,
        backend(1, 4),
        backend(2, 500)
    );
    let model = Arc::new(Model::from_json(&document).expect("a valid model"));
    let mut setup = Setup { model, profile: "p".to_owned(), ..Setup::new("none", "fair", 1) };
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    setup.knobs.control.tax = 0.125;
    setup
}

#[test]
fn fair_policy_moves_the_tax_from_the_hitting_partition_to_the_missing_one() {
    let mut world = World::new(&always_and_seldom_hit()).expect("valid");
    let mut expected = [32_768, 32_768];
    for decided_s in [6, 11] {
        world.advance(Instant::from_secs(decided_s)).expect("the books balance");
        let taxed = expected[0] / 8;
        expected = [expected[0] - taxed, expected[1] + taxed];
        assert_eq!(world.nodes[0].control.levels().budgets(), expected, "after {decided_s} s");
        assert_eq!(world.usage(0).iter().map(|usage| usage.budget_bytes).collect::<Vec<_>>(), expected);
    }
    let usage = world.usage(0);
    assert!(usage[0].misses == 4 && usage[1].misses > usage[1].hits, "{usage:?}");
}
