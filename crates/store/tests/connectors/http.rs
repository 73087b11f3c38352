//! Tests of the HTTP connector with a small service: values by path, with response headers of their
//! own.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use sherwood_store::{Cause, HeaderValue, HttpOptions, RemoteOptions, Store, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::{dropped_calls_do_not_affect_others, failure, keys, label, opened, value, values};

/// The test service's values, and the requests it received.
#[derive(Default)]
struct State {
    values: Mutex<BTreeMap<String, Bytes>>,
    requests: Mutex<Vec<(Method, String, Version)>>,
    connections: AtomicUsize,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
}

struct Service {
    address: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Service {
    async fn plain() -> Self {
        Self::start(None).await
    }

    async fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        Self::at("127.0.0.1:0", tls).await
    }

    async fn at(address: &str, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        let accepting = Arc::clone(&state);
        let task = tokio::spawn(async move {
            // The connections end with the service.
            let mut conversations = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let (tls, state) = (tls.clone(), Arc::clone(&accepting));
                conversations.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&state), request));
                    let Some(config) = tls else {
                        let http1 = hyper::server::conn::http1::Builder::new();
                        let _ = http1.serve_connection(TokioIo::new(stream), service).await;
                        return;
                    };
                    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = http2.serve_connection(TokioIo::new(stream), service).await;
                    } else {
                        let http1 = hyper::server::conn::http1::Builder::new();
                        let _ = http1.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Self { address, state, task }
    }

    async fn kill(&mut self) {
        self.task.abort();
        assert!((&mut self.task).await.unwrap_err().is_cancelled());
    }

    /// Options of a store that reads, writes and deletes below `/items/` of the service.
    fn options(&self) -> HttpOptions {
        let item = format!("http://{}/items/{{key}}", self.address);
        let (write, delete) = (Some(format!("PUT {item}")), Some(format!("DELETE {item}")));
        HttpOptions { write, delete, ..HttpOptions::new(item) }
    }

    fn reading(&self, path: &str) -> HttpOptions {
        HttpOptions::new(format!("http://{}{path}", self.address))
    }

    fn set(&self, key: &str, value: &str) {
        self.state.values.lock().unwrap().insert(key.to_owned(), Bytes::copy_from_slice(value.as_bytes()));
    }

    fn paths(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().iter().map(|(_, path, _)| path.clone()).collect()
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let at_once = state.at_once.fetch_add(1, Ordering::Relaxed) + 1;
    state.at_once_max.fetch_max(at_once, Ordering::Relaxed);
    let path = request.uri().path_and_query().unwrap().to_string();
    state.requests.lock().unwrap().push((request.method().clone(), path.clone(), request.version()));
    let asked = request.headers().get("x-status").map(|status| status.to_str().unwrap().to_owned());
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    if path.ends_with("/silent") {
        std::future::pending::<()>().await;
    }
    // Lets other requests run while this one is in flight.
    tokio::task::yield_now().await;
    let response = Response::builder();
    let asked = asked.or_else(|| path.strip_prefix("/items/status-").map(str::to_owned));
    let response = match (asked, path.strip_prefix("/items/"), path.strip_prefix("/all?ids=")) {
        (Some(status), ..) => {
            response.status(status.as_str()).header("location", "/elsewhere").body(Bytes::new())
        }
        (None, Some(key), _) => match (head.method, state.values.lock().unwrap().entry(key.to_owned())) {
            (Method::GET, std::collections::btree_map::Entry::Occupied(value)) => response
                .header("server", "items/1.0")
                .header("cache-control", "max-age=60")
                .header("age", "15")
                .header("cache-tag", "page,user:7")
                .body(value.get().clone()),
            (Method::PUT, entry) => {
                entry.insert_entry(body);
                response.status(204).body(Bytes::new())
            }
            (Method::DELETE, std::collections::btree_map::Entry::Occupied(value)) => {
                response.body(value.remove())
            }
            _ => response.status(404).header("server", "items/1.0").body("no such item".into()),
        },
        (None, None, Some(ids)) => {
            let values = state.values.lock().unwrap();
            let found = ids.split(',').filter_map(|id| Some((id, values.get(id)?)));
            let members: Vec<String> =
                found.map(|(id, value)| format!("\"{id}\": {}", String::from_utf8_lossy(value))).collect();
            response.body(format!("{{{}}}", members.join(",")).into())
        }
        _ => response.status(404).body(Bytes::new()),
    };
    state.at_once.fetch_sub(1, Ordering::Relaxed);
    Ok(response.unwrap().map(Full::new))
}

