//! Spans of the node's own requests, as collectors receive them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Attribute};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::{Value, json};
use sherwood_config::{ExportProtocol, Flags, SpanExport, parse};
use sherwood_model::Band;
use sherwood_node::{Node, Setup};
use sherwood_store::{Store, TlsOptions};

use crate::access::{Files, TOKEN};
use crate::support::{Answer, Fake, Http, Mood, answer, setup};
use crate::wait::eventually;

/// A caller's trace and span, which `-01` or `-00` follows.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

/// A collector of OTLP over HTTP that keeps what it receives.
#[derive(Clone)]
struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    heads: Vec<String>,
    exports: Vec<ExportTraceServiceRequest>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self { address, received: Arc::default() };
        let serving = collector.clone();
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(&stream.unwrap()));
            }
        });
        collector
    }

    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    return;
                }
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.expect("a length").parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            let mut received = self.received.lock().unwrap();
            received.heads.push(head);
            received.exports.push(ExportTraceServiceRequest::decode(&body[..]).unwrap());
            drop(received);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let resources = received.exports.iter().flat_map(|export| &export.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    fn export(&self) -> SpanExport {
        export(&format!("http://{}", self.address), ExportProtocol::HttpProtobuf)
    }
}

fn export(endpoint: &str, protocol: ExportProtocol) -> SpanExport {
    SpanExport {
        endpoint: endpoint.parse().unwrap(),
        protocol,
        sample_ratio: 1.0,
        timeout: Duration::from_secs(60),
        headers_file: None,
        tls: TlsOptions::default(),
    }
}

/// Setup of a node with the backends `a`, `b` and `c`, of which `c` fails.
fn three_backends() -> Setup {
    let failing = Fake::new([]);
    failing.be(Mood::Fail);
    let full: Vec<_> = (0..50).map(|number| (format!("k{number}"), vec![1])).collect();
    let stored = || Fake::new(full.iter().map(|(key, value)| (key.as_str(), &value[..])));
    let backends: Vec<(&str, Vec<Arc<dyn Store>>)> =
        vec![("a", vec![stored()]), ("b", vec![stored()]), ("c", vec![failing])];
    let mut setup = setup(backends);
    setup.control.band = Band { low: 0.0, high: 100.0 };
    setup
}

fn start(export: SpanExport) -> Node {
    Node::start(Setup { spans: Some(export), ..three_backends() }).expect("starts")
}

/// A query for one key, which several requests share.
fn query(backend: &str, number: usize) -> Value {
    json!({"backend": backend, "keys": [format!("k{number}")]})
}

fn send(http: Http, headers: &str, body: &Value) -> Answer {
    answer(http.send_with("POST", "/v1/requests", headers, &body.to_string()))
}

fn attribute<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?.value.as_ref()
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    match attribute(attributes, name)? {
        Attribute::StringValue(text) => Some(text),
        _ => None,
    }
}

fn dropped(http: Http, reason: &str) -> f64 {
    http.metric(&format!("sherwood_spans_dropped_total{{reason=\"{reason}\"}}"))
}

#[test]
fn texts_of_a_caller_do_not_grow_its_spans() {
    let collector = Collector::start();
    let node = start(SpanExport { sample_ratio: 0.0, ..collector.export() });
    let state = vec!["a=b"; 200].join(",");
    let headers = format!("traceparent: {PARENT}-01\r\ntracestate: {state}\r\n");
    let body = json!({"tenant": "t".repeat(10_000), "queries": [query("a", 1)]});
    assert_eq!(send(Http::of(&node), &headers, &body).status, 422);
    node.stop();
    let [span] = &collector.spans()[..] else { panic!("one span") };
    assert_eq!((span.trace_state.as_str(), text(&span.attributes, "sherwood.tenant")), ("", None));
    assert_eq!(attribute(&span.attributes, "http.response.status_code"), Some(&Attribute::IntValue(422)));
}

