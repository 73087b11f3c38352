//! Tests of load over HTTP, with a minimal gateway.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use sherwood_workload::onerf::Model;

use super::*;
use crate::{Gaps, Pace};

/// Serves `answer` on a free loopback port until the returned runtime is dropped.
fn gateway<F>(answer: F) -> (tokio::runtime::Runtime, String)
where
    F: Fn(Value) -> (StatusCode, Json<Value>) + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let handler = move |Json(body): Json<Value>| {
            let answer = answer(body);
            async move { answer }
        };
        let service = axum::Router::new().route("/v1/requests", post(handler));
        axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), service).await.unwrap();
    });
    (runtime, address)
}

/// Returns an answer with `status` for each key of each query in `body`.
fn answer_all(body: &Value, status: impl Fn(&str) -> &'static str) -> Value {
    let mut results = Vec::new();
    for query in body["queries"].as_array().unwrap() {
        for key in query["keys"].as_array().unwrap() {
            let status = status(key.as_str().unwrap());
            results.push(
                json!({ "backend": query["backend"], "key": key, "status": status, "latency_ms": 0.1 }),
            );
        }
    }
    json!({ "latency_ms": 0.1, "blocking_backend": "b01", "results": results })
}

fn options(address: String) -> Options {
    let pace = Pace::Open { rate_per_s: 2_000.0, gaps: Gaps::Fixed };
    Options {
        address,
        pace,
        phases: vec![Duration::from_millis(20), Duration::from_millis(80)],
        ..Options::default()
    }
}

fn mix(seed: u64) -> Workload {
    Workload::Mix { model: Arc::new(Model::onerf()), profile: "demo".to_owned(), seed }
}

#[test]
fn request_counts_in_the_phase_of_its_intended_start_with_every_key() {
    let (_runtime, address) = gateway(|body| {
        assert_eq!(body["values"], json!(false));
        (StatusCode::OK, Json(answer_all(&body, |key| if key.len() % 2 == 0 { "hit" } else { "miss" })))
    });
    let mut seen = Vec::new();
    let outcome =
        run(&options(address), mix(5), &Control::default(), |finished| seen.push(*finished)).unwrap();
    // At fixed gaps of 0.5 ms: starts at 0.5, 1.0, ... 19.5 and 20.0 ... 99.5 ms.
    let counts: Vec<u64> = outcome.phases.iter().map(|phase| phase.requests).collect();
    assert_eq!((counts.as_slice(), outcome.first_error), ([39, 160].as_slice(), None));
    assert_eq!(seen.len(), 199);
    let asked: usize = {
        let (model, mut rng) = (Model::onerf(), sherwood_workload::rng_from_seed(5));
        let mut mix = model.mix("demo").unwrap();
        (0..199).flat_map(|_| mix.next_request(&mut rng)).map(|batch| batch.objects.len()).sum()
    };
    let answered: u64 = outcome.phases.iter().map(|phase| phase.queries).sum();
    assert_eq!(answered, asked as u64);
    let all = HitsMisses {
        hits: seen.iter().map(|finished| u64::from(finished.hits)).sum(),
        misses: seen.iter().map(|finished| u64::from(finished.misses)).sum(),
    };
    let report = RunOutcome { first_error: None, ..outcome }.report(true);
    assert_eq!((report.hits, report.misses, report.ops, report.errors), (all.hits, all.misses, 199, 0));
    assert!(report.complete);
}

#[test]
fn hit_latency_is_the_one_that_the_gateway_measured() {
    let (_runtime, address) = gateway(|body| {
        let mut answer = answer_all(&body, |key| if key.len() % 2 == 0 { "hit" } else { "miss" });
        for result in answer["results"].as_array_mut().unwrap() {
            let hit = result["status"] == "hit";
            result["latency_ms"] = json!(if hit { 0.25 } else { 40.0 });
        }
        (StatusCode::OK, Json(answer))
    });
    let outcome = run(&options(address), mix(5), &Control::default(), |_| {}).unwrap();
    for phase in &outcome.phases {
        let hits = phase.by_backend.iter().filter(|(_, counts)| counts.hits > 0);
        let counted: Vec<_> = hits.map(|(name, counts)| (name.clone(), counts.hits)).collect();
        let timed = phase.hit_latency.iter().map(|(name, latencies)| (name.clone(), latencies.count()));
        assert_eq!(timed.collect::<Vec<_>>(), counted);
        assert!(phase.hit_latency.values().all(|hits| hits.max() == Duration::from_micros(250)));
    }
}

