//! A node with schedulers, and its clients.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sherwood_config::{Flags, SchedulerSource, SchedulerUrl};
use sherwood_store::TlsOptions;
use sherwood_tickets::generated::tickets_client::TicketsClient;
use sherwood_tickets::{Connection, Endpoint};
use tonic::Status;

use sherwood_node::Node;
use sherwood_node::Setup;
use sherwood_tickets::generated::{
    CancelTicketRequest, GetTicketRequest, GetTicketResponse, ReleaseTicketRequest, WaitOnTicketRequest,
};

/// Longest time that a test waits for what is to happen.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a node with these tables in its configuration, and the admin API on any port.
pub(crate) fn node(tables: &str) -> Node {
    let text = format!("[control]\npolicy = \"static\"\n{tables}\n");
    let flags = Flags { admin: Some("127.0.0.1:0".to_owned()), ..Flags::default() };
    let config = sherwood_config::parse("a.toml", &text, &flags, &["static"])
        .unwrap_or_else(|error| panic!("{error}"));
    Node::start(Setup::from_config(&config).expect("no store")).expect("it starts")
}

/// Runs `test` on the runtime of a client.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async { within(test).await })
}

/// Waits for what is to happen.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("it happens in time")
}

/// The endpoint of a node's scheduler.
pub(crate) fn source(node: &Node, scheduler: &str) -> SchedulerSource {
    let url: SchedulerUrl =
        format!("{}/{scheduler}", node.admin_url().expect("it has one")).parse().expect("a URL");
    SchedulerSource { url, token_file: None, tls: TlsOptions::default() }
}

/// A client of one scheduler.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) calls: TicketsClient<Connection>,
    pub(crate) scheduler: String,
}

impl Client {
    pub(crate) async fn of(source: SchedulerSource) -> Self {
        let endpoint = Endpoint::open(source).expect("its files");
        let connection = endpoint.connect().await.expect("a connection");
        let calls = TicketsClient::with_origin(connection, endpoint.origin());
        Self { calls, scheduler: endpoint.scheduler().to_owned() }
    }

    pub(crate) fn request(&self, within_us: Option<i64>) -> GetTicketRequest {
        GetTicketRequest { scheduler: self.scheduler.clone(), within_us, ..GetTicketRequest::default() }
    }

    pub(crate) async fn get(&mut self, within_us: Option<i64>) -> Result<GetTicketResponse, Status> {
        let request = self.request(within_us);
        Ok(self.calls.get_ticket(request).await?.into_inner())
    }

    pub(crate) async fn wait(&mut self, ticket: u64) -> Result<(), Status> {
        let request = WaitOnTicketRequest { scheduler: self.scheduler.clone(), ticket };
        self.calls.wait_on_ticket(request).await.map(|_| ())
    }

    pub(crate) async fn cancel(&mut self, ticket: u64) -> Result<(), Status> {
        let request = CancelTicketRequest { scheduler: self.scheduler.clone(), ticket };
        self.calls.cancel_ticket(request).await.map(|_| ())
    }

    pub(crate) async fn release(&mut self, ticket: u64, latency_us: Option<i64>) -> Result<(), Status> {
        let request = ReleaseTicketRequest { scheduler: self.scheduler.clone(), ticket, latency_us };
        self.calls.release_ticket(request).await.map(|_| ())
    }
}

/// A proxy in front of a node, which can cut the connections through it.
pub(crate) struct Proxy {
    address: SocketAddr,
    /// Both ends of each open connection.
    open: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl Proxy {
    /// Starts a proxy in front of the node at the address `node`. It runs until the process ends.
    pub(crate) fn before(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, open) = (listener.local_addr().expect("bound"), Arc::default());
        let accepted: Arc<Mutex<Vec<_>>> = Arc::clone(&open);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(node).expect("the node accepts");
                // A call waits for a ticket for 50 ms, less than Nagle's algorithm may delay it.
                near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).expect("sockets");
                let ends = || [&near, &far].map(|end| end.try_clone().expect("a socket"));
                let ([mut near_in, mut far_out], [mut near_out, mut far_in]) = (ends(), ends());
                // Before any byte passes, so that a connection that is in use can be cut.
                accepted.lock().expect("no panics while held").push([near, far]);
                thread::spawn(move || std::io::copy(&mut near_in, &mut far_out));
                thread::spawn(move || std::io::copy(&mut far_in, &mut near_out));
            }
        });
        Self { address, open }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of connections opened since the last cut.
    pub(crate) fn open(&self) -> usize {
        self.open.lock().expect("no panics while held").len()
    }

    /// Cuts all connections, and returns their number.
    pub(crate) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().expect("no panics while held"));
        open.iter().flatten().for_each(|end| {
            let _ = end.shutdown(Shutdown::Both);
        });
        open.len()
    }
}

/// Returns the value of a metric with these labels, by HTTP/1.
pub(crate) fn metric(node: &Node, name: &str) -> f64 {
    let mut stream = TcpStream::connect(node.admin().expect("it has one")).expect("it accepts");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Sends a request to the gateway, and returns the result of its only key.
pub(crate) fn ask(node: &Node, key: &str, fields: &str) -> serde_json::Value {
    let body = format!("{{{fields}\"queries\": [{{\"backend\": \"ranking\", \"keys\": [\"{key}\"]}}]}}");
    let mut stream = TcpStream::connect(node.admin().expect("it has one")).expect("it accepts");
    let head = "POST /v1/requests HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: ";
    write!(stream, "{head}{}\r\n\r\n{body}", body.len()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (_, body) = text.split_once("\r\n\r\n").expect("a body");
    let answer: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{text}"));
    answer["results"][0].clone()
}

/// Waits until `is_true`.
pub(crate) async fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        tokio::task::yield_now().await;
    }
}