#[test]
fn sampled_request_has_a_span_below_the_callers_and_one_for_each_query() {
    let collector = Collector::start();
    let node = start(SpanExport { sample_ratio: 0.0, ..collector.export() });
    let http = Http::of(&node);
    let body = json!({
        "class": "page", "stages": [[query("a", 1), query("c", 1)], [query("a", 1)]],
    });
    assert_eq!(send(http, "", &body).status, 200, "not sampled");
    assert_eq!(send(http, &format!("traceparent: {PARENT}-00\r\n"), &body).status, 200, "not sampled");
    let headers = format!("traceparent: {PARENT}-01\r\ntracestate: vendor=x\r\n");
    assert_eq!(send(http, &headers, &body).status, 200);
    node.stop();

    let all = collector.spans();
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for span in &all {
        assert_eq!(hex(&span.trace_id), PARENT[3..35]);
        assert_eq!(span.trace_state, "vendor=x");
    }
    let request = all.iter().find(|span| span.kind == SpanKind::Server as i32).expect("the request's");
    assert_eq!(
        (hex(&request.parent_span_id).as_str(), request.name.as_str()),
        (&PARENT[36..], "POST /v1/requests")
    );
    assert_eq!(text(&request.attributes, "http.request.method"), Some("POST"));
    assert_eq!(attribute(&request.attributes, "http.response.status_code"), Some(&Attribute::IntValue(200)));
    assert_eq!(text(&request.attributes, "sherwood.class"), Some("page"));
    assert_eq!(text(&request.attributes, "sherwood.blocking_backend"), Some("c"));
    let queries: Vec<_> = all.iter().filter(|span| span.parent_span_id == request.span_id).collect();
    let shown: Vec<_> = queries
        .iter()
        .map(|span| {
            assert!(request.start_time_unix_nano <= span.start_time_unix_nano);
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            assert!(span.end_time_unix_nano <= request.end_time_unix_nano);
            let text = |name| text(&span.attributes, name);
            let blocking = attribute(&span.attributes, "sherwood.blocking").is_some();
            let code = span.status.as_ref().map_or(0, |status| status.code);
            (
                span.name.as_str(),
                text("sherwood.partition"),
                text("sherwood.outcome"),
                text("error.type"),
                code,
                blocking,
            )
        })
        .collect();
    // The earlier requests have filled the cache.
    let hit = ("get a", Some("a"), Some("hit"), None, 0, false);
    assert_eq!(shown, [hit, ("get c", Some("c"), Some("error"), Some("error"), 2, true), hit]);
    let parents = [&queries[0].parent_span_id, &queries[1].span_id];
    assert!(
        all.iter().all(|span| span.span_id == request.span_id || parents.contains(&&span.parent_span_id))
    );
}

/// Spans of attempts, with the query above each.
fn attempts(collector: &Collector) -> Vec<(Span, Span)> {
    let all = collector.spans();
    let is_attempt = |span: &&Span| attribute(&span.attributes, "sherwood.attempt").is_some();
    let above = |span: &Span| all.iter().find(|other| other.span_id == span.parent_span_id).cloned();
    all.iter().filter(is_attempt).map(|span| (span.clone(), above(span).expect("its query"))).collect()
}

#[test]
fn attempts_have_spans_below_the_query_that_caused_them() {
    let collector = Collector::start();
    let node = start(collector.export());
    let http = Http::of(&node);
    let body = json!({"queries": [query("a", 1), query("c", 1), query("b", 60)]});
    assert_eq!(send(http, "", &body).status, 200);
    assert_eq!(send(http, "", &json!({"queries": [query("a", 1)]})).status, 200, "a hit");
    node.stop();
    let mut shown: Vec<_> = attempts(&collector)
        .iter()
        .map(|(span, query)| {
            assert_eq!(query.name, span.name);
            assert!(query.start_time_unix_nano <= span.start_time_unix_nano);
            assert!(matches!(attribute(&span.attributes, "sherwood.queue_ms"), Some(Attribute::DoubleValue(ms)) if *ms >= 0.0));
            let text = |name| text(&span.attributes, name).map(str::to_owned);
            let number = attribute(&span.attributes, "sherwood.attempt").cloned();
            let Some(Attribute::IntValue(number)) = number else { panic!("a number") };
            (text("sherwood.backend").unwrap(), number, text("sherwood.outcome").unwrap(), text("error.type"))
        })
        .collect();
    shown.sort();
    let answered = |backend: &str| (backend.to_owned(), 1, "answered".to_owned(), None);
    let failed = ("c".to_owned(), 1, "failed".to_owned(), Some("engine".to_owned()));
    assert_eq!(shown, [answered("a"), answered("b"), failed]);
}

