//! The references of metrics and of the admin API, compared with running nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use sherwood_config::{Flags, parse};
use sherwood_node::{Node, Setup};

use crate::golden::assert_current;
use crate::programs;
use crate::support::{Client, Http};
use crate::wait::eventually;

/// A node with one tenant and everything else.
const FULL: &str = r#"
[memory]
total = "32MiB"
mrc_sample = 1.0
[admin]
bind = "127.0.0.1:0"
[slo]
observe = "10ms"
[[slo.class]]
name = "page"
[[slo.tenant]]
name = "default"
[[listener]]
bind = "127.0.0.1:0"
backend = "made"
mode = "read-through"
[[listener]]
protocol = "redis"
bind = "127.0.0.1:0"
backend = "made"
mode = "read-through"
[[backend]]
name = "made"
store = { kind = "synthetic", latency = "0s" }
ramp = {}
deadlines = {}
dispatch = { queue = "edf", admit = "deadline", target = 0.1, copies = "fixed", factor = 1 }
[[backend]]
name = "gone"
timeout = "10s"
store = { kind = "memcached", address = "127.0.0.1:1" }
[[backend]]
name = "own"
store = { kind = "compute", n = 1 }
[[backend]]
name = "turns"
store = { kind = "synthetic", latency = "0s", tickets = "http://127.0.0.1:1" }
dispatch = { balance = "tickets" }
[[partition]]
backend = "made"
max = "16MiB"
[[scheduler]]
name = "made"
[replication]
tiers = ["made"]
"#;

/// A node that divides cache and units among tenants.
const TENANTS: &str = r#"
[memory]
total = "32MiB"
[admin]
bind = "127.0.0.1:0"
[[backend]]
name = "made"
store = { kind = "synthetic", latency = "0s" }
[[tenant]]
name = "default"
[[tenant]]
name = "gold"
[[resource]]
name = "made-reads"
kind = "reads"
backend = "made"
total = 1000
[[resource]]
name = "network"
kind = "network"
total = "1GiB"
"#;

/// A node that resizes caches which are not there.
const INSTANCES: &str = r#"
[admin]
bind = "127.0.0.1:0"
[[backend]]
name = "made"
[[partition]]
backend = "made"
cache = { kind = "memcached", address = "127.0.0.1:1" }
"#;

/// A node whose replicated store is not there.
const REPLICATED: &str = r#"
[admin]
bind = "127.0.0.1:0"
[[backend]]
name = "made"
duplicates = 1
replicas = [{ kind = "memcached", address = "127.0.0.1:1" }]
[stores]
manager = "fixed"
"#;

/// A node of a cluster whose bus is not there.
const CLUSTER: &str = r#"
[admin]
bind = "127.0.0.1:0"
[cluster]
name = "shop"
node = "a"
nodes = ["a", "b"]
bus = { servers = ["nats://127.0.0.1:1"] }
[[backend]]
name = "made"
timeout = "1s"
store = { kind = "synthetic", latency = "0s" }
shared = {}
[[tenant]]
name = "default"
[[resource]]
name = "made-reads"
kind = "reads"
backend = "made"
total = 1000
"#;

fn start(text: &str) -> Node {
    let config = parse("a.toml", text, &Flags::default(), sherwood_policy::available_without_options());
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    Node::start(Setup::from_config(&config).expect("nothing to open")).unwrap()
}

/// Families that need a store of AWS, certificates, calls that wait, accesses of a managed store,
/// or tenants that ask for more than they have.
const RARE: [(&str, &str, &[&str], &str); 7] = [
    (
        "certificate_expiry_timestamp_seconds",
        "gauge",
        &["port"],
        "Seconds since 1970 from which the certificate of a port is invalid",
    ),
    (
        "plan_measured",
        "gauge",
        &["backend"],
        "Share of accesses that were within the bound in the latest window",
    ),
    (
        "plan_predicted",
        "gauge",
        &["backend"],
        "Share of accesses within the bound that the model predicts for the latest window",
    ),
    (
        "query_queue_seconds",
        "histogram",
        &["operation", "partition"],
        "Time for which keys waited for the start of their call to a backend",
    ),
    (
        "store_consumed_units_total",
        "counter",
        &["backend", "replica", "kind"],
        "Units of capacity consumed, as the store reports them",
    ),
    (
        "tenant_bound_ratio",
        "gauge",
        &[],
        "Upper bound of the least normalized throughput under any division, at the last decision",
    ),
    (
        "tenant_normalized_throughput",
        "gauge",
        &["tenant"],
        "Measured throughput divided by that of the baseline, while the tenant asks for more",
    ),
];

