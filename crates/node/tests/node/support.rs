//! A node for one test, backends with controlled failures, and a client with bounded waits.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use sherwood_config::{AccessSetup, Protocol, SpanRule, Writes};
use sherwood_control::Pin;
use sherwood_dispatch::ProbeOptions;
use sherwood_listener::Address;
use sherwood_model::{BackendId, Slo, TenantId};
use sherwood_node::{
    BackendSetup, ListenerSetup, Node, PartitionSetup, PassedSockets, RouteSetup, Rules, Setup,
};
use sherwood_store::{
    Attempt, BoxFuture, Cause, Found, Limit, LimitError, Limits, Store, StoreError, StoreKind,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::wait::TIMEOUT;

/// A timeout that no test reaches.
pub(crate) const NEVER: Duration = Duration::from_secs(600);
pub(crate) const TOTAL: u64 = 32 << 20;

/// The behaviour of a [`Fake`] store when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Answer,
    Fail,
    /// A read takes the present value, and a write its new one; the call ends when the mood
    /// changes.
    Hang,
    /// Reads like [`Mood::Hang`], but in a thread that cannot be cancelled, such as one in a name
    /// look-up.
    Stick,
    /// Every call reports that the store does not support the operation.
    Refuse,
    /// Supports writes in general, but not this one.
    Lack,
}

/// A store in memory with controlled failures.
pub(crate) struct Fake {
    values: Mutex<BTreeMap<Bytes, Bytes>>,
    calls: Mutex<Vec<Vec<Bytes>>>,
    limits: Mutex<Limits>,
    /// Flags, lifetime and tags of every value.
    says: Mutex<Found>,
    /// True if the store changes written values, so that only reads return their final form.
    pub(crate) has_its_own_words: AtomicBool,
    mood: watch::Sender<Mood>,
    /// The store's behaviour on writes.
    writing: watch::Sender<Mood>,
    writes: AtomicUsize,
}

impl Fake {
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Arc<Self> {
        let value = |(key, value): (&str, &[u8])| {
            (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value))
        };
        Arc::new(Self {
            values: Mutex::new(values.into_iter().map(value).collect()),
            calls: Mutex::default(),
            limits: Mutex::default(),
            says: Mutex::default(),
            has_its_own_words: AtomicBool::new(false),
            mood: watch::channel(Mood::Answer).0,
            writing: watch::channel(Mood::Answer).0,
            writes: AtomicUsize::new(0),
        })
    }

    pub(crate) fn be(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    pub(crate) fn write(&self, mood: Mood) {
        self.writing.send_replace(mood);
    }

    /// Number of writes received, completed or not.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Relaxed)
    }

    pub(crate) fn value(&self, key: &'static str) -> Option<Bytes> {
        self.values.lock().unwrap().get(key.as_bytes()).cloned()
    }

    pub(crate) fn put(&self, key: &'static str, value: &'static str) {
        self.values.lock().unwrap().insert(Bytes::from(key), Bytes::from(value));
    }

    /// Sets the flags, lifetime and tags that later reads return.
    pub(crate) fn say(&self, beside: Found) {
        *self.says.lock().unwrap() = beside;
    }

    /// Number of reads, including probes.
    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    fn error(attempt: Attempt) -> StoreError {
        StoreError::new("fake", StoreKind::Kv, attempt, Cause::Engine { detail: "unplugged".to_owned() })
    }

    fn refusal(attempt: Attempt) -> StoreError {
        let cause = Cause::ReadOnly { reason: "it is read-only; write elsewhere" };
        StoreError::new("fake", StoreKind::Kv, attempt, cause)
    }

    fn inability(attempt: Attempt) -> StoreError {
        let cause = Cause::Unsupported { reason: "it has no way to; do it elsewhere" };
        StoreError::new("fake", StoreKind::Kv, attempt, cause)
    }

    /// Makes a change according to the mood for writes; waits while it is [`Mood::Hang`].
    fn change(
        &self,
        attempt: Attempt,
        change: impl FnOnce(&mut BTreeMap<Bytes, Bytes>) + Send + 'static,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut mood = self.writing.subscribe();
        Box::pin(async move {
            self.writes.fetch_add(1, Relaxed);
            let mood = *mood.wait_for(|mood| *mood != Mood::Hang).await.expect("the store owns the sender");
            match mood {
                Mood::Fail => return Err(Self::error(attempt)),
                Mood::Refuse => return Err(Self::refusal(attempt)),
                Mood::Lack => return Err(Self::inability(attempt)),
                Mood::Answer | Mood::Hang | Mood::Stick => change(&mut self.values.lock().unwrap()),
            }
            Ok(())
        })
    }
}

