//! Requests made of OpenTelemetry traces.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde_json::{Value, json};
use sherwood_config::SpanRule;
use sherwood_node::Node;

use crate::programs::client_program_as;
use crate::support::{Fake, Http, setup};
use crate::wait::{TIMEOUT, eventually};

/// Number of requests of a test.
const REQUESTS: usize = 400;

/// A node with the backends `a` and `b`, whose client spans name them.
fn node() -> Node {
    let mut setup = setup(vec![("a", vec![Fake::new([])]), ("b", vec![Fake::new([])])]);
    setup.otlp = setup.admin;
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

/// The latency of a request in microseconds, and the backends it waits for, the blocking one last;
/// the same as in `otlp.py`.
fn known(number: usize) -> (u64, &'static str, &'static str) {
    let (first, last) = if number.is_multiple_of(3) { ("a", "b") } else { ("b", "a") };
    (10_000 + 50 * number as u64, first, last)
}

fn request(number: usize) -> Vec<Value> {
    let (latency, first, last) = known(number);
    spans(number, latency, &[(first, latency / 2, false), (last, latency - 5, false)])
}

fn report(number: usize) -> Value {
    let (latency, _, blocking) = known(number);
    json!({"latency_us": latency, "blocking": blocking})
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
    let all: Vec<_> = (0..REQUESTS).flat_map(request).collect();
    let exported =
        traced.send_with("POST", "/v1/traces", "content-type: application/json\r\n", &export(&all));
    assert_eq!(crate::support::answer(exported).status, 200);
    assert_counts_of_reports(traced, reported);
}

#[test]
fn spans_of_an_opentelemetry_sdk_give_the_blocking_counts_of_reports() {
    for protocol in ["http", "http-gzip", "grpc", "grpc-gzip"] {
        let (traced, reported) = (node(), node());
        let address = if protocol.starts_with("grpc") { traced.otlp() } else { traced.admin() };
        let port = address.expect("a port").port();
        if !client_program_as("opentelemetry.sdk", "otlp.py", port, &[protocol]) {
            return;
        }
        assert_counts_of_reports(Http::of(&traced), Http::of(&reported));
    }
}

/// Reports the requests to `reported` whose spans were sent to `traced`, and compares the counts.
#[track_caller]
fn assert_counts_of_reports(traced: Http, reported: Http) {
    let reports: Vec<_> = (0..REQUESTS).map(report).collect();
    assert_eq!(reported.ask("POST", "/v1/reports", &json!(reports).to_string()).status, 200);
    eventually("the end of all traces", || finished(traced) >= REQUESTS as f64);
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

#[test]
fn malformed_span_is_dropped_from_its_export_and_counted_in_the_response() {
    let node = node();
    let http = Http::of(&node);
    let mut bad = spans(1, 10, &[]);
    bad[0]["startTimeUnixNano"] = json!("yesterday");
    let mut zero = spans(2, 10, &[]);
    zero[0]["traceId"] = json!("0".repeat(32));
    let body = export(&[bad, zero, spans(3, 10, &[])].concat());
    let sent = http.send_with("POST", "/v1/traces", "content-type: Application/JSON\r\n", &body);
    let answer = crate::support::answer(sent);
    assert_eq!((answer.status, &answer.json()["partialSuccess"]["rejectedSpans"]), (200, &json!(2)));
    let reason = answer.json()["partialSuccess"]["errorMessage"].to_string();
    assert!(reason.contains("yesterday"), "{reason}");
    eventually("the good one counts", || finished(http) >= 1.0);
    let scope = ScopeSpans {
        spans: vec![Span { trace_id: vec![1; 16], ..Span::default() }],
        schema_url: "BAD!".to_owned(),
        ..ScopeSpans::default()
    };
    let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    let mut body = ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec();
    let at = body.windows(4).position(|part| part == b"BAD!").expect("it is there");
    body[at] = 0xff;
    let headers = "content-type: application/x-protobuf\r\n";
    let mut stream = http.begin_with("POST", "/v1/traces", headers, body.len());
    stream.write_all(&body).unwrap();
    assert_eq!(crate::support::answer(stream).status, 200, "a text that is not used may be no UTF-8");
}

#[test]
fn media_type_and_content_encoding_of_an_export_are_case_insensitive() {
    let node = node();
    let http = Http::of(&node);
    let mut empty = GzEncoder::new(Vec::new(), Compression::fast());
    empty.write_all(b"{}").unwrap();
    let empty = empty.finish().unwrap();
    for (headers, body) in [
        ("Content-Type: Application/JSON; charset=UTF-8\r\nContent-Encoding: Identity\r\n", &b"{}"[..]),
        ("content-type: APPLICATION/JSON\r\ncontent-encoding: GZip\r\n", &empty),
        ("content-type: application/X-Protobuf\r\n", b""),
    ] {
        let mut stream = http.begin_with("POST", "/v1/traces", headers, body.len());
        stream.write_all(body).unwrap();
        assert_eq!(crate::support::answer(stream).status, 200, "{headers}");
    }
}

#[test]
fn exports_of_64_mib_are_refused_compressed_or_not() {
    let node = node();
    let http = Http::of(&node);
    let begun = http.begin("POST", "/v1/traces", 64 << 20);
    assert_eq!(crate::support::answer(begun).status, 413, "by its announced length");
    let mut small = GzEncoder::new(Vec::new(), Compression::fast());
    small.write_all(&vec![0; 64 << 20]).unwrap();
    let headers = "content-type: application/x-protobuf\r\ncontent-encoding: gzip\r\n";
    let body = small.finish().unwrap();
    let mut stream = http.begin_with("POST", "/v1/traces", headers, body.len());
    stream.write_all(&body).unwrap();
    assert_eq!(crate::support::answer(stream).status, 413, "by its length without compression");
}

#[test]
fn spans_of_the_future_of_cycles_and_without_parents_are_counted() {
    let node = node();
    let http = Http::of(&node);
    let query = [("a", 5, false)];
    let mut future = spans(1, 10, &query);
    for span in &mut future {
        let ahead = (unix_us() + 3_600_000_000) * 1_000;
        span["endTimeUnixNano"] = json!(ahead.to_string());
    }
    // Each is the parent of the other, so that there is no root.
    let mut cycle = spans(2, 10, &[("a", 5, false), ("b", 6, false)]);
    cycle.pop();
    cycle[0]["parentSpanId"] = cycle[1]["spanId"].clone();
    cycle[1]["parentSpanId"] = cycle[0]["spanId"].clone();
    // The parent of the query never arrives; its root does.
    let mut orphan = spans(3, 10, &query);
    orphan[0]["parentSpanId"] = json!("00000000000000ff");
    let all = export(&[future, cycle, orphan].concat());
    let sent = http.send_with("POST", "/v1/traces", "content-type: application/json\r\n", &all);
    assert_eq!(crate::support::answer(sent).status, 200);
    assert_eq!(http.metric("sherwood_trace_spans_unused_total{result=\"misdated\"}"), 2.0);
    eventually("the end of the trace with a root", || finished(http) >= 1.0);
    eventually("the end of the trace without one", || http.metric("sherwood_traces_rootless_total") >= 1.0);
    assert_eq!((finished(http), http.metric("sherwood_traces_open")), (1.0, 0.0));
}

/// Client spans of as many traces as protobuf, without a root.
fn rootless(traces: Range<u64>) -> Vec<u8> {
    let value = AnyValue { value: Some(any_value::Value::StringValue("a".to_owned())) };
    let name = KeyValue { key: "peer.service".to_owned(), value: Some(value), ..KeyValue::default() };
    let span = |trace: u64| Span {
        trace_id: u128::from(trace + 1).to_be_bytes().to_vec(),
        span_id: vec![2; 8],
        parent_span_id: vec![1; 8],
        kind: SpanKind::Client as i32,
        attributes: vec![name.clone()],
        ..Span::default()
    };
    let scope = ScopeSpans { spans: traces.map(span).collect(), ..ScopeSpans::default() };
    let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec()
}

#[test]
fn traces_without_roots_are_bounded() {
    const EACH: u64 = 40_000;
    let node = node();
    let http = Http::of(&node);
    for batch in 0..4 {
        let body = rootless(batch * EACH..(batch + 1) * EACH);
        let headers = "content-type: application/x-protobuf\r\n";
        let mut stream = http.begin_with("POST", "/v1/traces", headers, body.len());
        stream.write_all(&body).unwrap();
        assert_eq!(crate::support::answer(stream).status, 200);
    }
    let (open, given_up) =
        (http.metric("sherwood_traces_open"), http.metric("sherwood_traces_rootless_total"));
    assert!(open <= 131_072.0 && given_up >= 4.0 * EACH as f64 - 131_072.0, "{open} {given_up}");
}

#[test]
fn grpc_refuses_what_is_malformed_or_too_large() {
    let node = node();
    let port = node.otlp().expect("a port").port();
    client_program_as("grpc", "otlp_refused.py", port, &[]);
    let one = by_http1(port);
    assert!(one.contains("/v1/traces of the admin port"), "{one}");
}

/// The answer to a request by HTTP/1.
fn by_http1(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
        .write_all(
            b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
