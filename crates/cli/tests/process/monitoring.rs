//! Prometheus with the configuration and rules of `deploy/`, and the queries of its dashboard.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::page::can_type;
use crate::prometheus::{Prometheus, ask, receive_alerts};
use crate::support::{Server, TIMEOUT};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
const SCRAPES: &str = include_str!("../../../../deploy/prometheus/prometheus.yml");
const RULES: &str = include_str!("../../../../deploy/prometheus/sherwood.rules.yml");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana/sherwood.json");

/// A metric without samples until a tenant has asked for more than it has for 20 s.
const LATE: &str = "sherwood_tenant_normalized_throughput";

/// The latency of `prices` is above the SLOs' bound. No server is at the address of the bus, so the
/// peer is silent.
const NODE: &str = r#"
[memory]
total = "16MiB"
[admin]
bind = "127.0.0.1:0"
[[listener]]
bind = "127.0.0.1:0"
tls = { cert = "HERE/cert.pem", key = "HERE/key.pem" }
route = "prefix"
[slo]
percentile = 99.0
bound = "150ms"
window = "2s"
observe = "100ms"
[[slo.class]]
name = "page"
percentile = 95.0
bound = "150ms"
[cluster]
name = "shop"
node = "a"
nodes = ["a", "b"]
bus = { servers = ["nats://127.0.0.1:9"] }
[[backend]]
name = "catalog"
prefix = "catalog/"
shared = {}
store = { kind = "synthetic", bytes = "8B", latency = "0s" }
[[backend]]
name = "prices"
prefix = "prices/"
store = { kind = "synthetic", bytes = "8B", latency = "200ms" }
[[backend]]
name = "profiles"
prefix = "profiles/"
duplicates = 2
replicas = [{ kind = "redis", address = "127.0.0.1:9" }, { kind = "redis", address = "127.0.0.1:10" }]
"#;

const NODE_OF_TENANTS: &str = r#"
[memory]
total = "16MiB"
[admin]
bind = "127.0.0.1:0"
[tenants]
period = "1s"
window = "20s"
[[tenant]]
name = "gold"
[[tenant]]
name = "silver"
[[resource]]
name = "orders-reads"
kind = "reads"
backend = "orders"
total = 200
[cluster]
name = "shop"
node = "b"
nodes = ["a", "b"]
bus = { servers = ["nats://127.0.0.1:9"] }
[[backend]]
name = "orders"
store = { kind = "synthetic", bytes = "8B", latency = "0s" }
"#;

const NODE_OF_PRICES: &str = r#"
[memory]
total = "16MiB"
[admin]
bind = "127.0.0.1:0"
[[backend]]
name = "prices"
store = { kind = "synthetic", bytes = "8B", latency = "200ms" }
"#;

