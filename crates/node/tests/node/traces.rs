//! Requests made of OpenTelemetry traces.

use serde_json::{Value, json};
use sherwood_node::{Node, SpanRule};

use crate::support::{Fake, Http, setup};
use crate::wait::eventually;

/// A node with the backends `a` and `b`, whose client spans name them.
fn node() -> Node {
    let mut setup = setup(vec![("a", vec![Fake::new([])]), ("b", vec![Fake::new([])])]);
    for backend in &mut setup.backends {
        let name = ("peer.service".to_owned(), backend.name.clone());
        backend.spans = SpanRule::of([name].into());
    }
    Node::start(setup).expect("starts")
}

/// A query of a request: its backend, its end after the request's start in microseconds, and
/// whether it failed.
type Query = (&'static str, u64, bool);

fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 500000")
}

/// The spans of a request that ended now, as OTLP's JSON has them.
fn spans(number: usize, latency_us: u64, queries: &[Query]) -> Vec<Value> {
    let start = unix_us() - latency_us;
    let span = |id: usize, parent: &str, kind: u64, end_us: u64, attributes: Value, status: Value| {
        json!({
            "traceId": format!("{:032x}", number + 1), "spanId": format!("{id:016x}"), "parentSpanId": parent,
            "name": "span", "kind": kind, "attributes": attributes, "status": status,
            "startTimeUnixNano": (start * 1_000).to_string(),
            "endTimeUnixNano": ((start + end_us) * 1_000).to_string(),
        })
    };
    let root_id = format!("{:016x}", 1);
    let query = |(id, (backend, end_us, fails)): (usize, &Query)| {
        let attributes = json!([{"key": "peer.service", "value": {"stringValue": backend}}]);
        let status = if *fails { json!({"code": 2}) } else { json!({}) };
        span(id + 2, &root_id, 3, *end_us, attributes, status)
    };
    let mut all: Vec<_> = queries.iter().enumerate().map(query).collect();
    all.push(span(1, "", 2, latency_us, json!([]), json!({})));
    all
}

fn export(spans: &[Value]) -> String {
    json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string()
}

fn finished(http: Http) -> f64 {
    http.metric("sherwood_requests_total")
}

#[test]
fn traces_give_the_blocking_counts_of_reports_of_the_same_requests() {
    let (traced, reported) = (node(), node());
    let (traced, reported) = (Http::of(&traced), Http::of(&reported));
    let mut reports = Vec::new();
    let mut all = Vec::new();
    for number in 0..400_usize {
        let latency = 10_000 + 50 * number as u64;
        let (first, last) = if number % 3 == 0 { ("a", "b") } else { ("b", "a") };
        all.extend(spans(number, latency, &[(first, latency / 2, false), (last, latency - 5, false)]));
        reports.push(json!({"latency_us": latency, "blocking": last}));
    }
    let exported =
        traced.send_with("POST", "/v1/traces", "content-type: application/json\r\n", &export(&all));
    assert_eq!(crate::support::answer(exported).status, 200);
    assert_eq!(reported.ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
    eventually("the end of all traces", || finished(traced) >= 400.0);
    assert_eq!(traced.get("/v1/rbc")["counts"], reported.get("/v1/rbc")["counts"]);
}

#[test]
fn unreadable_exports_are_refused() {
    let node = node();
    let http = Http::of(&node);
    let status = |headers: &str, body: &str| {
        crate::support::answer(http.send_with("POST", "/v1/traces", headers, body)).status
    };
    assert_eq!(status("content-type: application/json\r\n", "{\"resourceSpans\": 7}"), 400);
    assert_eq!(status("content-type: application/x-protobuf\r\n", "\u{1}\u{1}\u{1}"), 400);
    assert_eq!(status("content-type: text/html\r\n", ""), 415);
    let json = "content-type: application/json\r\n";
    assert_eq!(status(&format!("{json}content-encoding: gzip\r\n"), "not compressed"), 400);
    assert_eq!(status(&format!("{json}content-encoding: zstd\r\n"), "{}"), 415);
    assert_eq!(status("content-type: application/x-protobuf\r\n", ""), 200, "an export without spans");
}