fn add_rare(families: &mut BTreeMap<String, Family>) {
    let sources = concat!(
        include_str!("../../src/observe/metrics/duplicates.rs"),
        include_str!("../../src/observe/metrics/mod.rs"),
        include_str!("../../src/observe/metrics/query_times.rs"),
        include_str!("../../src/observe/metrics/tenants.rs"),
    );
    for (name, kind, labels, help) in RARE {
        let stem = name.trim_end_matches("_total");
        for part in [stem, help].iter().chain(labels) {
            assert!(sources.contains(&format!("\"{part}\"")), "the code has no {part}");
        }
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let family = Family { help: help.to_owned(), kind: kind.to_owned(), labels };
        families.entry(format!("sherwood_{name}")).or_insert(family);
    }
}

/// Has the node count something of every kind.
fn use_all(node: &Node) {
    let http = Http::of(node);
    let mut client = Client::connect(node);
    client.send("mg new");
    client.lines(1);
    let request = json!({"class": "page", "deadline_ms": 1000, "queries": [
        {"backend": "made", "keys": ["a"]}, {"backend": "gone", "keys": ["a"], "best_effort": true}]});
    http.request(&request);
    http.request(&request);
    let refused = http.ask("PUT", "/v1/keys/gone/a", "1");
    assert_eq!(refused.status, 502, "{refused:?}");
    eventually("all SLOs are observed", || {
        let slo = http.get("/v1/slo");
        let observed = |scope: &str| slo[scope][0]["observations"].as_u64() > Some(0);
        observed("classes") && observed("tenants") && slo["current_ms"].is_number()
    });
    eventually("queries are timed", || {
        let metrics = http.ask("GET", "/metrics", "").body;
        let timed = ["sherwood_query_p99_seconds{", "sherwood_query_duration_seconds_"];
        timed.iter().all(|name| metrics.contains(name))
    });
}

#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    labels: BTreeSet<String>,
}

/// Adds the families of a classic text.
fn add_families(families: &mut BTreeMap<String, Family>, text: &str) {
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            current = name.to_owned();
            families.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            families.get_mut(name).expect("help comes first").kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            // Texts between quotes are values, none of which has quotes here.
            let names = labels.split('"').step_by(2).filter_map(|part| part.strip_suffix('='));
            let names = names.map(|name| name.trim_start_matches(',').to_owned());
            families.get_mut(&current).unwrap().labels.extend(names.filter(|name| name != "le"));
        }
    }
}

const INTRODUCTION: &str = "# Metrics reference