#[tokio::test]
async fn value_written_by_http_is_read_and_deleted_key_is_absent() {
    let service = Service::plain().await;
    let store = opened(StoreOptions::Http(service.options()));
    assert_eq!(value(&store, "a b/c").await, None);
    store.put("a b/c".into(), "1".into()).await.unwrap();
    store.put("b".into(), Bytes::new()).await.unwrap();
    assert_eq!(values(&store, &["b", "x", "a b/c"]).await, [Some(String::new()), None, Some("1".into())]);
    store.delete("a b/c".into()).await.unwrap();
    store.delete("a b/c".into()).await.unwrap();
    assert_eq!(value(&store, "a b/c").await, None);
    assert!(service.paths().contains(&"/items/a%20b%2Fc".to_owned()));
}

#[tokio::test]
async fn freshness_lifetime_and_tags_of_a_response_are_returned() {
    let service = Service::plain().await;
    service.set("k", "1");
    let store = opened(StoreOptions::Http(service.options()));
    let found = store.get_many(keys(&["k"])).await.unwrap().remove(0).unwrap();
    assert_eq!(found.good_for, Some(Duration::from_secs(45)));
    assert!(found.tags.may_hold(b"page") && found.tags.may_hold(b"user:7") && !found.tags.may_hold(b"x"));
}

#[tokio::test]
async fn http_connections_are_reused_and_concurrent_requests_bounded() {
    let service = Service::plain().await;
    let remote = RemoteOptions { connections_max: 3, ..RemoteOptions::default() };
    let store = opened(StoreOptions::Http(HttpOptions { remote, ..service.options() }));
    let names: Vec<String> = (0..40).map(|i| i.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        service.set(name, name);
    }
    for (name, found) in names.iter().zip(values(&store, &names).await) {
        assert_eq!(found.as_deref(), Some(*name));
    }
    assert!(service.state.at_once_max.load(Ordering::Relaxed) <= 3);
    assert!(service.state.connections.load(Ordering::Relaxed) <= 3);
}

#[tokio::test]
async fn key_that_maps_to_no_url_is_absent_without_a_request() {
    let service = Service::plain().await;
    let store = opened(StoreOptions::Http(service.options()));
    assert_eq!(values(&store, &["..", ".", ""]).await, [None, None, None]);
    assert_eq!(label(store.put("..".into(), "1".into()).await), "unsupported");
    let parts = opened(StoreOptions::Http(service.reading("/items/{key.2}")));
    service.set("7", "1");
    assert_eq!(values(&parts, &["user", "user:7"]).await, [None, Some("1".into())]);
    assert_eq!(service.paths(), ["/items/7"]);
}

#[tokio::test]
async fn keys_of_a_batch_url_are_read_by_one_request() {
    let service = Service::plain().await;
    for (key, json) in [("a", "\"text\""), ("b", "{\"n\": 1.0}"), ("c", "null")] {
        service.set(key, json);
    }
    let store = opened(StoreOptions::Http(service.reading("/all?ids={keys}")));
    let expected = [Some("{\"n\": 1.0}".to_owned()), None, None, Some("text".into()), None];
    assert_eq!(values(&store, &["b", "c", "", "a", "d"]).await, expected);
    assert_eq!(service.paths(), ["/all?ids=b,c,a,d"]);
    let none = store.get_many(vec![Bytes::from_static(b"\xff")]).await.unwrap();
    assert_eq!((none, service.paths().len()), (vec![None], 1));
}