impl Store for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Kv
    }

    fn answers_as_written(&self) -> bool {
        !self.has_its_own_words.load(Relaxed)
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let mut mood = self.mood.subscribe();
        Box::pin(async move {
            let attempt = Attempt::Get { keys: keys.len() };
            let found = {
                let values = self.values.lock().unwrap();
                let says = self.says.lock().unwrap();
                let found = |value: &Bytes| Found { value: value.clone(), ..says.clone() };
                keys.iter().map(|key| values.get(key).map(found)).collect()
            };
            self.calls.lock().unwrap().push(keys);
            if *mood.borrow() == Mood::Stick {
                let mut mood = mood.clone();
                let change = async move { mood.wait_for(|mood| *mood != Mood::Stick).await.is_ok() };
                let stuck = spawn_blocking(|| Handle::current().block_on(change));
                assert!(stuck.await.expect("it does not panic"), "the store owns the sender");
            }
            let mood = *mood.wait_for(|mood| *mood != Mood::Hang).await.expect("the store owns the sender");
            // Like a real store, it does not fail a call without keys.
            match mood {
                Mood::Fail if attempt != (Attempt::Get { keys: 0 }) => Err(Self::error(attempt)),
                Mood::Refuse => Err(Self::refusal(attempt)),
                Mood::Lack => Err(Self::inability(attempt)),
                Mood::Answer | Mood::Fail | Mood::Hang | Mood::Stick => Ok(found),
            }
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(Attempt::Put, |values| drop(values.insert(key, value)))
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(Attempt::Delete, move |values| drop(values.remove(&key)))
    }

    fn limits(&self) -> Limits {
        *self.limits.lock().unwrap()
    }

    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        limit.validate()?;
        let mut limits = self.limits.lock().unwrap();
        match limit {
            Limit::Slots(slots) => limits.slots = slots,
            Limit::OpsPerS(ops) => limits.ops_per_s = ops,
            Limit::CpuRatio(ratio) => limits.cpu_ratio = ratio,
        }
        Ok(())
    }
}

/// Setup of a node with these backends, each with a partition of the default tenant. It makes no
/// decisions by itself.
pub(crate) fn setup(backends: Vec<(&str, Vec<Arc<dyn Store>>)>) -> Setup {
    let partitions = (0..backends.len()).map(|index| partition(0, index)).collect();
    Setup {
        cache: sherwood_cache::Options { total_bytes: TOTAL, ..sherwood_cache::Options::default() },
        tenants: vec!["default".to_owned()],
        tenancy: None,
        backends: backends.into_iter().map(|(name, stores)| backend(name, stores)).collect(),
        partitions,
        slo: Slo {
            percentile: 99.0,
            bound: Duration::from_millis(150),
            window: Duration::from_secs(60),
            observe: Duration::from_millis(10),
        },
        slos: Vec::new(),
        deadlines: Vec::new(),
        schedulers: Vec::new(),
        replication: None,
        stores: None,
        cluster: None,
        instances: None,
        snapshot: None,
        control: sherwood_policy::Options { delta: Duration::from_secs(3600), ..Default::default() },
        policy: "static".to_owned(),
        listeners: Vec::new(),
        listener_connections_max: 16,
        admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        otlp: None,
        spans: None,
        passed: PassedSockets::default(),
        access: AccessSetup::default(),
        http_connections_max: 64,
        buffers_bytes_max: 256 << 20,
        slack_bytes: None,
        threads: 2,
        seed: Some(1),
    }
}

fn backend(name: &str, stores: Vec<Arc<dyn Store>>) -> BackendSetup {
    let probe = ProbeOptions {
        failures_max: 2,
        interval_min: Duration::from_millis(5),
        interval_max: Duration::from_millis(20),
    };
    let dispatch = sherwood_dispatch::Options { timeout: NEVER, probe, ..Default::default() };
    let (rules, writes) = (Rules::default(), Writes::default());
    let deadlines = sherwood_cache::DeadlineOptions::ONE;
    let (name, tickets) = (name.to_owned(), Vec::new());
    BackendSetup {
        name,
        dispatch,
        deadlines,
        rules,
        late_after: None,
        writes,
        duplicates: None,
        shared: None,
        stores,
        servers: Vec::new(),
        tickets,
        spans: SpanRule::default(),
    }
}

