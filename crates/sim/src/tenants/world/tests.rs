use std::time::Duration;

use sherwood_model::{Instant, PartitionId, TenantId};
use sherwood_workload::tenants::Scenario;

use super::World;
use crate::tenants::{Results, Setup, policies};

fn setup(scenario: &str, policy: &str, seconds: &str) -> Setup {
    let mut setup = Setup::published(scenario, policy, 1).expect("it is built in");
    setup.scale = 0.01;
    setup.set("seconds", seconds).expect("a length");
    setup
}

/// Runs to the end in steps of `stride`, and returns the results against those of `baseline`.
fn run(setup: &Setup, stride: Duration) -> Results {
    let play = |setup: &Setup| {
        let mut world = World::new(setup).expect("valid");
        while world.now() < world.end() {
            world.advance(world.now() + stride).expect("the books balance");
        }
        world
    };
    let base = play(&setup.baseline()).measured();
    play(setup).results(&base)
}

const STRIDE: Duration = Duration::from_secs(1_000);

#[test]
fn baseline_is_normalized_to_one_and_uses_the_scarcest_resource() {
    let results = run(&setup("hare-skew", "baseline", "60+60"), STRIDE);
    assert!(results.complete);
    for tenant in &results.tenants {
        assert_eq!((tenant.normalized, tenant.normalized_min, tenant.refused_ratio), (1.0, 1.0, 0.0));
    }
    let reads = &results.resources[0];
    assert_eq!((reads.name.as_str(), reads.total), ("reads", 20.0));
    assert!(reads.used_ratio.iter().all(|used| (0.48..0.52).contains(used)), "{:?}", reads.used_ratio);
}

#[test]
fn results_are_equal_whatever_the_times_at_which_the_simulation_stops() {
    let setup = setup("hare-working-set", "hare", "100+20");
    let results = run(&setup, STRIDE);
    assert_eq!(results, run(&setup, Duration::from_millis(700)));
    assert_eq!((results.decisions, results.applied), (1, 1));
}

#[test]
fn every_policy_simulates_every_kind_of_load() {
    let scenario = Scenario::from_toml(MIXED).expect("valid");
    for policy in policies() {
        let results = run(&Setup::document(scenario.clone(), policy.name, 1), STRIDE);
        assert!(results.complete && results.requests > 5_000, "{}: {}", policy.name, results.requests);
        let cache: u64 = results.tenants.iter().map(|tenant| tenant.holdings.cache_bytes).sum();
        assert!(cache <= 3 << 20, "{}: {cache}", policy.name);
        let refused = results.tenants.iter().map(|tenant| tenant.refused_ratio);
        assert!(refused.eq([0.0; 3]), "{}: what waits is bounded, and nothing is refused", policy.name);
    }
}

#[test]
fn cache_is_traded_for_reads_so_that_both_tenants_gain() {
    let results = run(&setup("hare-working-set", "hare", "600+100"), STRIDE);
    assert!(results.normalized_least > 1.3, "{}", results.normalized_least);
    let [first, second] = &results.tenants[..] else { panic!("two tenants") };
    assert!(first.holdings.cache_bytes > second.holdings.cache_bytes);
    assert!(first.holdings.rates["reads"] < second.holdings.rates["reads"]);
    assert!(results.bound.is_some_and(|bound| bound >= results.predicted_gain - 1e-9));
}

#[test]
fn unfair_competition_slows_a_tenant_without_partitions() {
    let results = run(&setup("hare-skew", "non-partitioned", "60+60"), STRIDE);
    assert!(results.normalized_least < 0.9, "{}", results.normalized_least);
    assert_eq!(results.decisions, 0);
}

const MIXED: &str = r#"
    name = "mixed"
    warm_up = "60s"
    measure = "60s"
    control = { period = "10s", window = "20s" }
    backends = [{ name = "db" }]
    resources = [
        { name = "reads", kind = "reads", backend = "db" },
        { name = "writes", kind = "writes", backend = "db" },
        { name = "network", kind = "network", legs = "client" },
    ]
    [[tenants]]
    name = "scans"
    cache = "1MiB"
    rates = { reads = 50, writes = 50, network = 100000 }
    clients = { processes = 2, depth = 2 }
    loads = [{ backend = "db", keys = 5000, zipf = 0.9, write_ratio = 0.05, scan_max = 50 }]
    [[tenants]]
    name = "changes"
    cache = "1MiB"
    rates = { reads = 50, writes = 50, network = 100000 }
    clients = { processes = 4, depth = 1 }
    loads = [{ backend = "db", keys = 3000, zipf = 0.5, write_ratio = 0.5, changes = [{ at = "20s", keys = 6000 }] }]
    [[tenants]]
    name = "arrivals"
    cache = "1MiB"
    rates = { reads = 50, writes = 50, network = 100000 }
    arrivals = [{ at = "0s", per_s = 20 }, { at = "30s", per_s = 40 }]
    loads = [{ backend = "db", keys = 4000 }]
"#;

const TWO_BACKENDS: &str = r#"
    name = "fan-out"
    warm_up = "100s"
    measure = "100s"
    backends = [{ name = "fast", latency = "2ms" }, { name = "slow", latency = "40ms" }]
    [[resources]]
    name = "reads"
    kind = "reads"
    backend = "slow"
    [[tenants]]
    name = "a"
    cache = "4MiB"
    rates = { reads = 60 }
    arrivals = [{ at = "0s", per_s = 100 }]
    loads = [
        { backend = "fast", keys = 20000, zipf = 0.9 },
        { backend = "slow", keys = 20000, zipf = 0.9 },
    ]
    [[tenants]]
    name = "b"
    cache = "4MiB"
    rates = { reads = 60 }
    clients = { processes = 2, depth = 2 }
    loads = [{ backend = "fast", keys = 20000 }]