#[tokio::test]
async fn http_statuses_are_mapped_to_causes_and_redirects_are_not_followed() {
    let service = Service::plain().await;
    for (status, expected) in [
        ("200", "none"),
        ("404", "none"),
        ("301", "statement"),
        ("400", "statement"),
        ("401", "credentials"),
        ("403", "credentials"),
        ("429", "busy"),
        ("500", "server"),
        ("503", "busy"),
    ] {
        let mut options = service.options();
        options.headers.insert("X-Status".into(), HeaderValue::Text(status.into()));
        let store = opened(StoreOptions::Http(options));
        assert_eq!(failure(&store).await, expected, "{status}");
        assert_eq!(label(store.check().await), expected, "{status}");
        let (written, deleted) = match status {
            "404" => ("statement", "none"),
            // The outcome of the write is unknown.
            "301" | "503" => ("server", "server"),
            _ => (expected, expected),
        };
        assert_eq!(label(store.put("k".into(), "1".into()).await), written, "{status}");
        assert_eq!(label(store.delete("k".into()).await), deleted, "{status}");
    }
    assert!(!service.paths().iter().any(|path| path == "/elsewhere"));
}

/// The result of each key of a call: its value, none, or the label of its error.
async fn each(store: &Arc<dyn Store>, names: &[&str]) -> Vec<Result<Option<Bytes>, &'static str>> {
    let each = store.get_each(keys(names)).await.unwrap().each.into_iter();
    each.map(|one| one.map(|found| found.map(|found| found.value)).map_err(|error| error.cause().label()))
        .collect()
}

#[tokio::test]
async fn keys_not_sent_to_a_hanging_service_fail_with_the_cause_of_those_sent() {
    let service = Service::plain().await;
    service.set("k", "1");
    let remote = RemoteOptions { connections_max: 2, answer_timeout_ms: 200, ..RemoteOptions::default() };
    let parts = service.reading("/{key.1}/{key.2}");
    let store = opened(StoreOptions::Http(HttpOptions { remote, ..parts }));
    let silent = ["a:silent", "b:silent", "c:silent", "d:silent", "e:silent", "f:silent"];
    assert_eq!(label(store.get_many(keys(&silent)).await), "silent");
    assert_eq!(service.paths().len(), 2, "{:?}", service.paths());
    let some = ["items:k", "a:silent", "b:silent", "c:silent"];
    let expected = [Ok(Some("1".into())), Err("silent"), Err("silent"), Err("silent")];
    assert_eq!(each(&store, &some).await, expected);
    assert_eq!(service.paths().len(), 2 + 3);
}

#[tokio::test]
async fn overloaded_service_is_not_sent_the_rest_of_a_call() {
    let service = Service::plain().await;
    service.set("k", "1");
    let remote = RemoteOptions { connections_max: 1, ..RemoteOptions::default() };
    let store = opened(StoreOptions::Http(HttpOptions { remote, ..service.options() }));
    let expected = [Ok(Some("1".into())), Err("server"), Err("busy"), Err("busy"), Err("busy")];
    assert_eq!(each(&store, &["k", "status-500", "status-503", "k", "status-500"]).await, expected);
    assert_eq!(service.paths(), ["/items/k", "/items/status-500", "/items/status-503"]);
    assert_eq!(value(&store, "k").await, Some("1".into()), "the next call is sent");
}

#[tokio::test]
async fn broken_http_connection_or_long_error_page_fails_no_other_key() {
    let store = one_by_one(|request| {
        let (status, body) = match request {
            request if request.starts_with(b"GET /breaks ") => return String::new(),
            request if request.starts_with(b"GET /none") => ("404 Not Found", "x".repeat(900)),
            _ => ("200 OK", "x".repeat(600)),
        };
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    })
    .await;
    let expected = [Err("reset"), Ok(None), Ok(None), Ok(Some("x".repeat(600).into()))];
    assert_eq!(each(&store, &["breaks", "none1", "none2", "there"]).await, expected);
}