pub(crate) fn partition(tenant: usize, backend: usize) -> PartitionSetup {
    PartitionSetup {
        tenant: TenantId::from_index(tenant),
        backend: BackendId::from_index(backend),
        initial_bytes: None,
        pin: Pin::default(),
    }
}

/// A read-through listener for one backend.
pub(crate) fn listener(backend: usize) -> ListenerSetup {
    ListenerSetup {
        protocol: Protocol::Memcached,
        bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into(),
        auth_file: None,
        tls: None,
        tenant: None,
        route: RouteSetup::Backend(BackendId::from_index(backend)),
        read_through: true,
        write_through: None,
        requests: sherwood_config::BatchMode::Auto,
        class: None,
        databases: 1,
        threads: 1,
        idle_timeout: None,
        pin_threads: false,
        io: sherwood_listener::Io::Auto,
    }
}

/// A response of the HTTP port.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Checks the status and returns the error message.
    #[track_caller]
    pub(crate) fn refusal(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        self.json()["error"].as_str().expect("an error says what is wrong").to_owned()
    }
}

/// A client of the HTTP port.
#[derive(Clone, Copy)]
pub(crate) struct Http(pub(crate) SocketAddr);

impl Http {
    pub(crate) fn of(node: &Node) -> Self {
        Self(node.admin().expect("the test's node has an admin API"))
    }

    /// Sends a request without reading the response.
    pub(crate) fn send(self, method: &str, path: &str, body: &str) -> TcpStream {
        self.send_with(method, path, "", body)
    }

    /// Like [`send`](Self::send), with further headers, each ending with CRLF.
    pub(crate) fn send_with(self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.begin_with(method, path, headers, body.len());
        // The node may refuse a request before reading all of it; the reader of the response checks
        // that it was answered.
        let _ = stream.write_all(body.as_bytes());
        stream
    }

    /// Sends the head of a request with a body of `length`.
    pub(crate) fn begin(self, method: &str, path: &str, length: usize) -> TcpStream {
        self.begin_with(method, path, "", length)
    }

    /// Sends the head of a request with a body of `length` and further headers.
    pub(crate) fn begin_with(self, method: &str, path: &str, headers: &str, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(self.0).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    #[track_caller]
    pub(crate) fn ask(self, method: &str, path: &str, body: &str) -> Answer {
        answer(self.send(method, path, body))
    }

    #[track_caller]
    pub(crate) fn get(self, path: &str) -> Value {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Sends a request to the gateway and returns its answer.
    #[track_caller]
    pub(crate) fn request(self, body: &Value) -> Value {
        let answer = self.ask("POST", "/v1/requests", &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Requests one key of one backend and returns its result.
    #[track_caller]
    pub(crate) fn key(self, backend: &str, key: &str) -> Value {
        let body = serde_json::json!({"queries": [{"backend": backend, "keys": [key]}]});
        self.request(&body)["results"][0].clone()
    }

    /// Returns the value of a sample of the metrics.
    #[track_caller]
    pub(crate) fn metric(self, name: &str) -> f64 {
        let text = self.ask("GET", "/metrics", "").body;
        let sample = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sample.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }
}

/// A client of a listener.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects to the listener at an address.
    pub(crate) fn connect_to(address: &Address) -> Self {
        let stream = TcpStream::connect(address.tcp().expect("a port")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Connects to the node's first memcached listener.
    pub(crate) fn connect(node: &Node) -> Self {
        Self::connect_to(&node.addresses(Protocol::Memcached)[0])
    }

    /// Sends a command and returns its answer up to the line `last`.
    pub(crate) fn ask(&mut self, command: &str, last: &str) -> Vec<String> {
        self.send(command);
        self.lines_while(|lines| lines.last().is_none_or(|line| line != last))
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, command: &str) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    /// Returns the next lines of answers.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        self.lines_while(|lines| lines.len() < count)
    }

    fn lines_while(&mut self, more: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while more(&lines) {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "closed after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        lines
    }
}

/// Reads a response to its end.
#[track_caller]
pub(crate) fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// Removes the latencies from an answer, after checking that they are present.
pub(crate) fn without_latencies(mut answer: Value) -> Value {
    let mut take = |value: &mut Value| {
        let latency = value.as_object_mut().unwrap().remove("latency_ms");
        assert!(latency.is_some_and(|latency| latency.as_f64().unwrap() >= 0.0));
    };
    answer["results"].as_array_mut().unwrap().iter_mut().for_each(&mut take);
    take(&mut answer);
    answer
}
