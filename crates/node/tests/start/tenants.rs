//! Tests of the division among tenants in a whole node.
//!
//! Two tenants ask as fast as their rates allow: `a`, whose keys fit into a little more than its
//! baseline, and `b`, whose keys exceed the whole cache. The clock is driven by the test.

use std::time::Duration;

use serde_json::{Value, json};
use sherwood_model::{PartitionId, SplitMix64, TenantId};

use super::driven::Driven;

const CONFIGURATION: &str = r#"
    [memory]
    total = "8MiB"
    mrc_sample = 1.0
    [control]
    policy = "equal"
    [tenants]
    period = "2s"
    window = "8s"
    lend = false
    over = "refuse"
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
    total = 200
"#;

const TOTAL_BYTES: u64 = 8 << 20;
const TOTAL_PER_S: f64 = 200.0;
/// Time between two turns of each tenant: that for which a rate may be saved up.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_S: u64 = 100;
const NAMES: [&str; 2] = ["a", "b"];
/// Ticks between two rounds of the control loop.
const STEP_TICKS: u64 = 25;
/// Number of keys of each tenant; about a thousand fit into a baseline.
const KEYS: [u64; 2] = [1_250, 20_000];
/// Most requests of a tenant in a tick.
const ASKED_MAX: u64 = 40;

struct World {
    node: Driven,
    random: SplitMix64,
    /// Tenants that ask.
    asks: [bool; 2],
    /// Requests that were answered.
    served: [u64; 2],
}

impl World {
    fn new(configuration: &str) -> Self {
        let node = Driven::new(configuration);
        node.advance();
        Self { node, random: SplitMix64::new(1), asks: [true; 2], served: [0; 2] }
    }

    /// Has a tenant ask for one key after another until one is refused.
    fn ask(&mut self, tenant: usize) {
        for _ in 0..ASKED_MAX {
            let key = (self.random.next_u64() % KEYS[tenant]).to_string();
            let queries = json!([{"backend": "orders", "keys": [key]}]);
            let body = json!({"tenant": NAMES[tenant], "values": false, "queries": queries});
            let answer = self.node.post("/v1/requests", &body);
            match answer["results"][0]["status"].as_str().unwrap() {
                "hit" | "miss" => self.served[tenant] += 1,
                _ => return,
            }
        }
    }

    /// Runs for some seconds. Checks after every round that sums hold.
    fn run(&mut self, seconds: u64) {
        for tick in 1..=seconds * TICKS_PER_S {
            self.node.pass(TICK);
            for tenant in [0, 1] {
                if self.asks[tenant] {
                    self.ask(tenant);
                }
            }
            if tick % STEP_TICKS == 0 {
                self.node.advance();
                self.check_sums();
            }
        }
    }

    /// Requests per second that each tenant is served in the next seconds.
    fn served_per_s(&mut self, seconds: u64) -> [f64; 2] {
        self.served = [0; 2];
        self.run(seconds);
        self.served.map(|served| served as f64 / seconds as f64)
    }

    fn held(&self) -> [(u64, f64); 2] {
        let control = self.node.core.control();
        let between = control.tenants().unwrap().levels().between();
        let of = |index| (between.bytes()[index], between.rates().row(TenantId::from_index(index))[0]);
        [of(0), of(1)]
    }

    /// Checks that what tenants have, in the plan and in the cache, sums to at most the totals.
    fn check_sums(&self) {
        let held = self.held();
        assert!(held[0].0 + held[1].0 <= TOTAL_BYTES, "{held:?}");
        assert!(held[0].1 + held[1].1 <= TOTAL_PER_S * (1.0 + 1e-9), "{held:?}");
        for (index, (bytes, _)) in held.into_iter().enumerate() {
            let usage = self.node.core.cache.usage(PartitionId::from_index(index));
            assert_eq!(usage.budget_bytes, bytes, "the partition of a tenant has all of its bytes");
        }
    }

    fn tenant(&self, index: usize) -> Value {
        self.node.get("/v1/tenants")["tenants"][index].clone()
    }
}

/// Returns what both tenants are served per second where they keep their baselines.
fn baseline() -> [f64; 2] {
    let mut world = World::new(&CONFIGURATION.replace("[tenants]", "[tenants]\npolicy = \"baseline\""));
    world.run(20);
    world.served_per_s(10)
}