#[tokio::test]
async fn error_page_that_hangs_delays_no_other_key() {
    let store = one_by_one(|request| {
        let (status, body) = match request {
            request if request.starts_with(b"GET /none ") => ("404 Not Found", ""),
            request if request.starts_with(b"GET /fails ") => ("500 Internal Server Error", ""),
            _ => ("200 OK", "page"),
        };
        format!("HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\n{body}")
    })
    .await;
    let keys = ["none", "fails", "there"];
    let each =
        timeout(Duration::from_secs(60), each(&store, &keys)).await.expect("no key waits for ten minutes");
    assert_eq!(each, [Ok(None), Err("server"), Ok(Some("page".into()))]);
}

/// A store with a limit of 1 KiB for values, timeouts of ten minutes and one request at a time, and
/// its service, which answers a request with `answer` and then sends nothing more; if the answer is
/// empty, it closes the connection.
async fn one_by_one(answer: impl Fn(&[u8]) -> String + Send + 'static) -> Arc<dyn Store> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // The task ends with the runtime of the test.
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let answer = answer(&request);
            // The client may close the connection first.
            let _ = stream.write_all(answer.as_bytes()).await;
            open.extend((!answer.is_empty()).then_some(stream));
        }
    });
    let remote = RemoteOptions {
        value_bytes_max: 1 << 10,
        connections_max: 1,
        answer_timeout_ms: 600_000,
        ..RemoteOptions::default()
    };
    opened(StoreOptions::Http(HttpOptions {
        remote,
        ..HttpOptions::new(format!("http://{address}/{{key}}"))
    }))
}

#[tokio::test]
async fn response_body_over_the_limit_is_not_read_completely() {
    let service = Service::plain().await;
    service.set("large", &"x".repeat(5_000));
    service.set("small", "1");
    let remote = RemoteOptions { value_bytes_max: 1 << 10, ..RemoteOptions::default() };
    let store = opened(StoreOptions::Http(HttpOptions { remote, ..service.options() }));
    assert_eq!(label(store.get_many(keys(&["large"])).await), "too_large");
    service.set("half", &"x".repeat(600));
    assert_eq!(value(&store, "half").await.unwrap().len(), 600);
    service.set("other", &"x".repeat(600));
    assert_eq!(label(store.get_many(keys(&["half", "other"])).await), "too_large");
    let each = store.get_each(keys(&["small", "large", "none"])).await.unwrap().each;
    let values: Vec<_> =
        each.into_iter().map(|one| one.map(|found| found.map(|found| found.value))).collect();
    assert_eq!((&values[0], &values[2]), (&Ok(Some("1".into())), &Ok(None)));
    assert_eq!(values[1].as_ref().unwrap_err().cause().label(), "too_large");
    assert_eq!(value(&store, "small").await, Some("1".into()));
}

#[tokio::test]
async fn response_body_over_the_limit_without_a_length_fails_only_its_key() {
    let store = one_by_one(|request| {
        let body = "x".repeat(if request.starts_with(b"GET /large ") { 5_000 } else { 600 });
        let chunks: String = body.as_bytes().chunks(500).map(chunk).collect();
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    })
    .await;
    let expected = [Err("too_large"), Ok(Some("x".repeat(600).into())), Err("too_large")];
    assert_eq!(each(&store, &["large", "small", "other"]).await, expected);
}

fn chunk(bytes: &[u8]) -> String {
    format!("{:x}\r\n{}\r\n", bytes.len(), String::from_utf8_lossy(bytes))
}

