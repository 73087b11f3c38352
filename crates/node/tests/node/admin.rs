//! Every endpoint of the admin API, with the exact names of its fields.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use serde_json::{Value, json};
use sherwood_cache::{DeadlineClasses, DeadlineOptions};
use sherwood_config::{SloScope, SloSetup};
use sherwood_model::{Slo, TenantId};
use sherwood_node::{ListenerSetup, Node};
use sherwood_store::Store;

use crate::support::{Client, Fake, Http, Mood, NEVER, TOTAL, answer, listener, partition, setup};
use crate::wait::eventually;

fn node() -> (Node, Arc<Fake>) {
    let fake = Fake::new([("a/1", &b"1"[..])]);
    let backends = vec![("catalog", vec![fake.clone() as Arc<dyn Store>]), ("plain", vec![])];
    (Node::start(setup(backends)).unwrap(), fake)
}

/// The names of an object's fields and the types of their values.
fn shape(value: &Value) -> String {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fields = value.as_object().unwrap().iter().map(|(name, value)| format!("{name}: {}", kind(value)));
    fields.collect::<Vec<_>>().join(", ")
}

#[test]
fn admin_api_lists_partitions() {
    let (node, _) = node();
    let http = Http::of(&node);
    http.key("catalog", "a/1");
    http.key("catalog", "a/1");
    let class = |counts: [u64; 4]| class(None, 1.0, counts, 0);
    let expected = json!([
        {"name": "catalog", "backend": "catalog", "tenant": "default", "allocated_bytes": 16 << 20, "used_bytes": 44,
         "items": 1, "hits": 1, "misses": 1, "evictions": 0, "min_bytes": 0, "max_bytes": null, "dry_run": false,
         "classes": [class([1, 44, 1, 1])]},
        {"name": "plain", "backend": "plain", "tenant": "default", "allocated_bytes": 16 << 20, "used_bytes": 0,
         "items": 0, "hits": 0, "misses": 0, "evictions": 0, "min_bytes": 0, "max_bytes": null, "dry_run": false,
         "classes": [class([0; 4])]},
    ]);
    let mut listed = http.get("/v1/partitions");
    // Latencies differ from run to run; another test has them.
    for partition in listed.as_array_mut().unwrap() {
        assert!(partition.as_object_mut().unwrap().remove("latency_ms").is_some(), "{partition}");
    }
    assert_eq!(listed, expected);
}

/// A deadline class as it is listed: items, bytes, hits and misses in `counts`.
fn class(
    upto_ms: Option<f64>,
    multiplier: f64,
    [items, bytes, hits, misses]: [u64; 4],
    deadline_missed: u64,
) -> Value {
    json!({"upto_ms": upto_ms, "multiplier": multiplier, "items": items, "bytes": bytes, "hits": hits,
           "misses": misses, "deadline_missed": deadline_missed})
}

#[test]
fn deadline_classes_show_items_and_missed_deadlines() {
    let fake = Fake::new([("a", &b"1"[..]), ("b", b"2"), ("c", b"3")]);
    let mut setup = setup(vec![("catalog", vec![fake as Arc<dyn Store>])]);
    let hours = [1, 2, 3].map(|hours| Duration::from_secs(3_600 * hours));
    let classes = DeadlineClasses::with_bounds(&hours).unwrap();
    setup.backends[0].deadlines = DeadlineOptions { classes, step: 1.0, ..DeadlineOptions::ONE };
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    // A microsecond is over before any store answers.
    for (key, deadline_ms) in [("a", Some(1e-3)), ("b", Some(5_400_000.0)), ("c", None)] {
        for _ in 0..2 {
            let query = json!({"backend": "catalog", "keys": [key]});
            http.request(&json!({"deadline_ms": deadline_ms, "queries": [query]}));
        }
    }
    let expected = json!([
        class(Some(3_600_000.0), 1.5, [1, 44, 1, 1], 1),
        class(Some(7_200_000.0), 0.75, [1, 44, 1, 1], 0),
        class(Some(10_800_000.0), 0.75, [1, 44, 1, 1], 0),
    ]);
    assert_eq!(http.get("/v1/partitions")[0]["classes"], expected);
}