#[test]
fn request_with_a_failed_query_counts_as_slow_and_a_refused_one_as_an_error() {
    let (_runtime, address) = gateway(|body| match body["queries"].as_array().unwrap().len() {
        1 => (StatusCode::OK, Json(answer_all(&body, |_| "timeout"))),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": "no such backend" }))),
    });
    let mut seen = Vec::new();
    let outcome =
        run(&options(address), mix(5), &Control::default(), |finished| seen.push(*finished)).unwrap();
    assert!(seen.iter().all(|finished| finished.latency >= Duration::from_secs(10)));
    assert!(seen.iter().all(|finished| finished.failed != (finished.failed_keys > 0)));
    assert!(seen.iter().any(|finished| finished.failed) && seen.iter().any(|finished| !finished.failed));
    let errors: u64 = outcome.phases.iter().map(|phase| phase.errors).sum();
    assert_eq!(errors, seen.iter().filter(|finished| finished.failed).count() as u64);
}

#[test]
fn requests_to_a_silent_gateway_are_errors_and_do_not_delay_the_schedule() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options {
        outstanding_max: 3,
        timeout: Duration::from_millis(300),
        ..options(silent.local_addr().unwrap().to_string())
    };
    let outcome = run(&options, mix(5), &Control::default(), |_| {}).unwrap();
    let (requests, errors, overflow) =
        outcome.phases.iter().fold((0, 0, 0), |(requests, errors, overflow), phase| {
            (requests + phase.requests, errors + phase.errors, overflow + phase.overflow)
        });
    assert_eq!((requests, errors), (199, 199));
    assert!(overflow >= 3, "permits are released by timeouts only: {overflow}");
    let report = outcome.report(true);
    assert_eq!((report.ops, report.errors, report.unsent), (199, 199, overflow));
    assert!(report.ops_per_s * report.duration_s < 199.0, "unsent requests do not count as throughput");
}

#[test]
fn trace_of_requests_is_sent_to_the_gateway_once_and_ends_a_closed_loop() {
    let (_runtime, address) = gateway(|body| (StatusCode::OK, Json(answer_all(&body, |_| "hit"))));
    let line = r#"{"t":0,"d":[{"b1":{"S":[1,2],"U":["x","y"],"C":[1,1]}}]}"#;
    let input = Box::new(std::io::Cursor::new(format!("{line}\n").repeat(50)));
    let options = Options { pace: Pace::Closed, outstanding_max: 2, phases: Vec::new(), ..options(address) };
    let outcome = run(&options, Workload::RobinHood { input }, &Control::default(), |_| {}).unwrap();
    let report = outcome.report(false);
    assert_eq!((report.ops, report.hits, report.errors, report.late_p99_us), (50, 100, 0, 0.0));
    assert_eq!(report.by_partition["b1"], HitsMisses { hits: 100, misses: 0 });
}