#[test]
fn bytes_and_rates_move_and_both_tenants_are_served_more_than_at_their_baselines() {
    let mut world = World::new(CONFIGURATION);
    assert_eq!(world.held(), [(TOTAL_BYTES / 2, TOTAL_PER_S / 2.0); 2]);
    // Cold caches fill more slowly than was expected of the baseline.
    world.run(18);
    let below = |world: &World| [0, 1].map(|index| world.tenant(index)["below_baseline_s"].as_f64());
    let below_cold = below(&world);
    world.run(12);
    let served = world.served_per_s(10);
    let [a, b] = world.held();
    assert!(a.0 > TOTAL_BYTES * 6 / 10 && a.1 < 60.0 && b.1 > 140.0, "{a:?} {b:?}");
    let baseline = baseline();
    for (served, baseline) in served.into_iter().zip(baseline) {
        assert!(served > baseline * 1.3, "{served} of {baseline} requests per second");
    }
    let tenants = world.node.get("/v1/tenants");
    // A period has 200 units, whose noise may put one below.
    for (below, cold) in below(&world).into_iter().zip(below_cold) {
        assert!(below <= cold.map(|cold| cold + 2.0), "{below:?}, {cold:?} before bytes moved");
    }
    assert!(tenants["gain"].as_f64() <= tenants["bound"].as_f64().map(|bound| bound + 1e-6), "{tenants}");
    let trades = world.node.get("/v1/tenants/trades");
    let latest = trades[0]["sentence"].as_str().unwrap();
    assert!(latest.starts_with("b gave ") && latest.contains(" MiB to a and receives "), "{latest}");
    assert_eq!(world.node.metric("sherwood_tenant_budget{tenant=\"a\",resource=\"cache\"}"), a.0 as f64);
    assert_eq!(world.node.metric("sherwood_tenant_budget{tenant=\"b\",resource=\"orders-reads\"}"), b.1);
    let used = world.node.metric("sherwood_tenant_used_total{tenant=\"b\",resource=\"orders-reads\"}");
    assert_eq!(Some(used), tenants["tenants"][1]["used_total"]["orders-reads"].as_f64());
    assert!(world.node.metric("sherwood_tenant_gain_ratio") > 1.3);
}

#[test]
fn weight_and_minimum_are_changed_while_bytes_move() {
    let mut world = World::new(CONFIGURATION);
    let is_moving = |world: &World| world.node.get("/v1/tenants")["moving"] == true;
    let started = (0..20).any(|_| {
        world.run(1);
        is_moving(&world)
    });
    assert!(started, "bytes are on their way");
    let changed = world.node.put("/v1/tenants/b", &json!({"weight": 3}));
    assert_eq!(changed, json!({"name": "b", "weight": 3.0, "min_bytes": 0}));
    world.check_sums();
    world.run(2);
    world.node.put("/v1/tenants/b", &json!({"min_bytes": 5 << 20}));
    world.check_sums();
    world.run(20);
    let (a, b) = (world.tenant(0), world.tenant(1));
    assert_eq!(b["base"], json!({"cache_bytes": 6 << 20, "rates": {"orders-reads": 150.0}}));
    assert!(b["holdings"]["cache_bytes"].as_u64().unwrap() >= 5 << 20, "{b}");
    for tenant in [a, b] {
        assert!(tenant["predicted"].as_f64().unwrap() > 0.98, "{tenant}");
    }
}

#[test]
fn tenant_that_stops_lends_what_it_has_and_gets_its_baseline_back() {
    let mut world = World::new(CONFIGURATION);
    world.run(10);
    world.asks[1] = false;
    world.run(20);
    let rates = world.held().map(|(_, rate)| rate);
    assert!(rates[0] > 100.0, "{rates:?}");
    world.asks[1] = true;
    world.run(20);
    let b = world.tenant(1);
    assert!(b["predicted"].as_f64().unwrap() > 0.98, "{b}");
    let served = world.served_per_s(10)[1];
    let baseline = baseline()[1];
    // Two per cent below its baseline, and three for the draws of ten seconds.
    assert!(served > baseline * 0.95, "{served} of {baseline} requests per second");
}

