//! The dashboard's files and the history.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use sherwood_config::AccessSetup;
use sherwood_model::TenantId;
use sherwood_node::{Node, Setup};
use sherwood_store::Store;

use crate::support::{Answer, Fake, Http, answer, partition, setup};
use crate::wait::eventually;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn node(access: AccessSetup) -> Node {
    let fake = Fake::new([("a/1", &b"1"[..])]) as Arc<dyn Store>;
    Node::start(Setup { access, ..setup(vec![("catalog", vec![fake])]) }).unwrap()
}

fn ask(http: Http, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    answer(http.send_with(method, path, headers, body))
}

#[test]
fn page_and_its_files_come_with_a_strict_policy_and_are_kept_by_the_browser() {
    let node = node(AccessSetup::default());
    let http = Http::of(&node);
    let page = http.ask("GET", "/", "");
    assert!(page.body.starts_with("<!doctype html>"), "{page:?}");
    let names = page.body.split("=\"/dashboard/").skip(1).map(|rest| rest.split('"').next().unwrap());
    let paths: Vec<String> = names.map(|name| format!("/dashboard/{name}")).collect();
    assert!(paths.len() > 10, "{paths:?}");
    for path in std::iter::once("/").chain(paths.iter().map(String::as_str)) {
        let file = http.ask("GET", path, "");
        assert_eq!(file.status, 200, "{path}");
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n",
            "x-content-type-options: nosniff\r\n",
            "cache-control: no-cache\r\n",
        ] {
            assert!(file.head.contains(header), "{path}: {}", file.head);
        }
        let tag = file.head.split_once("etag: ").unwrap().1.split_once("\r\n").unwrap().0;
        let again = ask(http, "GET", path, &format!("if-none-match: {tag}\r\n"), "");
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
    }
    let script = http.ask("GET", "/dashboard/app.js", "");
    assert!(script.head.contains("content-type: text/javascript; charset=utf-8"), "{}", script.head);
    for unknown in ["/dashboard/app.php", "/dashboard/..%2fapp.js", "/dashboard/"] {
        http.ask("GET", unknown, "").refusal(404);
    }
    assert_eq!(http.ask("POST", "/", "").status, 405);
}

#[test]
fn files_need_no_token_and_every_figure_does() {
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("tokens");
    fs::write(&token_file, TOKEN).unwrap();
    fs::set_permissions(&token_file, Permissions::from_mode(0o600)).unwrap();
    let node = node(AccessSetup { token_file: Some(token_file), ..AccessSetup::default() });
    let http = Http::of(&node);
    for path in ["/", "/dashboard/app.js", "/dashboard/uPlot.esm.js"] {
        assert_eq!(http.ask("GET", path, "").status, 200, "{path}");
        http.ask("PUT", path, "").refusal(401);
    }
    for path in ["/v1/history", "/v1/backends", "/v1/control", "/v1/partitions", "/status", "/dashboard/x"] {
        http.ask("GET", path, "").refusal(401);
    }
    let with_token = |more: &str| format!("authorization: Bearer {TOKEN}\r\n{more}");
    let switch = |more: &str| {
        let body = json!({"policy": "static"}).to_string();
        let more = with_token(&format!("content-type: application/json\r\n{more}"));
        ask(http, "PUT", "/v1/control", &more, &body)
    };
    for own in ["", "sec-fetch-site: same-origin\r\n", "origin: http://localhost\r\n"] {
        assert_eq!(switch(own).status, 200, "{own:?}");
    }
    for other in [
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
    ] {
        assert!(switch(other).refusal(403).contains("another site"), "{other:?}");
    }
    let reads = ask(http, "GET", "/v1/history", &with_token("sec-fetch-site: cross-site\r\n"), "");
    assert_eq!(reads.status, 200, "a read with the token is no change");
}