#[test]
fn attempt_that_times_out_ends_with_the_timeout() {
    let collector = Collector::start();
    let hanging = Fake::new([]);
    hanging.be(Mood::Hang);
    let mut setup = setup(vec![("a", vec![hanging.clone() as Arc<dyn Store>])]);
    setup.backends[0].dispatch.timeout = Duration::from_millis(20);
    let node = Node::start(Setup { spans: Some(collector.export()), ..setup }).expect("starts");
    assert_eq!(send(Http::of(&node), "", &json!({"queries": [query("a", 1)]})).status, 200);
    node.stop();
    let all = attempts(&collector);
    let outcome = |span: &Span| text(&span.attributes, "sherwood.outcome").map(str::to_owned);
    let outcomes: Vec<_> = all.iter().map(|(span, query)| (outcome(span), outcome(query))).collect();
    let timeout = Some("timeout".to_owned());
    assert_eq!(outcomes, [(timeout.clone(), timeout)]);
    hanging.be(Mood::Answer);
}

#[test]
fn retry_has_a_span_that_refers_to_the_queries_which_joined_meanwhile() {
    let collector = Collector::start();
    let replicas = [Fake::new([]), Fake::new([])];
    replicas.iter().for_each(|replica| replica.be(Mood::Hang));
    let stores = replicas.iter().map(|replica| replica.clone() as Arc<dyn Store>).collect();
    let setup = Setup { spans: Some(collector.export()), ..setup(vec![("a", stores)]) };
    let node = Node::start(setup).expect("starts");
    let http = Http::of(&node);
    let body = json!({"queries": [query("a", 1)]}).to_string();
    let first = http.send("POST", "/v1/requests", &body);
    eventually("the call", || replicas.iter().any(|replica| replica.calls() > 0));
    let second = http.send("POST", "/v1/requests", &body);
    eventually("it joins", || http.metric("sherwood_backend_joined_keys_total{backend=\"a\"}") >= 1.0);
    replicas.iter().for_each(|replica| replica.be(Mood::Fail));
    assert_eq!((answer(first).status, answer(second).status), (200, 200));
    node.stop();
    let all = attempts(&collector);
    let number = |span: &Span| match attribute(&span.attributes, "sherwood.attempt") {
        Some(Attribute::IntValue(number)) => *number,
        other => panic!("{other:?}"),
    };
    let queries: Vec<_> =
        collector.spans().into_iter().filter(|span| span.kind == SpanKind::Client as i32).collect();
    let parent = |span: &Span| queries.iter().position(|query| query.span_id == span.parent_span_id);
    let mut shown: Vec<_> = all
        .iter()
        .map(|(span, _)| {
            let links =
                span.links.iter().map(|link| queries.iter().position(|query| query.span_id == link.span_id));
            let replica = attribute(&span.attributes, "sherwood.replica").cloned();
            (number(span), parent(span), links.collect::<Vec<_>>(), replica)
        })
        .collect();
    shown.sort_by_key(|(number, ..)| *number);
    let [(1, Some(first), none, one), (2, parent, links, other)] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((none.len(), *parent), (0, Some(*first)));
    assert_eq!(links, &[Some(1 - *first)]);
    assert_ne!(one, other, "another replica");
}

/// An HTTP service that answers every request with `1`, and the heads of its requests.
fn service() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heads);
    // Ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, kept) = (stream.unwrap(), Arc::clone(&kept));
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    kept.lock().unwrap().push(head);
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1").unwrap();
                }
            });
        }
    });
    (address, heads)
}

