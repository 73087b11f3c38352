//! Tests of HTTP and DynamoDB connectors with servers that end kept-alive connections, abruptly or
//! gracefully.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sherwood_store::{DynamoDbOptions, Fault, HttpOptions, RemoteOptions, Store, StoreOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::{dynamodb, keys, label, opened, patient};

/// The reaction of a server to a request.
#[derive(Clone, Copy)]
enum Reply {
    /// An answer, after which the connection is kept.
    Answer,
    /// These bytes, after which the connection ends.
    End(&'static [u8]),
}

/// Numbers of connections and requests that a server has received.
#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Counts {
    fn of(&self) -> (usize, usize) {
        (self.connections.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }
}

/// An answer that the HTTP connector reads as a value, and the DynamoDB connector as an absent item
/// or an acknowledged write.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Starts an HTTP/1.1 server whose reply depends on the number of the connection and of the request
/// on it, both counted from 1. Returns its address and its counts.
async fn replies(reply: impl Fn(usize, usize) -> Reply + Copy + Send + 'static) -> (String, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let counts = Arc::<Counts>::default();
    let counted = Arc::clone(&counts);
    // The tasks end with the runtime of the test.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counts = Arc::clone(&counted);
            let connection = counts.connections.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::spawn(async move {
                let mut request = 0;
                while read_request(&mut stream).await {
                    counts.requests.fetch_add(1, Ordering::Relaxed);
                    request += 1;
                    match reply(connection, request) {
                        Reply::Answer => stream.write_all(ANSWER).await.unwrap(),
                        Reply::End(bytes) => {
                            let _ = stream.write_all(bytes).await;
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, counts)
}

/// Reads a request and its body; false if the connection ends instead.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte.to_ascii_lowercase()),
            Err(_) => return false,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.is_ok()
}

/// An HTTP and a DynamoDB store of the server at `address`.
fn stores(scheme: &str, address: &str, remote: &RemoteOptions) -> [Arc<dyn Store>; 2] {
    let item = format!("{scheme}://{address}/{{key}}");
    let write = Some(format!("PUT {item}"));
    let http = HttpOptions { write, remote: remote.clone(), ..HttpOptions::new(item) };
    let options = dynamodb::options(&format!("{scheme}://{address}"));
    let dynamodb = DynamoDbOptions { remote: remote.clone(), ..options };
    [opened(StoreOptions::Http(http)), opened(StoreOptions::DynamoDb(dynamodb))]
}

fn plain(address: &str) -> [Arc<dyn Store>; 2] {
    stores("http", address, &patient())
}

async fn read(store: &Arc<dyn Store>) -> &'static str {
    label(store.get_many(keys(&["k"])).await)
}

async fn write(store: &Arc<dyn Store>) -> (&'static str, Option<Fault>) {
    let written = store.put("k".into(), "1".into()).await;
    let fault = written.as_ref().err().map(sherwood_store::StoreError::fault);
    (label(written), fault)
}

/// Ends each connection at its second request.
fn once_each(_: usize, request: usize) -> Reply {
    if request == 1 { Reply::Answer } else { Reply::End(b"") }
}

#[tokio::test]
async fn read_whose_kept_alive_connection_ended_is_resent_on_a_new_connection() {
    for at in 0..2 {
        let (address, counts) = replies(once_each).await;
        let store = &plain(&address)[at];
        for _ in 0..10 {
            assert_eq!(read(store).await, "none", "{}", store.kind());
        }
        // Each second read meets the end of the connection that the one before it has left.
        assert_eq!(counts.of(), (10, 15), "{}", store.kind());
    }
}

#[tokio::test]
async fn concurrent_reads_whose_connections_ended_are_not_resent_on_other_ending_connections() {
    let (address, _) = replies(once_each).await;
    let names: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let store = &plain(&address)[0];
    for _ in 0..5 {
        let found = store.get_many(keys(&names)).await.unwrap();
        assert!(found.iter().all(Option::is_some));
    }
}

#[tokio::test]
async fn read_is_resent_at_most_once() {
    for at in 0..2 {
        let first = |connection, request| match (connection, request) {
            (1, 1) => Reply::Answer,
            _ => Reply::End(b""),
        };
        let (address, counts) = replies(first).await;
        let store = &plain(&address)[at];
        assert_eq!(read(store).await, "none");
        assert_eq!((read(store).await, counts.of()), ("reset", (2, 3)), "{}", store.kind());
    }
}

#[tokio::test]
async fn read_on_a_new_connection_that_ends_is_not_resent() {
    for at in 0..2 {
        let (address, counts) = replies(|_, _| Reply::End(b"")).await;
        let store = &plain(&address)[at];
        assert_eq!((read(store).await, counts.of()), ("reset", (1, 1)), "{}", store.kind());
    }
}

#[tokio::test]
async fn read_whose_connection_ends_in_the_middle_of_the_answer_is_not_resent() {
    for part in [&b"H"[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let second = move |_, request| if request == 1 { Reply::Answer } else { Reply::End(part) };
        let (address, counts) = replies(second).await;
        let store = &plain(&address)[0];
        assert_eq!(read(store).await, "none");
        assert_eq!((read(store).await, counts.of()), ("reset", (1, 2)), "{part:?}");
    }
}

#[tokio::test]
async fn write_whose_kept_alive_connection_ended_fails_and_is_not_resent() {
    for at in 0..2 {
        let (address, counts) = replies(once_each).await;
        let store = &plain(&address)[at];
        assert_eq!(write(store).await, ("none", None));
        assert_eq!(write(store).await, ("reset", Some(Fault::Broken)), "{}", store.kind());
        assert_eq!(counts.of(), (1, 2), "{}", store.kind());
        assert_eq!(write(store).await, ("none", None));
    }
}

#[tokio::test]
async fn duplicate_answer_is_not_taken_for_the_answer_to_the_next_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut request = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            // Each value is the number of its request.
            while read_request(&mut stream).await {
                request += 1;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{request:03}").repeat(2);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    let store = &plain(&address)[0];
    for request in 1..=20 {
        assert_eq!(crate::value(store, "k").await, Some(format!("{request:03}")));
    }
}

/// The reaction of an HTTP/2 server to a request, which depends on the number of the connection and
/// of the request on it, both counted from 1.
#[derive(Clone, Copy)]
enum Reaction {
    /// An answer.
    Answer,
    /// No answer for now.
    Hold,
    /// A GOAWAY that names the request with this number as the last one that is processed, and
    /// answers to the held requests up to it.
    GoAway(u32),
    /// The stream is refused.
    Refuse,
    /// The connection ends.
    End,
}

/// Starts an HTTP/2 server with TLS. Returns an HTTP and a DynamoDB store that use it, and its
/// counts.
async fn reacts(
    reaction: impl Fn(usize, u32) -> Reaction + Copy + Send + 'static,
) -> ([Arc<dyn Store>; 2], Arc<Counts>) {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server("127.0.0.1", false, &["h2"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let counts = Arc::<Counts>::default();
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, counts) = (acceptor.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = converse(stream, &counts, reaction).await;
                }
            });
        }
    });
    let tls = Some(authority.trusted());
    let remote = RemoteOptions { tls, connections_max: 16, ..patient() };
    (stores("https", &address, &remote), counts)
}

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const NO_ERROR: [u8; 4] = [0; 4];

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    counts: &Counts,
    reaction: impl Fn(usize, u32) -> Reaction,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, b"")).await?;
    let (mut connection, mut requests, mut held) = (0, 0, Vec::new());
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await?;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4] & 1) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, 1, 0, b"")).await?,
            (PING, 0) => stream.write_all(&frame(PING, 1, 0, &payload)).await?,
            (HEADERS, _) => {
                // A client may open connections that it does not use.
                if requests == 0 {
                    connection = counts.connections.fetch_add(1, Ordering::Relaxed) + 1;
                }
                counts.requests.fetch_add(1, Ordering::Relaxed);
                requests += 1;
                match reaction(connection, requests) {
                    Reaction::Answer => stream.write_all(&answer(id)).await?,
                    Reaction::Hold => held.push(id),
                    Reaction::GoAway(last) => {
                        held.push(id);
                        // The client's streams have odd numbers.
                        let last = (2 * last).saturating_sub(1);
                        let payload = [last.to_be_bytes(), NO_ERROR].concat();
                        stream.write_all(&frame(GOAWAY, 0, 0, &payload)).await?;
                        for id in held.drain(..).filter(|&id| id <= last) {
                            stream.write_all(&answer(id)).await?;
                        }
                    }
                    Reaction::Refuse => {
                        stream.write_all(&frame(RST_STREAM, 0, id, &REFUSED_STREAM)).await?;
                    }
                    Reaction::End => return stream.shutdown().await,
                }
            }
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Status 200, the eighth entry of HPACK's table, and the body of [`ANSWER`].
fn answer(id: u32) -> Vec<u8> {
    const END_HEADERS: u8 = 4;
    const END_STREAM: u8 = 1;
    [frame(HEADERS, END_HEADERS, id, b"\x88"), frame(DATA, END_STREAM, id, b"{}")].concat()
}