#[test]
fn key_space_workload_sends_distinct_keys_of_one_backend() {
    let (_runtime, address) = gateway(|body| {
        let keys: std::collections::BTreeSet<_> =
            body["queries"][0]["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
        assert!(keys.len() == 50 && keys.iter().all(|key| key.len() == 20 && key.starts_with('k')));
        (StatusCode::OK, Json(answer_all(&body, |_| "hit")))
    });
    let key_space = KeyValueOptions::default();
    let workload = Workload::KeySpace { backend: "kv".to_owned(), options: key_space, batch: 50, seed: 1 };
    let report = run(&options(address), workload, &Control::default(), |_| {}).unwrap().report(true);
    assert_eq!((report.ops, report.hits, report.errors), (199, 199 * 50, 0));
    assert_eq!(report.by_partition["kv"].hits, 199 * 50);
}

#[test]
fn keys_that_a_backend_has_are_found_before_a_run() {
    let (_runtime, address) = gateway(|body| {
        let answer = answer_all(&body, |key| match key {
            "1" => "miss",
            "2" => "hit",
            _ => "not_found",
        });
        (StatusCode::OK, Json(answer))
    });
    let keys = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
    assert_eq!(found(&options(address.clone()), "kv", keys(&["1", "2", "3"])).unwrap(), 2);
    assert_eq!(found(&options(address), "kv", keys(&["a"])).unwrap(), 0);
}

#[test]
fn keys_that_a_backend_does_not_have_are_counted() {
    let (_runtime, address) = gateway(|body| (StatusCode::OK, Json(answer_all(&body, |_| "not_found"))));
    let options_of = KeyValueOptions::default();
    let workload = Workload::KeySpace { backend: "kv".to_owned(), options: options_of, batch: 2, seed: 1 };
    let report = run(&options(address), workload, &Control::default(), |_| {}).unwrap().report(true);
    assert_eq!((report.not_found, report.misses, report.hits), (199 * 2, 199 * 2, 0));
}

#[test]
fn stopped_run_reports_that_it_was_stopped() {
    let (_runtime, address) = gateway(|body| (StatusCode::OK, Json(answer_all(&body, |_| "hit"))));
    let control = Control::default();
    let options = Options { phases: vec![Duration::from_secs(600)], ..options(address) };
    let outcome = run(&options, mix(5), &control, |_| control.stop()).unwrap();
    assert_eq!(outcome.incomplete_because.as_deref(), Some("stopped before its end"));
    assert!(!outcome.report(true).complete);
}

#[test]
fn abandoned_run_does_not_wait_for_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options {
        phases: vec![Duration::from_secs(600)],
        timeout: Duration::from_secs(3_600),
        ..options(silent.local_addr().unwrap().to_string())
    };
    let control = Control::default();
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(&options, mix(5), &control, |_| {}));
        // A request is in flight once its connection is accepted.
        let _connections = [silent.accept().unwrap(), silent.accept().unwrap()];
        control.abandon();
        run.join().unwrap().unwrap()
    });
    assert_eq!(outcome.incomplete_because.as_deref(), Some("stopped before its end"));
    assert_eq!(outcome.phases[0].requests, 0);
}

#[test]
fn error_names_an_unreachable_gateway() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = run(&options(gone.clone()), mix(5), &Control::default(), |_| {}).unwrap_err().to_string();
    assert!(error.contains(&gone), "{error}");
}

#[test]
fn requests_with_a_deadline_count_as_missed_or_rejected() {
    let (_runtime, address) = gateway(|body| {
        assert_eq!(body["deadline_ms"], json!(9_999.5));
        let key = body["queries"][0]["keys"][0].as_str().unwrap();
        let mut answer = answer_all(&body, |_| "hit");
        let result = &mut answer["results"][0];
        match key.as_bytes()[key.len() - 1] % 4 {
            0 => result["late"] = json!(true),
            1 => result["status"] = json!("rejected"),
            2 => result["status"] = json!("timeout"),
            _ => {}
        }
        (StatusCode::OK, Json(answer))
    });
    let key_space = KeyValueOptions::default();
    let workload = Workload::KeySpace { backend: "kv".to_owned(), options: key_space, batch: 2, seed: 1 };
    let options = Options { deadline: Some(Duration::from_micros(9_999_500)), ..options(address) };
    let mut seen = Vec::new();
    let report = run(&options, workload, &Control::default(), |end| seen.push(*end)).unwrap().report(true);
    let deadlines = report.deadlines.expect("there is a deadline");
    let count = |of: fn(&Finished) -> bool| seen.iter().filter(|end| of(end)).count() as u64;
    let rejected = count(|end| end.rejected);
    assert_eq!((deadlines.rejected, deadlines.late), (rejected, count(|end| end.marked_late)));
    assert_eq!(deadlines.missed, count(|end| end.failed_keys > 0) - rejected);
    assert!(rejected > 0 && deadlines.late > 0 && deadlines.missed > 0, "{deadlines:?}");
}

#[test]
fn deadline_out_of_range_is_refused() {
    for deadline in [Duration::ZERO, Duration::from_secs(24 * 3600 + 1)] {
        let options = Options { deadline: Some(deadline), ..options("127.0.0.1:1".to_owned()) };
        let error = run(&options, mix(5), &Control::default(), |_| {}).unwrap_err().to_string();
        assert!(error.contains("above 0 ms and up to 24 h"), "{error}");
    }
}