#[test]
fn http_backend_receives_the_attempt_as_its_parent() {
    let (collector, (address, heads)) = (Collector::start(), service());
    let config = format!(
        "[admin]\nbind = \"127.0.0.1:0\"\n[otlp.export]\nendpoint = \"http://{}\"\nprotocol = \"http/protobuf\"\n\
         sample_ratio = 0.0\n[[backend]]\nname = \"prices\"\nstore = {{ kind = \"http\", url = \"http://{address}/{{key}}\" }}",
        collector.address
    );
    let config =
        parse("a.toml", &config, &Flags::default(), &["robinhood"]).unwrap_or_else(|error| panic!("{error}"));
    let node = Node::start(Setup::from_config(&config).expect("opens")).expect("starts");
    let http = Http::of(&node);
    assert_eq!(send(http, "", &json!({"queries": [query("prices", 1)]})).status, 200);
    let headers = format!("traceparent: {PARENT}-01\r\n");
    assert_eq!(send(http, &headers, &json!({"queries": [query("prices", 2)]})).status, 200);
    node.stop();
    let all = attempts(&collector);
    let [(attempt, _)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((attempt.name.as_str(), attempt.kind), ("GET", SpanKind::Client as i32));
    assert_eq!(text(&attempt.attributes, "http.request.method"), Some("GET"));
    assert_eq!(text(&attempt.attributes, "server.address"), Some("127.0.0.1"));
    let port = Attribute::IntValue(address.port().into());
    assert_eq!(attribute(&attempt.attributes, "server.port"), Some(&port));
    let heads = heads.lock().unwrap();
    let named =
        |head: &String| head.lines().find_map(|line| line.strip_prefix("traceparent: ").map(str::to_owned));
    let id: String = attempt.span_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let parents: Vec<_> = heads.iter().map(named).collect();
    assert_eq!(parents, [None, Some(format!("{}-{id}-01", &PARENT[..35]))]);
}

#[test]
fn spans_name_the_process_and_carry_the_headers_of_a_file() {
    let collector = Collector::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("headers");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::write(&file, "x-key: sesame\n").unwrap();
    std::fs::set_permissions(&file, private).unwrap();
    let node = start(SpanExport { headers_file: Some(file), ..collector.export() });
    assert_eq!(send(Http::of(&node), "", &json!({"queries": [query("a", 1)]})).status, 200);
    node.stop();
    let received = collector.received.lock().unwrap();
    let head = &received.heads[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n") && head.contains("x-key: sesame\r\n"), "{head}");
    let resource = received.exports[0].resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), Some("sherwood"));
    assert_eq!(text(&resource.attributes, "service.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(text(&resource.attributes, "service.instance.id").map(str::len), Some(36));
}

/// Sends requests of every kind: hits, misses, failures, failures that do not count, stages.
fn requests(http: Http) -> u64 {
    for number in 0..60 {
        let mut body = json!({"queries": [query("a", number), query("b", number / 2), query("b", number)]});
        if number % 5 == 0 {
            body = json!({"stages": [[query("b", number)], [query("a", number / 3), query("b", 7)]]});
        }
        if number % 7 == 0 {
            body["tenant"] = json!("default");
            let mut failing = query("c", number);
            failing["best_effort"] = json!(number % 14 == 0);
            let queries = if number % 5 == 0 { &mut body["stages"][1] } else { &mut body["queries"] };
            queries.as_array_mut().unwrap().push(failing);
        }
        assert_eq!(send(http, "", &body).status, 200);
    }
    60
}

#[test]
fn spans_give_another_node_the_same_blocking_counts() {
    for protocol in [ExportProtocol::Grpc, ExportProtocol::HttpProtobuf] {
        let mut setup = three_backends();
        setup.otlp = setup.admin;
        let receiver = Node::start(setup).expect("starts");
        let address = match protocol {
            ExportProtocol::Grpc => receiver.otlp(),
            ExportProtocol::HttpProtobuf => receiver.admin(),
        };
        let node = start(export(&format!("http://{}", address.unwrap()), protocol));
        let sent = requests(Http::of(&node));
        let counts = Http::of(&node).get("/v1/rbc")["counts"].clone();
        node.stop();
        let receiver = Http::of(&receiver);
        eventually("the end of all traces", || receiver.metric("sherwood_requests_total") >= sent as f64);
        assert_eq!(receiver.get("/v1/rbc")["counts"], counts, "by {protocol:?}");
        for result in ["unmatched", "ambiguous", "late", "outside", "own"] {
            let name = format!("sherwood_trace_spans_unused_total{{result=\"{result}\"}}");
            assert_eq!(receiver.metric(&name), 0.0, "{result}");
        }
    }
}

#[test]
fn node_does_not_count_its_own_spans_again() {
    let collector = Collector::start();
    let node = start(collector.export());
    let http = Http::of(&node);
    let sent = requests(http);
    eventually("all spans", || http.metric("sherwood_spans_exported_total") > 4.0 * sent as f64);
    let exports: Vec<_> = collector.received.lock().unwrap().exports.clone();
    for export in exports {
        let body = export.encode_to_vec();
        let headers = "content-type: application/x-protobuf\r\n";
        let mut stream = http.begin_with("POST", "/v1/traces", headers, body.len());
        stream.write_all(&body).unwrap();
        assert_eq!(answer(stream).status, 200);
    }
    assert!(http.metric("sherwood_trace_spans_unused_total{result=\"own\"}") > 4.0 * sent as f64);
    assert_eq!(
        (http.metric("sherwood_traces_open"), http.metric("sherwood_requests_total")),
        (0.0, sent as f64)
    );
}

#[test]
fn collector_that_never_answers_costs_spans_and_no_request() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let node =
        start(export(&format!("http://{}", silent.local_addr().unwrap()), ExportProtocol::HttpProtobuf));
    let http = Http::of(&node);
    let queries: Vec<_> = (0..200).map(|number| query("a", number % 50)).collect();
    let body = json!({"queries": queries, "values": false});
    // More spans than the queue and a batch in flight hold.
    for _ in 0..30 {
        assert_eq!(send(http, "", &body).status, 200);
    }
    assert!(dropped(http, "queue") >= 5.0 * 201.0, "{}", dropped(http, "queue"));
    assert_eq!(http.metric("sherwood_spans_exported_total"), 0.0);
    // Ends although an export would wait for a minute.
    node.stop();
}

#[test]
fn slow_and_absent_collectors_cost_the_spans_of_their_batches() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for (address, protocol) in [
        (address, ExportProtocol::Grpc),
        (address, ExportProtocol::HttpProtobuf),
        (closed, ExportProtocol::Grpc),
        (closed, ExportProtocol::HttpProtobuf),
    ] {
        let timeout = Duration::from_millis(100);
        let node = start(SpanExport { timeout, ..export(&format!("http://{address}"), protocol) });
        let http = Http::of(&node);
        assert_eq!(send(http, "", &json!({"queries": [query("a", 1)]})).status, 200);
        eventually("the batch is given up", || dropped(http, "export") >= 2.0);
        assert_eq!(send(http, "", &json!({"queries": [query("a", 1)]})).status, 200);
        node.stop();
    }
}