#[test]
fn admin_api_shows_slo_and_blocking_counts() {
    let (node, _) = node();
    let http = Http::of(&node);
    let slo = http.get("/v1/slo");
    assert_eq!(
        (&slo["percentile"], &slo["bound_ms"], &slo["window_s"]),
        (&json!(99.0), &json!(150.0), &json!(60.0))
    );
    assert_eq!(slo["current_ms"], Value::Null, "no request, no percentile");
    assert_eq!(
        http.get("/v1/rbc"),
        json!({"window_s": 60.0, "reached_s": 600.0, "band": [0.985, 0.995], "counts": {"catalog": 0, "plain": 0}})
    );
    http.key("catalog", "a/1");
    eventually("it is observed", || http.get("/v1/slo")["current_ms"].is_number());
    let slo = http.get("/v1/slo");
    assert_eq!(
        shape(&slo),
        "bound_ms: number, budget_left_ratio: number, classes: array, current_ms: number, max_ms: number, \
         observations: number, percentile: number, tenants: array, violation_ratio: number, violations: number, window_s: number"
    );
    assert_eq!(slo["budget_left_ratio"], json!(1.0), "no request has exceeded the bound");
    // Of 200 requests and the one before, ranks 198 to 200 are within the band.
    let reports: Vec<_> =
        (1..=200).map(|i| json!({"latency_us": i * 1_000_000, "blocking": "plain"})).collect();
    assert_eq!(http.ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
    let rbc = http.get("/v1/rbc");
    assert_eq!(rbc["reached_s"], 60.0, "there are enough in the window");
    let counts = rbc["counts"].clone();
    assert!(counts["catalog"] == 0 && counts["plain"].as_u64().is_some_and(|count| count > 0), "{counts}");
}

#[test]
fn slos_of_classes_and_tenants_are_observed_separately() {
    let mut setup = setup(vec![("catalog", vec![Fake::new([]) as Arc<dyn Store>])]);
    setup.tenants.push("gold".to_owned());
    setup.partitions.push(partition(1, 0));
    let promise =
        |to, millis| SloSetup { to, slo: Slo { bound: Duration::from_millis(millis), ..setup.slo } };
    let class = |name: &str| SloScope::Class(name.to_owned());
    setup.slos = vec![
        promise(class("page"), 10),
        promise(class("feed"), 90),
        promise(SloScope::Tenant(TenantId(1)), 10),
    ];
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let reports = json!([
        {"latency_us": 50_000, "blocking": "catalog", "class": "page", "tenant": "gold"},
        {"latency_us": 60_000, "blocking": "catalog", "class": "feed"},
    ]);
    assert_eq!(http.ask("POST", "/v1/reports", &reports.to_string()).status, 200);
    eventually("all are observed", || http.get("/v1/slo")["classes"][1]["current_ms"].is_number());
    let slo = http.get("/v1/slo");
    assert_eq!(
        (&slo["classes"][0]["name"], &slo["classes"][0]["current_ms"]),
        (&json!("page"), &json!(50.0))
    );
    assert_eq!((&slo["classes"][1]["name"], &slo["classes"][1]["violations"]), (&json!("feed"), &json!(0)));
    assert_eq!(
        (&slo["tenants"][0]["name"], &slo["tenants"][0]["current_ms"]),
        (&json!("gold"), &json!(50.0))
    );
    assert!(slo["tenants"][0]["violations"].as_u64() > Some(0));
    let metrics = http.ask("GET", "/metrics", "").body;
    for line in [
        "sherwood_promise_bound_seconds{class=\"page\"} 0.01",
        "sherwood_promise_latency_seconds{tenant=\"gold\"} 0.05",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let unknown = r#"[{"latency_us": 1, "blocking": null, "tenant": "silver"}]"#;
    assert!(http.ask("POST", "/v1/reports", unknown).refusal(422).contains("default, gold"));
}

#[test]
fn batches_of_a_listener_count_for_the_slo_of_its_class() {
    for read_through in [true, false] {
        let fake = Fake::new([("a", &b"1"[..])]) as Arc<dyn Store>;
        let mut setup = setup(vec![("catalog", vec![fake])]);
        let class = |name: &str| SloSetup { to: SloScope::Class(name.to_owned()), slo: setup.slo };
        setup.slos = vec![class("feed"), class("page")];
        let class = Some("page".to_owned());
        setup.listeners = vec![ListenerSetup { class, read_through, ..listener(0) }];
        let node = Node::start(setup).unwrap();
        let http = Http::of(&node);
        let mut client = Client::connect(&node);
        client.ask("get a", "END");
        client.ask("set a 0 0 1\r\n1", "STORED");
        eventually("the batch is observed", || http.get("/v1/slo")["classes"][1]["current_ms"].is_number());
        assert_eq!(http.get("/v1/slo")["classes"][0]["current_ms"], Value::Null, "no other class");
        node.stop();
    }
}

#[test]
fn admin_api_shows_the_control_loop() {
    let (node, _) = node();
    let view = Http::of(&node).get("/v1/control");
    assert_eq!(
        shape(&view),
        "admission: array, available: array, band: array, decisions: number, delta_ms: number, dry_run: bool, guard: null, latest: null, policy: string, \
         rbc_window_ms: number, tax_ratio: number"
    );
    let answer = Http::of(&node).ask("PUT", "/v1/control", r#"{"policy":"equal"}"#);
    assert_eq!(
        shape(&answer.json()["latest"]),
        "applied: bool, kept: string, line: string, moves: array, pending_bytes: number, policy: string"
    );
    let guarded = Http::of(&node).ask("PUT", "/v1/control", r#"{"guard":true}"#).json();
    assert_eq!(
        shape(&guarded["guard"]),
        "frozen_s: null, good_bytes: object, good_tail_ms: null, trips: number, worse_s: null"
    );
    let off = Http::of(&node).ask("PUT", "/v1/control", r#"{"guard":false}"#).json();
    assert_eq!(off["guard"], Value::Null);
    assert!(Http::of(&node).ask("PUT", "/v1/control", r#"{"polcy":"equal"}"#).refusal(400).contains("polcy"));
}

#[test]
fn embedded_store_limits_change_at_run_time() {
    let (node, fake) = node();
    let http = Http::of(&node);
    let put =
        |name: &str, body: Value| http.ask("PUT", &format!("/v1/backends/{name}/limit"), &body.to_string());
    let view = |slots: Value, ops: Value, cpu: Value| json!({"backend": "catalog", "slots": slots, "ops_per_s": ops, "cpu_ratio": cpu});
    assert_eq!(put("catalog", json!({"slots": 4})).json(), view(json!(4), Value::Null, Value::Null));
    assert_eq!(put("catalog", json!({"ops_per_s": 0.5})).json(), view(json!(4), json!(0.5), Value::Null));
    assert_eq!(put("catalog", json!({"cpu_ratio": 0.25})).json(), view(json!(4), json!(0.5), json!(0.25)));
    assert_eq!(fake.limits().slots, Some(4));
    assert_eq!(put("catalog", json!({"slots": null})).json(), view(Value::Null, json!(0.5), json!(0.25)));
    assert!(put("catalog", json!({"slots": 0})).refusal(422).contains("1 to 65536"));
    for (body, named) in [(json!({}), 0), (json!({"slots": 1, "cpu_ratio": 1}), 2)] {
        let refusal = put("catalog", body).refusal(400);
        let what = format!("it names {named} limits; give one of `slots`, `ops_per_s` and `cpu_ratio`");
        assert!(refusal.contains(&what), "{refusal}");
    }
    assert_eq!(put("catalog", json!({"latency_ms": 1})).status, 400);
    assert!(put("plain", json!({"slots": 1})).refusal(422).contains("no store"));
    assert!(put("other", json!({"slots": 1})).refusal(404).contains("there are: catalog, plain"));
    let said = node.events().into_iter().map(|event| event.message).collect::<Vec<_>>();
    assert_eq!(said[0], "catalog limited by hand: 4 calls at a time");
}

#[test]
fn key_of_a_read_only_backend_is_removed_from_the_cache() {
    let (node, fake) = node();
    let http = Http::of(&node);
    fake.write(Mood::Refuse);
    assert_eq!(http.key("catalog", "a/1")["status"], "miss");
    for key in ["a/1", "a%2F1", "never-there"] {
        assert_eq!(http.ask("DELETE", &format!("/v1/keys/catalog/{key}"), "").status, 204);
        assert_eq!(http.key("catalog", "a/1")["status"], if key == "never-there" { "hit" } else { "miss" });
    }
    assert_eq!(fake.calls(), 3);
    assert!(http.ask("DELETE", "/v1/keys/other/a", "").refusal(404).contains("catalog, plain"));
}

#[test]
fn reported_requests_enter_the_slo_window_unless_they_are_too_old() {
    let (node, _) = node();
    let http = Http::of(&node);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let post = |body: Value| http.ask("POST", "/v1/reports", &body.to_string());
    let answer = post(json!([
        {"latency_us": 1_000, "blocking": "catalog"},
        {"latency_us": 2_000, "blocking": "plain", "t": now_ms - 1_000},
        {"latency_us": 3_000, "blocking": null, "t": now_ms + 100_000},
        {"latency_us": 4_000, "blocking": "plain", "t": now_ms - 3_600_000},
        {"latency_us": u64::MAX, "t": u64::MAX},
    ]));
    assert_eq!((answer.status, answer.json()), (200, json!({"accepted": 4, "dropped": 1})));
    assert_eq!(http.metric("sherwood_reports_dropped_total"), 1.0);
    assert_eq!(post(json!([])).json(), json!({"accepted": 0, "dropped": 0}));
}

#[test]
fn malformed_or_unknown_report_is_refused_without_affecting_the_others() {
    let (node, _) = node();
    let http = Http::of(&node);
    let post = |body: &str| http.ask("POST", "/v1/reports", body);
    let good = r#"{"latency_us": 1, "blocking": "catalog"}"#;
    for (bad, reason) in [
        (r#"{"latency_us": 1, "blocking": "other"}"#, "known: catalog, plain"),
        (r#"{"latency_us": 1, "tenant": "silver"}"#, "no tenant is called"),
        (r#"{"latency_us": -1}"#, "at [1].latency_us: -1 is not accepted; write a whole number (at least 0)"),
        (r#"{"latency_us": 99999999999999999999}"#, "[1].latency_us"),
        (r#"{"latency_us": null}"#, "[1].latency_us"),
        (r#"{"latency_us": 1, "class": "\ud800"}"#, "[1].class"),
        (r#"{"latency_us": 1, "unknown": 2}"#, "unknown key"),
        ("7", "at [1]"),
    ] {
        let answer = post(&format!("[{good}, {bad}, {good}]")).json();
        assert_eq!((&answer["accepted"], &answer["refused"]), (&json!(2), &json!(1)), "{bad}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(reason)), "{bad}: {answer}");
        let alone = post(&format!("[{bad}]"));
        assert!([400, 422].contains(&alone.status), "{bad}: {}", alone.body);
    }
    assert_eq!(post(&format!("\u{feff}[{good}]")).json(), json!({"accepted": 1, "dropped": 0}));
    assert_eq!(http.metric("sherwood_requests_total"), 17.0);
    for body in ["", "{}", "[", "[{} {}]"] {
        assert_eq!(post(body).status, 400, "{body}");
    }
}

#[test]
fn decisions_arrive_as_server_sent_events() {
    let (node, _) = node();
    let http = Http::of(&node);
    let mut lines = BufReader::new(http.send("GET", "/v1/events", "")).lines().map(Result::unwrap);
    // After the response's head, the stream is subscribed to events.
    let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
    http.ask("PUT", "/v1/control", r#"{"policy":"equal"}"#);
    let mut event = |kind: &str| {
        lines.find(|line| *line == format!("event: {kind}")).unwrap();
        let data = lines.find_map(|line| Some(line.strip_prefix("data: ")?.to_owned())).unwrap();
        serde_json::from_str::<Value>(&data).unwrap()
    };
    assert_eq!(event("policy")["message"], "policy switched to equal");
    let decision = event("decision");
    assert_eq!(shape(&decision), "data: object, kind: string, message: string, unix_ms: number");
    assert_eq!((&decision["kind"], &decision["data"]["policy"]), (&json!("decision"), &json!("equal")));
}

#[test]
fn event_streams_above_the_limit_are_refused() {
    let mut setup = setup(vec![("plain", vec![])]);
    setup.http_connections_max = 70;
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let open = |_| {
        let mut stream = http.send("GET", "/v1/events", "");
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    let _streams: Vec<_> = (0..64).map(open).collect();
    let refusal = http.ask("GET", "/v1/events", "").refusal(503);
    assert!(refusal.starts_with("64 streams of events are read already"), "{refusal}");
}

#[test]
fn text_page_shows_the_state_and_wrong_paths_are_refused_with_a_remedy() {
    let (node, _) = node();
    let http = Http::of(&node);
    http.key("catalog", "a/1");
    let page = http.ask("GET", "/status", "").body;
    for part in [
        "Sherwood ",
        "policy: static",
        "catalog",
        "P99",
        " ms",
        "replicas up",
        "1 of 1",
        "/v1/hot-keys",
        "bound 150 ms",
    ] {
        assert!(page.contains(part), "{part:?} in\n{page}");
    }
    assert_eq!(http.ask("GET", "/healthz", "").body, "ok\n");
    assert_eq!(http.ask("GET", "/readyz", "").body, "ok\n");
    assert!(http.ask("GET", "/v1/partition", "").refusal(404).contains("did you mean /v1/partitions?"));
    let wrong = http.ask("POST", "/v1/partitions", "");
    assert!(wrong.refusal(405).contains("send GET") && wrong.head.contains("allow: get"), "{wrong:?}");
}

#[test]
fn recording_collects_requests_and_calls_while_active() {
    let (node, _) = node();
    let http = Http::of(&node);
    let refusal = http.ask("GET", "/v1/recording", "").refusal(409);
    assert!(refusal.contains("POST /v1/recording begins"), "{refusal}");
    http.key("catalog", "a/1");
    for wrong in ["for_s=0", "for_s=-1", "for_s=90001", "for_s=nan", "for_s=long", "for=1"] {
        http.ask("POST", &format!("/v1/recording?{wrong}"), "").refusal(400);
    }
    assert!(http.ask("POST", "/v1/recording?for_s=0", "").refusal(400).contains("up to 90000 seconds"));
    http.ask("GET", "/v1/recording", "").refusal(409);
    assert_eq!(http.ask("POST", "/v1/recording?for_s=3600", "").status, 204);
    let both = json!({"queries": [{"backend": "plain", "keys": ["x"]}, {"backend": "catalog", "keys": ["a/1", "a/2"]}]});
    http.request(&both);
    http.key("catalog", "a/1");
    eventually("all are recorded", || http.get("/v1/recording")["requests"].as_array().unwrap().len() == 2);
    let seen = http.get("/v1/recording");
    let keys = |mean: f64| json!({"mean": mean, "deviation": 0.0});
    assert_eq!(
        seen["requests"],
        json!([
            {"requests": 1, "keys": {"catalog": keys(1.0)}},
            {"requests": 1, "keys": {"catalog": keys(2.0), "plain": keys(1.0)}},
        ])
    );
    assert!(seen["hit_latency_ms"].is_number() && seen["recorded_s"].as_f64().unwrap() > 0.0);
    assert_eq!((&seen["total_bytes"], &seen["other_requests"]), (&json!(TOTAL), &json!(0)));
    let catalog = &seen["backends"][0];
    assert_eq!(
        (&catalog["name"], &catalog["calls"], &catalog["call_keys"]),
        (&json!("catalog"), &json!(1), &json!(1))
    );
    assert_eq!(catalog["call_ms"].as_array().unwrap().len(), 105);
    assert_eq!((&catalog["replicas"], &seen["backends"][1]["replicas"]), (&json!(1), &Value::Null));
    assert!(catalog["calls_at_once_max"].as_u64().unwrap() > 0 && catalog["timeout_ms"].is_number());
    assert_eq!(seen["backends"][1]["timeout_ms"], Value::Null, "it has no store");
    assert_eq!(http.ask("DELETE", "/v1/recording", "").status, 204);
    assert_eq!(http.ask("DELETE", "/v1/recording", "").status, 409);
}

#[test]
fn request_is_recorded_once_at_its_look_up() {
    let fake = Fake::new([("a", &b"1"[..])]);
    let mut setup = setup(vec![("slow", vec![fake.clone() as Arc<dyn Store>])]);
    setup.backends[0].dispatch.timeout = NEVER;
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.ask("POST", "/v1/recording", "").status, 204);
    let recorded = || {
        let seen = http.get("/v1/recording");
        (seen["requests"].clone(), seen["hit_latency_ms"].clone(), seen["backends"][0]["calls"].clone())
    };
    let one = json!([{"requests": 1, "keys": {"slow": {"mean": 3.0, "deviation": 0.0}}}]);
    fake.be(Mood::Hang);
    let body = r#"{"queries":[{"backend":"slow","keys":["a","b"]},{"backend":"slow","keys":["a"]}]}"#;
    let client = http.send("POST", "/v1/requests", body);
    eventually("the backend is asked", || fake.calls() > 0);
    assert_eq!(http.get("/v1/partitions")[0]["misses"], 3, "the cache has counted its keys");
    assert_eq!(recorded(), (one.clone(), Value::Null, json!(0)));
    drop(client);
    eventually("the request has ended", || http.metric("sherwood_requests_total") == 1.0);
    assert_eq!(recorded(), (one, Value::Null, json!(0)));
    fake.be(Mood::Answer);
}

#[test]
fn metrics_are_valid_openmetrics_with_stable_names() {
    let fake = Fake::new([("a/1", &b"1"[..])]);
    let mut setup = setup(vec![("catalog", vec![fake as Arc<dyn Store>]), ("plain", vec![])]);
    setup.listeners = vec![listener(0), listener(1)];
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let body = json!({"class": "a \"b\"\n\\", "queries": [{"backend": "catalog", "keys": ["a/1"]}]});
    http.request(&body);
    eventually("it is observed", || http.get("/v1/slo")["current_ms"].is_number());
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let open = answer(http.send_with("GET", "/metrics", accept, ""));
    assert!(open.head.contains("application/openmetrics-text"), "{}", open.head);
    insta::assert_snapshot!("metrics", families(&open.body));
    let times = "sherwood_query_duration_seconds_count{partition=\"catalog\",operation=\"get\",outcome=";
    assert_eq!(http.metric(&format!("{times}\"fetched\"}}")), 1.0);
    let queued = "sherwood_query_queue_seconds_count{partition=\"catalog\",operation=\"get\"}";
    assert_eq!(http.metric(queued), 1.0);
    let classic = http.ask("GET", "/metrics", "");
    assert!(classic.head.contains("text/plain; version=0.0.4"), "{}", classic.head);
    assert_eq!(sample_names(&classic.body), sample_names(&open.body));
    assert_eq!(promtool_findings(&classic.body), "");
    let outcome =
        |result| http.metric(&format!("sherwood_slo_requests_total{{class=\"\",result=\"{result}\"}}"));
    assert_eq!(outcome("met") + outcome("missed"), 1.0);
}

/// The parts of Prometheus' protobuf format that the tests decode.
#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(bytes = "vec", repeated, tag = "3")]
    bucket: Vec<Vec<u8>>,
    #[prost(sint32, tag = "5")]
    schema: i32,
}

#[test]
fn scraper_that_asks_for_protobuf_gets_all_families_and_native_histograms() {
    let fake = Fake::new([("a/1", &b"1"[..])]);
    let node = Node::start(setup(vec![("catalog", vec![fake as Arc<dyn Store>])])).unwrap();
    let http = Http::of(&node);
    http.request(&json!({"queries": [{"backend": "catalog", "keys": ["a/1"]}]}));
    // Percentiles are families from then on.
    eventually("it is observed", || http.get("/v1/slo")["current_ms"].is_number());
    let accept = "accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                  encoding=delimited,text/plain;q=0.5\r\n";
    let mut bytes = Vec::new();
    http.send_with("GET", "/metrics", accept, "").read_to_end(&mut bytes).unwrap();
    let head_bytes = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&bytes[..head_bytes]).to_ascii_lowercase();
    assert!(head.contains("content-type: application/vnd.google.protobuf; proto=io.prometheus"), "{head}");
    let mut body = &bytes[head_bytes..];
    let mut families = Vec::new();
    while !body.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut body).unwrap());
    }
    let classic = http.ask("GET", "/metrics", "").body;
    let named = classic.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: Vec<_> = families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, named.collect::<Vec<_>>());
    let times = families.iter().find(|family| family.name == "sherwood_query_duration_seconds").unwrap();
    let histogram = times.metric[0].histogram.as_ref().unwrap();
    assert_eq!((histogram.sample_count, histogram.schema, histogram.bucket.len()), (1, 3, 20));
}

#[test]
fn writes_are_timed_until_the_backend_acknowledges_them() {
    let fake = Fake::new([]);
    let node = Node::start(setup(vec![("catalog", vec![fake as Arc<dyn Store>])])).unwrap();
    let http = Http::of(&node);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/a", "1").status, 204);
    assert_eq!(http.ask("DELETE", "/v1/keys/catalog/a", "").status, 204);
    for operation in ["set", "delete"] {
        let labels = format!("partition=\"catalog\",operation=\"{operation}\",outcome=\"written\"");
        assert_eq!(http.metric(&format!("sherwood_query_duration_seconds_count{{{labels}}}")), 1.0);
    }
    let waited = "sherwood_query_queue_seconds_count{partition=\"catalog\",operation=\"set\"}";
    assert_eq!(http.metric(waited), 1.0);
}

/// Returns the samples of a text without their values, in order.
fn sample_names(text: &str) -> Vec<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').expect("a sample has a value").0).collect()
}

/// Returns the findings of Prometheus' own tool in a classic text; none if it has no objection.
fn promtool_findings(text: &str) -> String {
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts (Debian package prometheus)");
    // It reads everything before it writes.
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let findings = [output.stdout, output.stderr].concat();
    assert!(output.status.success() || !findings.is_empty(), "{}", output.status);
    String::from_utf8(findings).unwrap()
}

/// Checks the rules of OpenMetrics, and lists every family with its type, labels and help.
fn families(text: &str) -> String {
    let text = text.strip_suffix("# EOF\n").expect("the text says that it is whole");
    let mut families: Vec<(String, String, String)> = Vec::new();
    let mut listed = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(families.iter().all(|(other, ..)| other != name), "{name} is there once");
            families.push((name.to_owned(), String::new(), help.to_owned()));
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            let family = families.last_mut().expect("help comes first");
            assert_eq!(family.0, name);
            family.1 = kind.to_owned();
        } else {
            let (name, kind, help) = families.last().unwrap();
            let labels = sample_labels(line, name, kind);
            let entry = format!("{name} {kind} {{{labels}}} {help}");
            if listed.last() != Some(&entry) {
                listed.push(entry);
            }
        }
    }
    listed.sort();
    listed.dedup();
    listed.join("\n")
}

/// Returns the names of a sample's labels, after checking the rest of the sample.
fn sample_labels(line: &str, family: &str, kind: &str) -> String {
    let (sample, value) = line.rsplit_once(' ').unwrap();
    assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
    let suffixes = match kind {
        "counter" => &["_total"][..],
        "histogram" => &["_sum", "_count", "_bucket"],
        _ => &[""],
    };
    let name = |suffix: &&str| sample.strip_prefix(&format!("{family}{suffix}"));
    let rest = suffixes.iter().find_map(name).unwrap_or_else(|| panic!("{line}"));
    let Some(labels) = rest.strip_prefix('{') else {
        assert_eq!(rest, "", "{line}");
        return String::new();
    };
    let mut labels = labels.strip_suffix('}').unwrap();
    let mut names = Vec::new();
    while let Some((name, value)) = labels.split_once("=\"") {
        names.push(name.trim_start_matches(',').to_owned());
        let mut escaped = false;
        let end = value.find(|c| match c {
            _ if escaped => {
                escaped = false;
                false
            }
            '\\' => {
                escaped = true;
                false
            }
            c => c == '"',
        });
        labels = &value[end.expect("a label's value ends") + 1..];
    }
    // Buckets alone have a bound.
    names.retain(|name| name != "le");
    names.join(", ")
}

#[test]
fn miss_ratio_curve_is_shown_if_enabled() {
    let mut setup = setup(vec![("catalog", vec![Fake::new([("a/1", &b"1"[..])]) as Arc<dyn Store>])]);
    setup.cache.ghost_rate = 1.0;
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    for _ in 0..4 {
        http.key("catalog", "a/1");
    }
    let curve = http.get("/v1/mrc/catalog");
    assert_eq!(
        shape(&curve),
        "accesses: number, allocated_bytes: number, bytes: array, miss_ratio: array, partition: string, sample: number, \
         sampled_accesses: number, unique: number"
    );
    // One of four look-ups misses. The item is charged 44 bytes, which are a bucket of their own.
    let expected = json!({"partition": "catalog", "allocated_bytes": 32 << 20, "bytes": [0, 43, 44],
        "miss_ratio": [1.0, 1.0, 0.25], "accesses": 4, "sampled_accesses": 4, "sample": 1.0, "unique": 1});
    assert_eq!(curve, expected);
    let unknown = http.ask("GET", "/v1/mrc/nowhere", "");
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["error"], "no partition is called \"nowhere\"; there are: catalog");
}

#[test]
fn disabled_miss_ratio_curves_are_a_conflict_with_the_remedy() {
    let (node, _) = node();
    let answer = Http::of(&node).ask("GET", "/v1/mrc/catalog", "");
    assert_eq!(answer.status, 409);
    assert!(answer.json()["error"].as_str().unwrap().contains("mrc_sample"), "{:?}", answer.json());
}