#[test]
fn history_has_a_column_for_everything_with_a_value_for_each_second() {
    let fake = |name: &'static str| vec![Fake::new([(name, &b"1"[..])]) as Arc<dyn Store>];
    let mut setup = setup(vec![("catalog", fake("c")), ("prices", fake("p"))]);
    setup.tenants.push("gold".to_owned());
    setup.partitions.push(partition(TenantId(1).index(), 0));
    let node = Node::start(setup).unwrap();
    let http = Http::of(&node);
    let has_requests = |history: &Value| {
        let per_s = history["requests"]["per_s"].as_array().unwrap();
        per_s.iter().any(|rate| rate.as_f64().unwrap() > 0.0)
    };
    let mut history = Value::Null;
    eventually("a point with requests", || {
        http.key("catalog", "c");
        history = http.get("/v1/history?step_s=1");
        has_requests(&history)
    });
    let points = history["at_ms"].as_array().unwrap().len();
    assert!(points >= 1);
    for column in [
        &history["decisions"],
        &history["requests"]["p50_ms"],
        &history["requests"]["p99_ms"],
        &history["slos"][0]["current_ms"],
        &history["slos"][0]["violations"],
        &history["backends"][1]["blocking"],
        &history["backends"][0]["hit_ratio"],
        &history["backends"][0]["query_p99_ms"],
        &history["partitions"][2]["bytes"],
        &history["deadlines"][0]["missed"],
    ] {
        assert_eq!(column.as_array().unwrap().len(), points, "{history}");
    }
    let last = |column: &Value| column.as_array().unwrap().last().cloned().unwrap();
    assert!(last(&history["requests"]["p99_ms"]).as_f64().unwrap() > 0.0, "{history}");
    assert!(last(&history["backends"][0]["hit_ratio"]).as_f64().unwrap() > 0.0, "{history}");
    let names = |list: &str| -> Vec<&str> {
        history[list].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
    };
    assert_eq!(names("backends"), ["catalog", "prices"]);
    assert_eq!(names("partitions"), ["catalog", "prices", "gold:catalog"]);
    let slo = &history["slos"][0];
    assert_eq!(
        (&slo["scope"], &slo["percentile"], &slo["bound_ms"]),
        (&json!("all"), &json!(99.0), &json!(150.0))
    );
    assert_eq!((&history["step_s"], &history["points_max"]), (&json!(1), &json!(300)));
    assert!(history.get("other_backends").is_none() && history.get("other_partitions").is_none());
}

#[test]
fn history_after_a_time_has_only_what_is_newer() {
    let node = node(AccessSetup::default());
    let http = Http::of(&node);
    let times = |history: &Value| -> Vec<u64> {
        history["at_ms"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect()
    };
    let times_of = |path: &str| {
        let mut seen = Vec::new();
        eventually("a point", || {
            seen = times(&http.get(path));
            !seen.is_empty()
        });
        seen
    };
    let last = *times_of("/v1/history?step_s=1").last().unwrap();
    let newer = times_of(&format!("/v1/history?step_s=1&after_ms={last}"));
    assert!(newer.iter().all(|&at| at > last), "{newer:?} after {last}");
    assert_eq!(times(&http.get("/v1/history?step_s=1&after_ms=18446744073709551615")), [0; 0]);
    let coarse = http.get("/v1/history");
    assert_eq!((&coarse["step_s"], &coarse["points_max"]), (&json!(5), &json!(720)));
    http.ask("PUT", "/v1/control", &json!({"dry_run": true}).to_string()).json();
    let events = http.get(&format!("/v1/history?after_ms={last}"))["events"].clone();
    let said = |event: &Value| event["message"].as_str().unwrap().contains("dry run");
    assert!(events.as_array().unwrap().iter().any(said), "{events}");
}

#[test]
fn unknown_steps_and_parameters_of_the_history_are_refused() {
    let node = node(AccessSetup::default());
    let http = Http::of(&node);
    for wrong in ["step_s=2", "step_s=0", "step_s=x", "step_s=-1", "after_ms=-1", "since=3"] {
        http.ask("GET", &format!("/v1/history?{wrong}"), "").refusal(400);
    }
}

#[test]
fn backends_are_listed_with_their_limits() {
    let node = node(AccessSetup::default());
    let http = Http::of(&node);
    let unlimited = json!({"slots": null, "ops_per_s": null, "cpu_ratio": null});
    let keys = json!({"asked": 0, "failed": 0, "timed_out": 0, "rejected": 0, "stale": 0});
    let states = json!([{"up": true, "in_flight": 0, "waiting": 0}]);
    let listed = json!([{"name": "catalog", "kind": "kv", "replicas": 1, "limits": unlimited,
        "keys": keys, "replica_states": states}]);
    assert_eq!(http.get("/v1/backends"), listed);
    let limit = http.ask("PUT", "/v1/backends/catalog/limit", &json!({"cpu_ratio": 0.25}).to_string());
    assert_eq!(limit.status, 200, "{limit:?}");
    assert_eq!(http.get("/v1/backends")[0]["limits"]["cpu_ratio"], json!(0.25));
}