#[tokio::test]
async fn write_is_acknowledged_by_its_status_despite_a_broken_body() {
    // Longer than the limit of a value, and shorter than announced.
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n{}", "x".repeat(100_000));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let item = format!("http://{}/{{key}}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let remote = RemoteOptions { value_bytes_max: 1 << 10, ..RemoteOptions::default() };
    let write = Some(format!("PUT {item}"));
    let delete = Some(format!("DELETE {item}"));
    let store = opened(StoreOptions::Http(HttpOptions { remote, write, delete, ..HttpOptions::new(item) }));
    store.put("k".into(), "1".into()).await.unwrap();
    store.delete("k".into()).await.unwrap();
    assert_eq!(label(store.put("k".into(), vec![0; 1025].into()).await), "refused");
}

#[tokio::test]
async fn http_store_without_a_write_url_is_read_only() {
    let service = Service::plain().await;
    let store = opened(StoreOptions::Http(service.reading("/items/{key}")));
    assert_eq!(label(store.put("k".into(), "1".into()).await), "unsupported");
    assert_eq!(label(store.delete("k".into()).await), "unsupported");
    assert!(service.paths().is_empty());
}

#[tokio::test]
async fn http_store_with_a_write_url_and_no_delete_url_is_not_read_only() {
    let service = Service::plain().await;
    let both = service.options();
    let removals = async |options| {
        let removed = opened(StoreOptions::Http(options)).delete("k".into()).await;
        removed.map_err(|error| matches!(error.cause(), Cause::ReadOnly { .. }))
    };
    assert_eq!(removals(service.reading("/items/{key}")).await, Err(true));
    assert_eq!(removals(HttpOptions { delete: None, ..both.clone() }).await, Err(false));
    assert_eq!(removals(both).await, Ok(()));
}

#[tokio::test]
async fn tls_connection_uses_the_newest_http_version_of_both_sides() {
    let authority = Authority::new();
    for (protocols, expected) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let service = Service::start(Some(authority.server("127.0.0.1", false, protocols))).await;
        service.set("k", "1");
        let item = format!("https://{}/items/{{key}}", service.address);
        let remote = RemoteOptions { tls: Some(authority.trusted()), ..RemoteOptions::default() };
        let write = Some(format!("PUT {item}"));
        let store = opened(StoreOptions::Http(HttpOptions { remote, write, ..HttpOptions::new(item) }));
        assert_eq!(values(&store, &["k", "absent"]).await, [Some("1".into()), None]);
        store.put("k".into(), vec![b'x'; 300_000].into()).await.unwrap();
        assert_eq!(value(&store, "k").await.unwrap().len(), 300_000);
        assert!(service.state.requests.lock().unwrap().iter().all(|(_, _, version)| *version == expected));
        let report = store.check().await.unwrap();
        assert_eq!(report.server, "items/1.0");
        assert!(report.details[0].contains("TLS, trusted by"), "{report:?}");
        assert!(report.details[1].starts_with(&format!("{expected:?}, status 404")), "{report:?}");
    }
}

#[tokio::test]
async fn http_service_is_used_again_after_its_restart() {
    let authority = Authority::new();
    for tls in [None, Some(authority.server("127.0.0.1", false, &["h2"]))] {
        let mut service = Service::start(tls.clone()).await;
        service.set("k", "1");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let remote =
            RemoteOptions { tls: tls.as_ref().map(|_| authority.trusted()), ..RemoteOptions::default() };
        let url = format!("{scheme}://{}/items/{{key}}", service.address);
        let store = opened(StoreOptions::Http(HttpOptions { remote, ..HttpOptions::new(url) }));
        assert_eq!(value(&store, "k").await, Some("1".into()));
        service.kill().await;
        let cause = failure(&store).await;
        assert!(["unreachable", "reset"].contains(&cause), "{cause}");
        assert_eq!(failure(&store).await, "unreachable");
        let again = Service::at(&service.address, tls).await;
        again.set("k", "2");
        assert_eq!(value(&store, "k").await, Some("2".into()));
    }
}

#[tokio::test]
async fn dropped_http_call_does_not_affect_other_calls() {
    let service = Service::plain().await;
    dropped_calls_do_not_affect_others(&opened(StoreOptions::Http(service.options()))).await;
}