#[test]
fn loop_that_is_late_and_clock_that_stands_still_keep_sums() {
    let mut world = World::new(CONFIGURATION);
    world.run(5);
    for _ in 0..60 * TICKS_PER_S {
        world.node.pass(TICK);
        world.ask(0);
    }
    world.node.advance();
    world.check_sums();
    world.run(5);
    let held = world.held();
    for _ in 0..10 {
        world.node.advance();
        world.ask(0);
        world.ask(1);
    }
    assert_eq!(world.held(), held, "no time has passed");
    world.run(5);
}

#[test]
fn what_if_divides_among_more_tenants_and_changes_nothing() {
    let mut world = World::new(CONFIGURATION);
    world.run(8);
    let held = world.held();
    let third = json!({
        "name": "c",
        "demand_if_miss": {"orders-reads": 1},
        "mrc": {"ticks_bytes": [1 << 20], "miss_ratio": [0.05]},
    });
    let answer = world.node.post("/v1/tenants/what-if", &json!({"weights": {"a": 2}, "add": [third]}));
    let tenants = answer["tenants"].as_array().unwrap();
    let weights: Vec<_> = tenants.iter().map(|tenant| (&tenant["name"], tenant["weight"].as_f64())).collect();
    let expected = [("a", 2.0), ("b", 1.0), ("c", 1.0)].map(|(name, weight)| (json!(name), Some(weight)));
    assert!(weights.into_iter().eq(expected.iter().map(|(name, weight)| (name, *weight))), "{answer}");
    assert_eq!(tenants[0]["base"], json!({"cache_bytes": 4 << 20, "rates": {"orders-reads": 100.0}}));
    let bytes = tenants.iter().map(|tenant| tenant["holdings"]["cache_bytes"].as_u64().unwrap());
    assert!(bytes.sum::<u64>() <= TOTAL_BYTES, "{answer}");
    assert!(answer["gain"].as_f64().unwrap() > 1.0, "{answer}");
    assert_eq!(world.held(), held);
    assert_eq!(world.tenant(0)["weight"], 1.0);
}