#[test]
fn configuration_and_rules_pass_promtool() {
    if !can_type(&[("promtool", "prometheus")]) {
        return;
    }
    for (checks, file) in
        [(["check", "config"], "prometheus.yml"), (["test", "rules"], "sherwood.rules.test.yml")]
    {
        let output = Command::new("promtool").args(checks).arg(file).current_dir(DIRECTORY).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{checks:?} {file}: {said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn slow_backend_fires_the_burn_rate_alert_and_the_dashboard_has_data() {
    if !can_type(&[("prometheus", "prometheus"), ("openssl", "openssl")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let [node, tenants] = [("node", NODE), ("tenants", NODE_OF_TENANTS)]
        .map(|(name, config)| serve(directory.path(), name, config));
    let (receiver, alerts) = receive_alerts();
    let targets = format!("\"{}\", \"{}\"", node.address("admin"), tenants.address("admin"));
    fs::write(directory.path().join("prometheus.yml"), configuration(&targets, &receiver)).unwrap();
    fs::write(directory.path().join("sherwood.rules.yml"), hastened(RULES)).unwrap();
    let prometheus = Prometheus::start(directory.path(), &[]);
    let mut traffic = Traffic { nodes: [node.address("admin"), tenants.address("admin")], requests: 0 };

    // All is well: two burn rates, of all requests and of the class, are known and zero.
    let burns = || prometheus.query("job_class:sherwood_slo_burn:ratio_rate5m == 0");
    wait("the burn rates are zero", || {
        traffic.fast();
        assert_eq!(firing(&alerts), None, "nothing is slow");
        burns().is_some_and(|burns| burns.unwrap().len() == 2)
    });
    let mut fired = Vec::new();
    wait("both alerts fire", || {
        traffic.slow();
        fired.extend(firing(&alerts));
        ["", "page"].iter().all(|class| fired.iter().any(|fired| fired == class))
    });

    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    for query in queries.iter().map(String::as_str).chain(names(RULES)) {
        let data = || !prometheus.query(query).expect("it runs").unwrap().is_empty();
        wait(&format!("{query} has data"), || data() || query.contains(LATE));
    }
}

#[test]
fn quantiles_follow_from_classic_and_from_native_histograms() {
    if !can_type(&[("prometheus", "prometheus")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let node = serve(directory.path(), "node", NODE_OF_PRICES);
    let targets = format!("\"{}\"", node.address("admin"));
    let start = |name: &str, options: &[&str]| {
        let own = directory.path().join(name);
        fs::create_dir(&own).unwrap();
        // No alert is sent.
        fs::write(own.join("prometheus.yml"), configuration(&targets, "127.0.0.1:9")).unwrap();
        fs::write(own.join("sherwood.rules.yml"), RULES).unwrap();
        Prometheus::start(&own, options)
    };
    let classic = start("classic", &[]);
    let native = start("native", &["--enable-feature=native-histograms"]);
    let mut traffic = Traffic { nodes: [node.address("admin"), String::new()], requests: 0 };
    for (prometheus, suffix, by) in [(&classic, "_bucket", "by (le)"), (&native, "", "")] {
        let selected = format!("sherwood_query_duration_seconds{suffix}{{partition=\"prices\"}}[10s]");
        let query = format!("histogram_quantile(0.5, sum {by} (rate({selected})))");
        // A median of no queries is not a number.
        let value =
            |sample: &Value| sample["value"][1].as_str()?.parse().ok().filter(|of: &f64| of.is_finite());
        let mut median = None;
        wait(&format!("{query} has a value"), || {
            let key = traffic.next_key("prices");
            let body = json!({"queries": [{"backend": "prices", "keys": [key]}]});
            traffic.post(0, "/v1/requests", &body);
            let samples = prometheus.query(&query).and_then(Result::ok).unwrap_or_default();
            median = samples.first().and_then(value);
            median.is_some()
        });
        // The backend takes at least 0.2 s, and native buckets are 9% wide.
        assert!(median.is_some_and(|median| median > 0.18), "{query}: {median:?}");
    }
    let of_native = |query: &str| native.query(query).unwrap().unwrap().len();
    assert_eq!(of_native("sherwood_query_duration_seconds_bucket"), 0, "it keeps native buckets alone");
    assert!(of_native("sherwood_uptime_seconds") > 0, "other metrics are there as well");
}

/// Writes a certificate and its key, `cert.pem` and `key.pem`.
fn certify(directory: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=localhost", "-days", "365", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Starts a node with this configuration, whose files are in the directory.
fn serve(directory: &Path, name: &str, config: &str) -> Server {
    let path = directory.join(name).with_extension("toml");
    fs::write(&path, config.replace("HERE", directory.to_str().unwrap())).unwrap();
    let mut server = Server::start(&["--config", path.to_str().unwrap()]);
    server.ignore();
    server
}

/// Waits until `done` returns true.
fn wait(event: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "it never happened that {event}");
    }
}

/// The scrape configuration of `deploy/` for other nodes and a receiver of alerts, in a hurry.
fn configuration(targets: &str, receiver: &str) -> String {
    let replace = |text: &str, old: &str, new: &str| {
        assert!(text.contains(old), "no {old} in prometheus.yml");
        text.replace(old, new)
    };
    let scrapes = replace(&replace(SCRAPES, "15s", "250ms"), "\"127.0.0.1:8080\"", targets);
    format!(
        "{scrapes}alerting:\n  alertmanagers:\n    - static_configs:\n        - targets: [\"{receiver}\"]\n"
    )
}

/// Rules with seconds in place of minutes, and minutes in place of hours.
fn hastened(rules: &str) -> String {
    let hasten = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(time) => line.replace(time, &time.replace('m', "s").replace('h', "m")),
        None => line.replace("m]", "s]").replace("h]", "m]"),
    };
    rules.lines().map(|line| hasten(line) + "\n").collect()
}

/// Returns the class for which the alert of the shortest windows fires, if one arrives within a
/// moment; the class is empty for all requests.
fn firing(alerts: &Receiver<Value>) -> Option<String> {
    let alert = alerts.recv_timeout(Duration::from_millis(50)).ok()?;
    let labels = &alert["labels"];
    let of_burning = labels["alertname"] == "SherwoodErrorBudgetBurn" && labels["window"] == "1h";
    of_burning.then(|| labels["class"].as_str().unwrap_or("").to_owned())
}

/// Requests to both nodes.
struct Traffic {
    nodes: [String; 2],
    requests: u64,
}

impl Traffic {
    /// Reports a request within the bound, since a busy machine may be slow by itself, and asks for
    /// a key with a deadline, and for keys of tenants.
    fn fast(&mut self) {
        let report = json!([{"class": "page", "latency_us": 1_000, "blocking": "catalog"}]);
        self.post(0, "/v1/reports", &report);
        for tenant in ["gold", "silver"] {
            let key = self.next_key("orders");
            self.post(
                1,
                "/v1/requests",
                &json!({"tenant": tenant, "queries": [{"backend": "orders", "keys": [key]}]}),
            );
        }
    }

    /// Requests a key that is answered after the bound.
    fn slow(&mut self) {
        let queries = ["catalog", "prices"]
            .map(|backend| json!({"backend": backend, "keys": [self.next_key(backend)]}));
        self.post(0, "/v1/requests", &json!({"class": "page", "deadline_ms": 5_000, "queries": queries}));
    }

    /// A key that was not asked for before.
    fn next_key(&mut self, backend: &str) -> String {
        self.requests += 1;
        format!("{backend}/{}", self.requests)
    }

    fn post(&self, node: usize, path: &str, body: &Value) {
        let answer = ask(&self.nodes[node], "POST", path, &body.to_string()).unwrap();
        assert!(!answer.contains("error"), "{path} {body}: {answer}");
    }
}

/// Returns every query of the dashboard: of panels, annotations and variables.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    collect(&dashboard, &mut found);
    let fill = |query: String| {
        query.replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "10s")
    };
    found.into_iter().map(fill).collect()
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            // The labels of a variable's values are those of an instant query.
            let variable = fields.get("definition").and_then(Value::as_str);
            found.extend(
                variable
                    .and_then(|of| Some(of.strip_prefix("label_values(")?.rsplit_once(", ")?.0.to_owned())),
            );
            fields.values().for_each(|value| collect(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// Returns the names of metrics, and of what is recorded, in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.filter(|word| word.starts_with("sherwood_") || word.starts_with("job_class:"))
}