#[tokio::test]
async fn requests_up_to_the_last_one_named_by_goaway_are_awaited_and_later_ones_resent() {
    let ([store, _], counts) = reacts(|connection, request| match (connection, request) {
        (1, 2..=6) => Reaction::Hold,
        (1, 7) => Reaction::GoAway(4),
        _ => Reaction::Answer,
    })
    .await;
    assert_eq!(read(&store).await, "none");
    let found = store.get_many(keys(&["a", "b", "c", "d", "e", "f"])).await.unwrap();
    assert!(found.iter().all(Option::is_some), "{found:?}");
    assert_eq!(counts.of(), (2, 1 + 6 + 3));
}

#[tokio::test]
async fn request_that_the_server_did_not_process_is_resent_even_if_it_is_a_write() {
    for refusal in [Reaction::GoAway(1), Reaction::Refuse] {
        let reaction = move |connection, request| match (connection, request) {
            (1, 2) => refusal,
            _ => Reaction::Answer,
        };
        for at in 0..2 {
            let (stores, counts) = reacts(reaction).await;
            assert_eq!(read(&stores[at]).await, "none");
            assert_eq!(write(&stores[at]).await, ("none", None), "{}", stores[at].kind());
            assert_eq!(counts.of(), (2, 3));
            let (stores, counts) = reacts(reaction).await;
            assert_eq!(read(&stores[at]).await, "none");
            assert_eq!(read(&stores[at]).await, "none", "{}", stores[at].kind());
            assert_eq!(counts.of(), (2, 3));
        }
    }
}

