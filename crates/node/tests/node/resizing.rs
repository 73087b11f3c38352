//! Changes of budgets and policies at run time.

use std::sync::Arc;

use serde_json::{Value, json};
use sherwood_config::{Config, Flags, parse};
use sherwood_control::Pin;
use sherwood_node::{Node, ReloadOptions, Setup};
use sherwood_store::{ComputeOptions, Store, StoreOptions, open};

use crate::support::{Http, TOTAL, setup};
use crate::wait::eventually;

const MIB: u64 = 1 << 20;

fn compute() -> Arc<dyn Store> {
    let options = ComputeOptions { n: 1, bytes: 1000, ..ComputeOptions::default() };
    open("compute", &StoreOptions::Compute(options)).unwrap()
}

fn node() -> Node {
    let mut setup = setup(vec![("a", vec![compute()]), ("b", vec![compute()])]);
    setup.partitions[1].pin = Pin { min_bytes: MIB, max_bytes: Some(24 * MIB), dry_run: false };
    Node::start(setup).unwrap()
}

fn allocated(http: Http) -> Vec<u64> {
    let partitions = http.get("/v1/partitions");
    partitions.as_array().unwrap().iter().map(|one| one["allocated_bytes"].as_u64().unwrap()).collect()
}

#[track_caller]
fn policy(http: Http, body: Value) -> Value {
    let answer = http.ask("PUT", "/v1/control", &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn fill(http: Http, backend: &str, keys: std::ops::Range<u32>) {
    let keys: Vec<_> = keys.map(|key| key.to_string()).collect();
    http.request(&json!({"values": false, "queries": [{"backend": backend, "keys": keys}]}));
}

#[test]
fn budget_set_by_hand_is_in_force_at_once() {
    let node = node();
    let http = Http::of(&node);
    assert_eq!(allocated(http), [16 * MIB, 16 * MIB]);
    let answer = http.ask("PUT", "/v1/partitions/a", &json!({"allocated_bytes": 4 * MIB}).to_string());
    assert_eq!(
        (answer.status, answer.json()),
        (
            200,
            json!({"name": "a", "allocated_bytes": 4 * MIB, "min_bytes": 0, "max_bytes": null, "dry_run": false})
        )
    );
    assert_eq!(allocated(http), [4 * MIB, 16 * MIB]);
    fill(http, "a", 0..8_000);
    eventually("the partition keeps to its budget", || {
        http.get("/v1/partitions")[0]["used_bytes"].as_u64().unwrap() <= 4 * MIB
    });
    assert!(http.get("/v1/partitions")[0]["evictions"].as_u64().unwrap() > 1_000);
}

#[test]
fn impossible_budget_is_refused_with_the_accepted_range() {
    let node = node();
    let http = Http::of(&node);
    let put = |name: &str, bytes: u64| {
        http.ask("PUT", &format!("/v1/partitions/{name}"), &json!({"allocated_bytes": bytes}).to_string())
    };
    let over = put("a", 16 * MIB + 1);
    assert!(over.refusal(422).contains("16777216 bytes are free"));
    assert_eq!(over.json()["free_bytes"], 16 * MIB);
    let small = put("b", MIB - 1);
    assert!(small.refusal(422).contains("bounds"));
    assert_eq!((&small.json()["min_bytes"], &small.json()["max_bytes"]), (&json!(MIB), &json!(24 * MIB)));
    assert_eq!(put("a", 8 * MIB).status, 200);
    assert!(put("b", 24 * MIB + 1).refusal(422).contains("free"));
    assert_eq!(put("b", 24 * MIB).status, 200);
    assert!(put("c", MIB).refusal(404).contains("there are: a, b"));
    let bad = http.ask("PUT", "/v1/partitions/a", r#"{"allocated_bytes":-1}"#);
    assert!(bad.refusal(400).contains("allocated_bytes"));
    assert_eq!(bad.json()["path"], "allocated_bytes");
    assert_eq!(http.ask("PUT", "/v1/partitions/a", "{}").status, 400);
    assert_eq!(allocated(http), [8 * MIB, 24 * MIB]);
    policy(http, json!({"policy": "robinhood"}));
    assert!(put("a", MIB).refusal(409).contains("PUT /v1/control"));
}

#[test]
fn pins_that_would_move_a_partition_in_a_dry_run_are_refused() {
    let node = node();
    let http = Http::of(&node);
    let put =
        |name: &str, change: Value| http.ask("PUT", &format!("/v1/partitions/{name}"), &change.to_string());
    assert_eq!(put("a", json!({"allocated_bytes": 12 * MIB, "dry_run": true})).status, 200);
    let said = put("b", json!({"max_bytes": 15 * MIB})).refusal(422);
    assert!(
        said.contains("would sum to 28311552 bytes, counting the budgets that those in a dry run keep"),
        "{said}"
    );
    assert!(put("b", json!({"min_bytes": 21 * MIB})).refusal(422).contains("minimums"));
    assert_eq!(put("b", json!({"max_bytes": 20 * MIB})).status, 200);
    let said = put("a", json!({"allocated_bytes": 11 * MIB})).refusal(422);
    assert!(said.contains("maximums"), "{said}");
    policy(http, json!({"policy": "equal"}));
    assert_eq!(allocated(http), [12 * MIB, 20 * MIB], "the dry run keeps its budget, the maximum holds");
    assert_eq!(put("a", json!({"dry_run": false})).status, 200);
    assert_eq!(put("b", json!({"max_bytes": 16 * MIB})).status, 200);
}

#[test]
fn switching_between_a_shared_lru_and_budgets_flushes_nothing() {
    let node = node();
    let http = Http::of(&node);
    fill(http, "a", 0..1_000);
    fill(http, "b", 0..1_000);
    for name in ["shared-lru", "robinhood", "shared-lru", "equal", "static"] {
        let view = policy(http, json!({"policy": name}));
        assert_eq!((&view["policy"], &view["latest"]["policy"]), (&json!(name), &json!(name)));
        let expected = if name == "shared-lru" { TOTAL } else { 16 * MIB };
        assert_eq!(allocated(http), [expected, expected], "{name}");
        fill(http, "a", 0..1_000);
        fill(http, "b", 0..1_000);
    }
    for partition in http.get("/v1/partitions").as_array().unwrap() {
        assert_eq!((&partition["hits"], &partition["misses"]), (&json!(5_000), &json!(1_000)));
        assert_eq!((&partition["items"], &partition["evictions"]), (&json!(1_000), &json!(0)));
    }
}

#[test]
fn pins_without_effect_in_a_shared_lru_cause_a_warning() {
    let warnings = |node: &Node| {
        node.events().into_iter().filter(|event| event.warns).map(|event| event.message).collect::<Vec<_>>()
    };
    let expected =
        "shared-lru gives no partition a size: min, max and dry_run of b wait until another policy is chosen";
    let node = node();
    assert_eq!(warnings(&node), [""; 0], "its policy divides");
    policy(Http::of(&node), json!({"policy": "shared-lru"}));
    assert_eq!(warnings(&node), [expected]);
    let mut setup = setup(vec![("a", vec![compute()]), ("b", vec![compute()])]);
    setup.policy = "shared-lru".to_owned();
    setup.partitions[1].pin.dry_run = true;
    assert_eq!(warnings(&Node::start(setup).unwrap()), [expected], "from the start on");
}

#[test]
fn dry_run_reports_and_moves_nothing() {
    let node = node();
    let http = Http::of(&node);
    http.ask("PUT", "/v1/partitions/a", &json!({"allocated_bytes": 8 * MIB}).to_string());
    let view = policy(http, json!({"policy": "equal", "dry_run": true}));
    assert_eq!((&view["dry_run"], &view["latest"]["applied"]), (&json!(true), &json!(false)));
    assert_eq!(view["latest"]["moves"][0]["partition"], "a");
    assert!(view["latest"]["line"].as_str().unwrap().starts_with("dry run, not applied: moved 8.0 MiB"));
    assert_eq!(allocated(http), [8 * MIB, 16 * MIB]);
    policy(http, json!({"dry_run": false, "policy": "equal"}));
    assert_eq!(allocated(http), [16 * MIB, 16 * MIB]);
}

#[test]
fn unselectable_policy_is_refused_with_the_selectable_ones() {
    let node = node();
    let http = Http::of(&node);
    for (name, part) in [
        ("robin hood", "it is not known"),
        ("hare", "it is not built yet"),
        ("offline_opt", "without a schedule"),
        ("bubble_wrap", "without a schedule"),
    ] {
        let answer = http.ask("PUT", "/v1/control", &json!({"policy": name, "dry_run": true}).to_string());
        let error = answer.refusal(422);
        assert!(error.contains(part) && error.contains("choose one of robinhood, shared-lru"), "{error}");
        assert!(!error[error.find("choose").unwrap()..].contains("offline_opt"), "{error}");
    }
    let view = http.get("/v1/control");
    assert_eq!((&view["policy"], &view["dry_run"]), (&json!("static"), &json!(false)), "nothing was changed");
    let available = view["available"].as_array().unwrap();
    assert!(available.contains(&json!("static")) && !available.contains(&json!("offline_opt")));
}

#[test]
fn robinhood_moves_space_to_the_backend_that_blocks_requests() {
    let mut setup = setup(vec![("a", vec![]), ("b", vec![])]);
    setup.policy = "robinhood".to_owned();
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    // Three requests in a hundred are slow, and `b` blocks them.
    let report = |i: u64| json!({"latency_us": 1_000 + i, "blocking": if i % 100 >= 97 { "b" } else { "a" }});
    let reports: Vec<_> = (0..1_000).map(report).collect();
    let mut reports = reports;
    reports.sort_by_key(|report| (report["blocking"] == "b", report["latency_us"].as_u64()));
    for (i, report) in reports.iter_mut().enumerate() {
        report["latency_us"] = json!(1_000 + 10 * i);
    }
    assert_eq!(http.ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
    let view = policy(http, json!({"policy": "robinhood"}));
    assert_eq!(view["latest"]["kept"], Value::Null, "{view}");
    let [a, b] = allocated(http)[..] else { panic!("two partitions") };
    assert!(b > 16 * MIB && a < 16 * MIB && a + b == TOTAL, "{a} {b}");
}

#[test]
fn partition_is_pinned_at_run_time() {
    let node = node();
    let http = Http::of(&node);
    let put = |body: Value| http.ask("PUT", "/v1/partitions/a", &body.to_string());
    let pinned = put(json!({"min_bytes": 20 * MIB, "max_bytes": 24 * MIB}));
    assert_eq!(
        (pinned.status, pinned.json()),
        (
            200,
            json!({"name": "a", "allocated_bytes": 16 * MIB, "min_bytes": 20 * MIB, "max_bytes": 24 * MIB, "dry_run": false})
        )
    );
    policy(http, json!({"policy": "equal"}));
    assert_eq!(allocated(http), [20 * MIB, 12 * MIB], "the next decision keeps to it");
    assert!(put(json!({"min_bytes": 25 * MIB})).refusal(422).contains("above the maximum"));
    assert!(put(json!({"min_bytes": 32 * MIB, "max_bytes": TOTAL})).refusal(422).contains("sum to"));
    assert!(put(json!({"max_bytes": 2 * MIB, "min_bytes": 0})).refusal(422).contains("less than the total"));
    assert_eq!(put(json!({})).status, 400);
    let kept = &http.get("/v1/partitions")[0];
    assert_eq!((&kept["min_bytes"], &kept["max_bytes"]), (&json!(20 * MIB), &json!(24 * MIB)), "as it was");
    let lifted = put(json!({"min_bytes": 0, "max_bytes": TOTAL})).json();
    assert_eq!((&lifted["min_bytes"], &lifted["max_bytes"]), (&json!(0), &Value::Null));
    policy(http, json!({"policy": "equal"}));
    assert_eq!(allocated(http), [16 * MIB, 16 * MIB]);
}

#[test]
fn size_of_a_partition_in_a_dry_run_is_only_reported() {
    let mut setup = setup(["a", "b", "c"].map(|name| (name, vec![compute()])).into());
    for (partition, mib) in setup.partitions.iter_mut().zip([20, 4, 8]) {
        partition.initial_bytes = Some(mib * MIB);
    }
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.ask("PUT", "/v1/partitions/a", r#"{"dry_run": true}"#).json()["dry_run"], true);
    let latest = policy(http, json!({"policy": "equal"}))["latest"].clone();
    assert_eq!(allocated(http), [20 * MIB, 6 * MIB, 6 * MIB]);
    assert_eq!(latest["moves"][0]["reason"], "in a dry run, would have 10.7 MiB");
    assert_eq!(http.ask("PUT", "/v1/partitions/a", r#"{"dry_run": false}"#).json()["dry_run"], false);
    policy(http, json!({"policy": "equal"}));
    assert!(allocated(http)[0] < 11 * MIB);
}

/// Two backends that make their values up, of which the second has at most 8 MiB.
fn with_total(total: &str, policy: &str) -> Config {
    let text = format!(
        "[memory]\ntotal = \"{total}\"\n[admin]\nbind = \"127.0.0.1:0\"\n[control]\npolicy = \"{policy}\"\n\
         [[partition]]\nbackend = \"a\"\n[[partition]]\nbackend = \"b\"\nmin = \"2MiB\"\nmax = \"8MiB\"\n\
         [[backend]]\nname = \"a\"\nstore = {{ kind = \"compute\", n = 1, bytes = \"1KB\" }}\n\
         [[backend]]\nname = \"b\"\nstore = {{ kind = \"compute\", n = 1, bytes = \"1KB\" }}\n"
    );
    let policies = sherwood_policy::available_without_options();
    parse("a.toml", &text, &Flags::default(), policies).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn reload_raises_and_lowers_the_total_without_losing_items_that_fit() {
    let [small, large, tiny] = ["12MiB", "40MiB", "6MiB"].map(|total| with_total(total, "equal"));
    let node = Node::start(Setup::from_config(&small).unwrap()).unwrap();
    let http = Http::of(&node);
    let of = |field: &str| -> Vec<u64> {
        let partitions = http.get("/v1/partitions");
        partitions.as_array().unwrap().iter().map(|one| one[field].as_u64().unwrap()).collect()
    };
    let limit = || {
        let metrics = http.ask("GET", "/metrics", "").body;
        let line = metrics.lines().find(|line| line.starts_with("sherwood_memory_limit_bytes ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
    };
    let at_start = limit();
    assert_eq!(of("allocated_bytes"), [6 * MIB, 6 * MIB]);
    fill(http, "a", 0..4_000);
    let items = of("items")[0];
    assert_eq!(node.reload(&small, &large, ReloadOptions::default()), Ok(vec!["[memory] total".to_owned()]));
    assert_eq!(of("allocated_bytes"), [32 * MIB, 8 * MIB], "b has its maximum");
    assert_eq!((limit() - at_start, of("items")[0]), (28 * MIB, items));
    fill(http, "a", 4_000..20_000);
    assert!(of("items")[0] > 19_000 && of("used_bytes")[0] > 16 * MIB);
    // The maximum of b is above this total, and so without effect.
    node.reload(&large, &tiny, ReloadOptions::default()).unwrap();
    let sizes = of("allocated_bytes");
    assert!(sizes.iter().sum::<u64>() == 6 * MIB && sizes[1] >= 2 * MIB, "{sizes:?}");
    assert_eq!(at_start - limit(), 6 * MIB);
    eventually("the cache has shrunk", || of("used_bytes").iter().sum::<u64>() <= 6 * MIB);
    assert!(of("items")[0] > 2_000);
    node.stop();
}

#[test]
fn reload_changes_the_total_of_one_lru_that_partitions_share() {
    let [small, large] = ["12MiB", "40MiB"].map(|total| with_total(total, "shared-lru"));
    let node = Node::start(Setup::from_config(&small).unwrap()).unwrap();
    let http = Http::of(&node);
    let used = || -> u64 {
        let partitions = http.get("/v1/partitions");
        partitions.as_array().unwrap().iter().map(|one| one["used_bytes"].as_u64().unwrap()).sum()
    };
    node.reload(&small, &large, ReloadOptions::default()).unwrap();
    fill(http, "a", 0..16_000);
    fill(http, "a", 16_000..18_000);
    assert!(used() > 16 * MIB, "{}", used());
    node.reload(&large, &small, ReloadOptions::default()).unwrap();
    eventually("the cache has shrunk", || used() <= 12 * MIB);
    node.stop();
}

#[test]
fn reload_changes_the_total_of_tenants_by_their_weights() {
    let with_total = |total: &str| {
        let text = format!(
            "[memory]\ntotal = \"{total}\"\n[admin]\nbind = \"127.0.0.1:0\"\n[control]\npolicy = \"static\"\n\
             [[backend]]\nname = \"a\"\n[[tenant]]\nname = \"gold\"\nweight = 3.0\nmin = \"2MiB\"\n\
             [[tenant]]\nname = \"silver\"\n"
        );
        let policies = sherwood_policy::available_without_options();
        parse("a.toml", &text, &Flags::default(), policies).unwrap_or_else(|error| panic!("{error}"))
    };
    let [large, small] = ["64MiB", "16MiB"].map(with_total);
    let node = Node::start(Setup::from_config(&large).unwrap()).unwrap();
    let http = Http::of(&node);
    let bases = || {
        let tenants = http.get("/v1/tenants")["tenants"].clone();
        [0, 1].map(|index| tenants[index]["base"]["cache_bytes"].as_u64().unwrap())
    };
    let allocated = || allocated(http).iter().sum::<u64>();
    assert_eq!((bases(), allocated()), ([48 * MIB, 16 * MIB], 64 * MIB));
    node.reload(&large, &small, ReloadOptions::default()).unwrap();
    assert_eq!(bases(), [12 * MIB, 4 * MIB]);
    assert!(allocated() <= 16 * MIB, "{}", allocated());
    node.reload(&small, &large, ReloadOptions::default()).unwrap();
    assert_eq!(bases(), [48 * MIB, 16 * MIB]);
    eventually("tenants have the larger total", || allocated() == 64 * MIB);
    // The least bytes of a tenant exceed its part.
    assert!(
        node.reload(
            &large,
            &{
                let mut tiny = with_total("16MiB");
                tiny.memory.total_bytes = 2 * MIB;
                tiny
            },
            ReloadOptions::default()
        )
        .is_err()
    );
    node.stop();
}

#[test]
fn reload_changes_lifetimes_of_values_and_the_slo_of_a_class() {
    let with = |rules: &str, bound: &str| {
        let text = format!(
            "[admin]\nbind = \"127.0.0.1:0\"\n[control]\npolicy = \"static\"\n\
             [[slo.class]]\nname = \"page\"\nbound = \"{bound}\"\n\
             [[backend]]\nname = \"a\"\n{rules}\nstore = {{ kind = \"compute\", n = 1, bytes = \"1KB\" }}\n"
        );
        let policies = sherwood_policy::available_without_options();
        parse("a.toml", &text, &Flags::default(), policies).unwrap_or_else(|error| panic!("{error}"))
    };
    let before = with("", "90ms");
    let after = with("ttl_rules = [{ prefix = \"7\", ttl = \"0s\" }]", "80ms");
    let node = Node::start(Setup::from_config(&before).unwrap()).unwrap();
    let http = Http::of(&node);
    let misses = || http.get("/v1/partitions")[0]["misses"].as_u64().unwrap();
    (0..2).for_each(|_| fill(http, "a", 70..72));
    assert_eq!(misses(), 2, "they are cached");
    let changed = ["[[slo.class]], [[slo.tenant]]", "lifetimes of backend a"].map(str::to_owned);
    assert_eq!(node.reload(&before, &after, ReloadOptions::default()), Ok(changed.to_vec()));
    (0..2).for_each(|_| fill(http, "a", 72..74));
    assert_eq!(misses(), 6, "values with a lifetime of zero are not");
    (0..2).for_each(|_| fill(http, "a", 80..82));
    assert_eq!(misses(), 8);
    assert_eq!(http.get("/v1/slo")["classes"][0]["bound_ms"], 80.0);
    node.stop();
}