"#;

#[test]
fn policy_within_a_tenant_divides_the_sum_that_the_policy_between_gives() {
    let scenario = Scenario::from_toml(TWO_BACKENDS).expect("valid");
    let mut setup = Setup::document(scenario, "hare", 1);
    setup.set("within", "robinhood").expect("it is known");
    setup.set("decide", "live").expect("it is known");
    let mut world = World::new(&setup).expect("valid");
    let mut split = Vec::new();
    while world.now() < world.end() {
        world.advance(world.now() + Duration::from_secs(5)).expect("the books balance");
        let bytes = |index: usize| world.bytes(TenantId::from_index(index));
        assert!(bytes(0) + bytes(1) <= 8 << 20);
        let budgets = world.nodes[0].cache.usage(PartitionId(1)).budget_bytes;
        split.push(budgets as f64 / bytes(0) as f64);
    }
    assert!((split[0] - 0.5).abs() < 0.1, "it begins with equal parts: {split:?}");
    assert!(split.last().is_some_and(|last| *last > 0.57), "the slow backend gets more: {split:?}");
    assert_eq!(world.now(), Instant::from_secs(200));
}

#[test]
fn tenants_divided_by_robinhood_are_as_fast_as_with_their_baselines() {
    let file = include_str!("../../../../../examples/tenants/two-levels.json");
    let mut setup = Setup::document(Scenario::from_json(file).expect("valid"), "hare", 1);
    setup.scale = 0.05;
    setup.set("within", "robinhood").expect("it is known");
    setup.set("seconds", "100+60").expect("a length");
    let mut world = World::new(&setup).expect("valid");
    let total = world.family.scenario.cache_bytes();
    while world.now() < world.end() {
        // As often as the level between takes a step, which also checks the sums of rates.
        world.advance(world.now() + Duration::from_millis(250)).expect("the books balance");
        let mut sums = [0; 3];
        for (part, id) in world.family.parts.iter().zip(0..) {
            sums[part.tenant.index()] += world.nodes[0].cache.usage(PartitionId(id)).budget_bytes;
        }
        assert_eq!(sums, [0, 1, 2].map(|index| world.bytes(TenantId(index))));
        assert!(sums.iter().sum::<u64>() <= total, "{sums:?}");
    }
    let mut base = World::new(&setup.baseline()).expect("valid");
    base.advance(base.end()).expect("the books balance");
    let base = base.results(&base.measured());
    for (tenant, base) in world.results(&world.measured()).tenants.iter().zip(&base.tenants) {
        assert!(tenant.p99_ms <= 1.02 * base.p99_ms, "{}: {} of {}", tenant.name, tenant.p99_ms, base.p99_ms);
        assert!(tenant.throughput >= 0.98 * base.throughput, "{}: {}", tenant.name, tenant.throughput);
    }
}

/// A tenant with a part of the evaluation's 16: 37,500 or 75,000 keys, and cache for a third or two
/// thirds of them.
fn one_of_sixteen(name: String, keys: u64, mix: &str) -> String {
    format!(
        r#"
    [[tenants]]
    name = "{name}"
    cache = "13421772B"
    rates = {{ reads = 25, writes = 25, network = 1310720 }}
    clients = {{ processes = 16, depth = 2 }}
    loads = [{{ backend = "db", keys = {keys}, value_bytes = 500, zipf = 0.99, {mix} }}]
"#
    )
}

#[test]
fn tenants_whose_misses_come_in_bursts_are_not_taken_for_slow() {
    let mut text = SIXTEEN.to_owned();
    let mixes =
        ["write_ratio = 0.5", "write_ratio = 0.05", "write_ratio = 0", "write_ratio = 0.05, scan_max = 100"];
    for (index, mix) in mixes.iter().enumerate() {
        for (number, keys) in [37_500, 37_500, 75_000, 75_000].into_iter().enumerate() {
            text += &one_of_sixteen(format!("T{}", index * 4 + number + 1), keys, mix);
        }
    }
    let mut setup = Setup::document(Scenario::from_toml(&text).expect("valid"), "hare", 1);
    // As many sampled reads as with ten times the rates and a 32nd of the keys.
    setup.set("ghost", "0.3125").expect("a share");
    let results = run(&setup, STRIDE);
    // With the baselines, as after a return to them, none would gain.
    assert!(results.normalized_least > 1.1, "{results:?}");
    let base = results.tenants.iter().filter(|tenant| tenant.holdings.cache_bytes == 13_421_772);
    assert!(base.count() < 8, "{results:?}");
}

const SIXTEEN: &str = r#"
    name = "sixteen"
    warm_up = "150s"
    measure = "150s"
    control = { decide = "live", period = "20s", window = "60s", salt = 0.01, apply_over = 0 }
    backends = [{ name = "db", latency = "5ms" }]
    resources = [
        { name = "reads", kind = "reads", backend = "db" },
        { name = "writes", kind = "writes", backend = "db" },
        { name = "network", kind = "network" },
    ]
"#;