#[tokio::test]
async fn request_that_is_never_processed_is_resent_three_times_then_fails_as_overloaded() {
    for refusal in [Reaction::GoAway(0), Reaction::Refuse] {
        let (stores, counts) = reacts(move |_, _| refusal).await;
        let mut sent = 0;
        for store in &stores {
            sent += 4;
            assert_eq!((read(store).await, counts.of().1), ("busy", sent), "{}", store.kind());
            sent += 4;
            let written = (write(store).await, counts.of().1);
            assert_eq!(written, (("busy", Some(Fault::Overloaded)), sent), "{}", store.kind());
        }
    }
}

#[tokio::test]
async fn read_whose_kept_alive_http2_connection_ended_is_resent_and_a_write_is_not() {
    let ends = |_, request| if request == 2 { Reaction::End } else { Reaction::Answer };
    for at in 0..2 {
        let (stores, counts) = reacts(ends).await;
        let store = &stores[at];
        assert_eq!(read(store).await, "none");
        assert_eq!((read(store).await, counts.of()), ("none", (2, 3)), "{}", store.kind());
        assert_eq!(write(store).await, ("reset", Some(Fault::Broken)), "{}", store.kind());
        assert_eq!(counts.of(), (2, 4));
    }
}

#[tokio::test]
async fn read_whose_new_http2_connection_ended_is_resent_once() {
    let first = |connection, _| if connection == 1 { Reaction::End } else { Reaction::Answer };
    for at in 0..2 {
        let (stores, counts) = reacts(first).await;
        assert_eq!((read(&stores[at]).await, counts.of()), ("none", (2, 2)), "{}", stores[at].kind());
        let (stores, counts) = reacts(|_, _| Reaction::End).await;
        assert_eq!((read(&stores[at]).await, counts.of()), ("reset", (2, 2)), "{}", stores[at].kind());
    }
}