Made from the metrics of running nodes; [Monitoring](../monitoring.md) explains how to use them, and
[`GET /metrics`](../admin-api.md#get-metrics) the formats. Names are those of the classic text
format. A family is there once it has a sample; those of tenants, schedulers, TLS and the like are
there where the node uses these.
";

#[test]
fn reference_of_metrics_is_current() {
    let mut families = BTreeMap::new();
    let (full, tenants, instances) = (start(FULL), start(TENANTS), start(INSTANCES));
    let (cluster, replicated) = (start(CLUSTER), start(REPLICATED));
    use_all(&full);
    for _ in 0..2 {
        let body = json!({"tenant": "gold", "queries": [{"backend": "made", "keys": ["a"]}]});
        Http::of(&tenants).request(&body);
    }
    eventually("tenants are observed", || {
        Http::of(&tenants).ask("GET", "/metrics", "").body.contains("sherwood_tenant_gain_ratio ")
    });
    for node in [&full, &tenants, &instances, &cluster, &replicated] {
        add_families(&mut families, &Http::of(node).ask("GET", "/metrics", "").body);
    }
    add_rare(&mut families);
    let mut page = format!("{INTRODUCTION}\n| name | type | labels | meaning |\n|---|---|---|---|\n");
    for (name, Family { help, kind, labels }) in &families {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
    }
    assert_current("docs/src/reference/metrics.md", &page);
}

/// Asks for every JSON answer of a node that is not a refusal.
fn answers(http: Http, more: &[(&str, &str, &str, &str)]) -> Vec<Value> {
    let document = http.get("/v1/openapi.json");
    let gets = document["paths"].as_object().unwrap().iter().filter_map(|(path, methods)| {
        let is_json = !methods["get"]["responses"]["200"]["content"]["application/json"].is_null();
        // Answers of these are asked for below, or are no data of the node.
        let skipped =
            ["{", "tenants", "recording", "replication", "cluster"].iter().any(|part| path.contains(part));
        (is_json && !skipped).then_some(("GET", path.as_str(), path.as_str(), ""))
    });
    let gets: Vec<_> = gets.collect();
    answers_of(http, &gets).into_iter().chain(answers_of(http, more)).collect()
}

/// Asks for these answers, given as method, path of the document, URL and body.
fn answers_of(http: Http, asked: &[(&str, &str, &str, &str)]) -> Vec<Value> {
    let ask = |(method, path, url, body): &(&str, &str, &str, &str)| {
        let answer = http.ask(method, url, body);
        assert!(answer.status < 300, "{method} {url}: {answer:?}");
        json!({"method": method.to_lowercase(), "path": path, "body": answer.json()})
    };
    asked.iter().map(ask).collect()
}

#[test]
fn answers_of_nodes_are_those_of_the_openapi_document() {
    let (full, tenants) = (start(FULL), start(TENANTS));
    let http = Http::of(&full);
    use_all(&full);
    assert_eq!(http.ask("POST", "/v1/recording", "").status, 204);
    let request =
        r#"{"queries":[{"backend":"made","keys":["a"]},{"backend":"gone","keys":["a"],"best_effort":true}]}"#;
    let mut cases = answers(
        http,
        &[
            ("POST", "/v1/requests", "/v1/requests", request),
            ("POST", "/v1/reports", "/v1/reports", r#"[{"latency_us":1,"blocking":"made","class":"page"}]"#),
            ("GET", "/v1/mrc/{partition}", "/v1/mrc/made", ""),
            ("PUT", "/v1/partitions/{name}", "/v1/partitions/made", r#"{"min_bytes":1}"#),
            ("PUT", "/v1/backends/{name}/limit", "/v1/backends/own/limit", r#"{"slots":2}"#),
            ("PUT", "/v1/control", "/v1/control", r#"{"policy":"equal"}"#),
            ("POST", "/v1/invalidate", "/v1/invalidate", r#"{"backend":"made","prefix":"a"}"#),
            ("GET", "/v1/recording", "/v1/recording", ""),
            ("GET", "/v1/replication", "/v1/replication", ""),
        ],
    );
    let what_if = r#"{"weights":{"gold":2},"add":[{"name":"b","demand_if_miss":{"made-reads":1}}]}"#;
    cases.extend(answers(
        Http::of(&tenants),
        &[
            ("GET", "/v1/tenants", "/v1/tenants", ""),
            ("GET", "/v1/tenants/trades", "/v1/tenants/trades", ""),
            ("POST", "/v1/tenants/what-if", "/v1/tenants/what-if", what_if),
            ("PUT", "/v1/tenants/{name}", "/v1/tenants/gold", r#"{"weight":2}"#),
        ],
    ));
    let cluster = start(CLUSTER);
    let of_cluster = [("GET", "/v1/cluster", "/v1/cluster", ""), ("GET", "/v1/rbc", "/v1/rbc", "")];
    cases.extend(answers_of(Http::of(&cluster), &of_cluster));
    // Answers that are not those of the document, to see that they are found.
    let mut wrong = cases.iter().filter(|case| case["body"].is_object()).cloned().collect::<Vec<_>>();
    wrong.iter_mut().for_each(|case| {
        case["body"]["no_such_field"] = json!(1);
        case["wrong"] = true.into();
    });
    cases.retain(|case| case["path"] != "/v1/openapi.json");
    wrong.retain(|case| case["path"] != "/v1/openapi.json");
    cases.extend(wrong);
    let directory = tempfile::tempdir().unwrap();
    let (document, asked) = (directory.path().join("openapi.json"), directory.path().join("cases.json"));
    fs::write(&document, http.get("/v1/openapi.json").to_string()).unwrap();
    fs::write(&asked, json!(cases).to_string()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/answers.py");
    let remedy =
        "python3 -m venv target/venv && target/venv/bin/pip install -r scripts/python-requirements.txt";
    let mut command = Command::new(programs::python());
    let Some(output) = programs::run(command.arg("-B").arg(script).args([document, asked]), remedy) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, format!("{} checked\n", cases.len()));
}