#[test]
fn policy_between_tenants_is_switched_and_options_of_one_level_are_refused() {
    let world = World::new(CONFIGURATION);
    let control = world.node.put("/v1/control", &json!({"policy": "drf"}));
    assert_eq!((&control["between"], &control["policy"]), (&json!("drf"), &json!("equal")));
    let control = world.node.put("/v1/control", &json!({"policy": "static"}));
    assert_eq!((&control["between"], &control["policy"]), (&json!("drf"), &json!("static")));
    let refused = |method, path: &str, body: Value, status: u16, words: &str| {
        let (given, answer) = world.node.answer(method, path, &body);
        assert_eq!(given, status, "{method} {path} {body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(words), "{answer}");
    };
    refused("PUT", "/v1/control", json!({"dry_run": true}), 422, "`dry_run` cannot be switched on");
    refused("PUT", "/v1/control", json!({"guard": true}), 422, "`guard` cannot be switched on");
    refused("PUT", "/v1/control", json!({"policy": "shared-lru"}), 422, "within a tenant");
    let partition = "/v1/partitions/a:orders";
    refused("PUT", partition, json!({"allocated_bytes": 1 << 20}), 409, "shares of tenants size");
    refused("PUT", "/v1/tenants/c", json!({"weight": 2}), 404, "there are: a, b");
    refused("PUT", "/v1/tenants/a", json!({"weight": 0}), 422, "0.001 to 1000");
    refused("PUT", "/v1/tenants/a", json!({}), 400, "nothing to change");
    refused("PUT", "/v1/tenants/a", json!({"min_bytes": 5 << 20}), 422, "4194304 bytes");
    refused("POST", "/v1/tenants/what-if", json!({"weights": {"c": 2}}), 404, "there are: a, b");
    let added = |more: Value| json!({"add": [{"name": "c", "demand_if_miss": more}]});
    refused("POST", "/v1/tenants/what-if", added(json!({"reads": 1})), 422, "there are: orders-reads");
    refused("POST", "/v1/tenants/what-if", added(json!({"orders-reads": -1})), 422, "at least 0");
    assert_eq!(world.held(), [(TOTAL_BYTES / 2, TOTAL_PER_S / 2.0); 2], "nothing has changed");
}

#[test]
fn stated_shares_stay_whatever_the_weights() {
    let half = "base = { cache = 0.5, \"orders-reads\" = 0.5 }";
    let stated = CONFIGURATION.replace("name = \"a\"", &format!("name = \"a\"\n{half}"));
    let world = World::new(&stated);
    let (status, answer) = world.node.answer("PUT", "/v1/tenants/a", &json!({"weight": 2}));
    assert_eq!(status, 409, "{answer}");
    assert!(answer["error"].as_str().unwrap().starts_with("the weight of `a` has no effect"), "{answer}");
    world.node.put("/v1/tenants/b", &json!({"weight": 2}));
    assert_eq!(world.tenant(1)["base"]["cache_bytes"], TOTAL_BYTES / 2, "it has all that `a` leaves");
}

#[test]
fn node_without_tenants_has_no_division_to_show() {
    let without = CONFIGURATION.split("[tenants]").next().unwrap();
    let node = Driven::new(without);
    for (method, path) in [("GET", ""), ("GET", "/trades"), ("PUT", "/a"), ("POST", "/what-if")] {
        let (status, answer) = node.answer(method, &format!("/v1/tenants{path}"), &json!({}));
        assert_eq!(status, 409, "{path}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains("no [[tenant]]"), "{answer}");
    }
}

/// Replaces numbers and sentences, which depend on the policy, by their kinds.
fn mask(value: &mut Value) {
    match value {
        Value::Number(_) => *value = json!("number"),
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "kept" => *value = json!("a reason or null"),
                    "bound" | "normalized" | "hit_ratio" => *value = json!("number or null"),
                    "applied" | "moving" => *value = json!("true or false"),
                    "line" | "sentence" => *value = json!("text"),
                    "trades" => *value = json!(["text"]),
                    _ => mask(value),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn answers_about_tenants_have_the_documented_fields() {
    let mut world = World::new(CONFIGURATION);
    let new = world.node.get("/v1/tenants");
    assert_eq!((&new["latest"], &new["bound"]), (&Value::Null, &Value::Null));
    assert_eq!(new["tenants"][0]["normalized"], Value::Null);
    world.run(20);
    let first = |mut answer: Value| {
        answer["tenants"].as_array_mut().unwrap().truncate(1);
        answer
    };
    let standing = first(world.node.get("/v1/tenants"));
    let division = first(world.node.post("/v1/tenants/what-if", &json!({"weights": {"a": 2}})));
    let trades = world.node.get("/v1/tenants/trades")[0].clone();
    let mut answers = json!({"GET": standing, "GET trades, first": trades, "POST what-if": division});
    mask(&mut answers);
    insta::assert_snapshot!(format!("{answers:#}"));
}

#[test]
fn refusals_beyond_a_rate_are_counted_as_such() {
    let mut world = World::new(CONFIGURATION);
    world.run(1);
    let rejected = |reason| world.node.metric(&format!("sherwood_rejected_total{{reason=\"{reason}\"}}"));
    assert!(rejected("rate") > 50.0);
    assert_eq!(rejected("bound"), 0.0);
}

#[test]
fn policy_within_a_tenant_decides_from_the_requests_of_that_tenant() {
    let two = CONFIGURATION.replace("policy = \"equal\"", "policy = \"robinhood\"")
        + "[[backend]]\nname = \"users\"\nstore = { kind = \"compute\", n = 1, bytes = \"4KiB\" }\n";
    let node = Driven::new(&two);
    let report = |latency_us: u32, tenant, blocking| json!({"latency_us": latency_us, "tenant": tenant, "blocking": blocking});
    let both = |us| [report(us, "a", "orders"), report(us, "b", "users")];
    let reports: Vec<_> = (1..=500).flat_map(both).collect();
    assert_eq!(node.post("/v1/reports", &json!(reports))["accepted"], 1_000);
    (0..20).for_each(|_| node.decide());
    let partitions = node.get("/v1/partitions");
    let bytes = |name: &str| {
        let found = partitions.as_array().unwrap().iter().find(|partition| partition["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {partitions}"))["allocated_bytes"].as_u64().unwrap()
    };
    assert!(bytes("a:orders") > bytes("a:users"), "{partitions}");
    assert!(bytes("b:users") > bytes("b:orders"), "{partitions}");
}