#[test]
fn client_that_disconnects_ends_its_span() {
    let collector = Collector::start();
    let hanging = Fake::new([]);
    hanging.be(Mood::Hang);
    let backends: Vec<(&str, Vec<Arc<dyn Store>>)> = vec![("a", vec![hanging.clone()])];
    let node = Node::start(Setup { spans: Some(collector.export()), ..setup(backends) }).expect("starts");
    let http = Http::of(&node);
    let body = json!({"queries": [query("a", 1)]}).to_string();
    let client = http.send("POST", "/v1/requests", &body);
    eventually("the call", || hanging.calls() > 0);
    drop(client);
    eventually("the end of the request", || !collector.spans().is_empty());
    let request = collector.spans().into_iter().find(|span| span.kind == SpanKind::Server as i32).unwrap();
    assert_eq!(text(&request.attributes, "error.type"), Some("client_disconnected"));
    hanging.be(Mood::Answer);
}

#[test]
fn spans_reach_a_collector_with_tls_and_a_token() {
    let Some(files) = Files::new() else { return };
    files.secret("headers", &format!("authorization: Bearer {TOKEN}\n"));
    let mut setup = three_backends();
    setup.otlp = setup.admin;
    setup.access = files.all();
    let receiver = Node::start(setup).expect("starts");
    for (address, protocol) in
        [(receiver.otlp(), ExportProtocol::Grpc), (receiver.admin(), ExportProtocol::HttpProtobuf)]
    {
        let endpoint = format!("https://localhost:{}", address.unwrap().port());
        let node = start(SpanExport {
            headers_file: Some(files.path("headers")),
            tls: TlsOptions { ca: Some(files.path("ca.pem")), ..TlsOptions::default() },
            ..export(&endpoint, protocol)
        });
        let http = Http::of(&node);
        assert_eq!(send(http, "", &json!({"queries": [query("a", 1)]})).status, 200);
        eventually("the export", || http.metric("sherwood_spans_exported_total") >= 2.0);
        node.stop();
    }
}
