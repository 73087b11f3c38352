//! A listener in the test's own process, and a blocking client whose waits have a timeout.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant as Monotonic, SystemTime};

use sherwood_cache::{Cache, Options, Partition};
use sherwood_dispatch::Charged;
use sherwood_listener::{
    Address, Backends, BatchCounting, Bound, BufferBytes, Clock, ConnectionLimit, Count, ListenerOptions,
    Passwords, Protocol, Reading, Routing, Running, Service, Target, UserRoutes, rounds_available,
};
use sherwood_model::query_times::{LatencyHistogram, QueryKind, QueryTimes};
use sherwood_model::{BackendId, HotKey, HotKeys, Instant, PartitionId, SeededState, TenantId};
use socket2::Socket;

use crate::wait::TIMEOUT;

/// Limit on connections in tests that do not test this limit.
const PLACES: usize = 1024;

/// The machine's clock: monotonic time, and the wall time at its start, which clients compare with
/// their own.
struct MachineClock {
    start: Monotonic,
    start_unix: Duration,
}

impl MachineClock {
    fn new() -> Self {
        let start_unix = SystemTime::UNIX_EPOCH.elapsed().expect("the machine's clock is set");
        Self { start: Monotonic::now(), start_unix }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn unix(&self, at: Instant) -> Duration {
        self.start_unix + at.since(Instant::ZERO)
    }

    fn at_unix(&self, unix: Duration) -> Instant {
        Instant::ZERO + unix.saturating_sub(self.start_unix)
    }
}

/// The contents of a password file: lines `name:password`.
struct PasswordLines(Vec<u8>);

impl Passwords for PasswordLines {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let mut lines = self.0.split(|&byte| byte == b'\n');
        lines.any(|line| line == [user, b":", password].concat()).then_some(TenantId(0))
    }
}

/// A running listener on an address of its own, stopped when dropped.
pub(crate) struct Server {
    running: Option<Running>,
    cache: Arc<Cache>,
    buffers: Arc<AtomicU64>,
    times: Arc<QueryTimes>,
    hot_keys: Arc<HotKeys>,
}

impl Server {
    /// Starts a memcached listener with one look-aside partition (misses are not fetched) of 64
    /// MiB.
    pub(crate) fn start(options: ListenerOptions) -> Self {
        Self::speak(Protocol::Memcached, options, PLACES)
    }

    /// Starts a Redis listener with one look-aside partition (misses are not fetched) of 64 MiB.
    pub(crate) fn redis(options: ListenerOptions) -> Self {
        Self::speak(Protocol::Redis, options, PLACES)
    }

    /// Starts a listener of either protocol with this limit on connections.
    pub(crate) fn speak(protocol: Protocol, options: ListenerOptions, connections_max: usize) -> Self {
        Self::serve(protocol, options, Routing::single(target(0, false)), None, connections_max, None)
    }

    /// Starts a listener of either protocol that requires the passwords in a file.
    pub(crate) fn asking(protocol: Protocol, options: ListenerOptions, passwords: &Path) -> Self {
        let passwords: Arc<dyn Passwords> = Arc::new(PasswordLines(fs::read(passwords).unwrap()));
        Self::serve(protocol, options, Routing::single(target(0, false)), None, PLACES, Some(passwords))
    }

    /// Starts a memcached listener with one partition whose misses are fetched from `backends`.
    pub(crate) fn read_through(options: ListenerOptions, backends: Arc<dyn Backends>) -> Self {
        Self::reading_through(Protocol::Memcached, options, backends)
    }

    /// Starts a Redis listener with one partition whose misses are fetched from `backends`.
    pub(crate) fn redis_read_through(options: ListenerOptions, backends: Arc<dyn Backends>) -> Self {
        Self::reading_through(Protocol::Redis, options, backends)
    }

    /// Starts a listener of either protocol with one partition whose misses are fetched from
    /// `backends`.
    pub(crate) fn reading_through(
        protocol: Protocol,
        options: ListenerOptions,
        backends: Arc<dyn Backends>,
    ) -> Self {
        Self::serve(protocol, options, Routing::single(target(0, true)), Some(backends), PLACES, None)
    }

    /// Starts a listener of either protocol that does not fetch misses, and whose writes call
    /// `backends`.
    pub(crate) fn beside(protocol: Protocol, options: ListenerOptions, backends: Arc<dyn Backends>) -> Self {
        let routing = Routing::single(target(0, false));
        Self::serve(protocol, options, routing, Some(backends), PLACES, None)
    }

    /// Starts a listener of either protocol whose clients' traffic has these rates.
    pub(crate) fn limited(protocol: Protocol, options: ListenerOptions, network: Arc<dyn Charged>) -> Self {
        let service = service(Routing::single(target(0, false)), None, PLACES, None);
        Self::run(protocol, options, Service { network: Some(network), ..service })
    }

    /// Starts a listener of either protocol whose misses are fetched from `backends`, and whose
    /// clients' traffic has these rates.
    pub(crate) fn limited_read_through(
        protocol: Protocol,
        options: ListenerOptions,
        network: Arc<dyn Charged>,
        backends: Arc<dyn Backends>,
    ) -> Self {
        let service = service(Routing::single(target(0, true)), Some(backends), PLACES, None);
        Self::run(protocol, options, Service { network: Some(network), ..service })
    }

    /// Starts a listener of either protocol whose clients' batches are counted. Misses are fetched
    /// from `backends`, if there are any.
    pub(crate) fn counting(
        protocol: Protocol,
        options: ListenerOptions,
        backends: Option<Arc<dyn Backends>>,
        batches: BatchCounting,
    ) -> Self {
        let routing = Routing::single(target(0, backends.is_some()));
        let service = service(routing, backends, PLACES, None);
        Self::run(protocol, options, Service { batches: Some(batches), ..service })
    }

    /// Starts a look-aside listener with two partitions, the second for keys that begin with `b/`,
    /// whose clients' batches are counted.
    pub(crate) fn counting_two(protocol: Protocol, options: ListenerOptions, batches: BatchCounting) -> Self {
        let targets = [(String::new(), target(0, false)), ("b/".to_owned(), target(1, false))];
        let routing = Routing::by_prefix(TenantId(0), targets).unwrap();
        let partitions = [0, 1].map(|backend| Partition::new(TenantId(0), BackendId(backend), 16 << 20));
        let cache = Cache::new(Options::default(), &partitions, SeededState::new(1)).unwrap();
        let service = service(routing, None, PLACES, None);
        Self::run(protocol, options, Service { cache: Arc::new(cache), batches: Some(batches), ..service })
    }

    fn serve(
        protocol: Protocol,
        options: ListenerOptions,
        routing: Routing,
        backends: Option<Arc<dyn Backends>>,
        connections_max: usize,
        passwords: Option<Arc<dyn Passwords>>,
    ) -> Self {
        Self::run(protocol, options, service(routing, backends, connections_max, passwords))
    }

    fn run(protocol: Protocol, options: ListenerOptions, service: Service) -> Self {
        let (cache, times) = (Arc::clone(&service.cache), Arc::clone(&service.times));
        let buffers = Arc::new(AtomicU64::new(0));
        let hot_keys = Arc::new(HotKeys::new(1, 1));
        let service = Service {
            buffers: Arc::clone(&buffers) as Arc<dyn BufferBytes>,
            hot_keys: Some(Arc::clone(&hot_keys)),
            ..service
        };
        let clock = Arc::new(MachineClock::new());
        let bound = Bound::bind(options).unwrap();
        let running = bound.serve(protocol, service, clock, 1);
        Self { running: Some(running.unwrap()), cache, buffers, times, hot_keys }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server runs until the test ends")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running().address().tcp().expect("a port")
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.read().counts.get(count)
    }

    /// Returns the listener's counters at this moment.
    pub(crate) fn read(&self) -> Reading {
        self.running().meter().read().expect("it serves")
    }

    /// Returns the times of all queries since the start.
    pub(crate) fn times(&self) -> BTreeMap<QueryKind, LatencyHistogram> {
        self.times.read()
    }

    /// Returns the keys that are read most, with their shares, and the number of sampled reads.
    pub(crate) fn hot_keys(&self) -> (Vec<HotKey>, u64) {
        self.hot_keys.top(PartitionId(0), usize::MAX)
    }

    pub(crate) fn connections(&self) -> usize {
        self.read().open
    }

    /// Returns the bytes that the buffers of the listener's threads and clients hold.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.buffers.load(Relaxed)
    }

    /// The cache that the listener serves.
    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Connects a client, with the listener's kind of socket.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.running().address())
    }

    /// Tells the listener to stop, without waiting.
    pub(crate) fn tell_to_stop(&self) {
        self.running().stop();
    }

    /// Waits until the listener has stopped.
    pub(crate) fn join(&mut self) {
        self.running.take().expect("a server is joined once").join().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
            let ended = running.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

/// Returns a service with a cache of one partition of 64 MiB.
fn service(
    routing: Routing,
    backends: Option<Arc<dyn Backends>>,
    connections_max: usize,
    passwords: Option<Arc<dyn Passwords>>,
) -> Service {
    let partition = Partition::new(TenantId(0), BackendId(0), 64 << 20);
    let cache = Cache::new(Options::default(), &[partition], SeededState::new(1)).unwrap();
    Service {
        cache: Arc::new(cache),
        routing,
        backends,
        connection_limit: Arc::new(ConnectionLimit::new(connections_max)),
        buffers: Arc::new(AtomicU64::new(0)),
        background: None,
        passwords,
        users: UserRoutes::default(),
        network: None,
        standings: None,
        times: Arc::default(),
        batches: None,
        hot_keys: None,
    }
}

/// Options of a listener on any free port.
pub(crate) fn options() -> ListenerOptions {
    let bind = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    ListenerOptions {
        bind,
        threads: 2,
        drain_timeout: TIMEOUT,
        rounds: has_rounds(),
        ..ListenerOptions::default()
    }
}

/// Returns the most bytes that the buffers of a listener's thread may hold for no connection: those
/// for one connection at a time, and of a round the inputs and answers of sixteen.
pub(crate) fn thread_bytes_max() -> u64 {
    if has_rounds() { (64 + 16 * 20) << 10 } else { 64 << 10 }
}

/// Returns true if the listeners under test serve in rounds: where the system can, unless the
/// environment asks for epoll alone.
fn has_rounds() -> bool {
    std::env::var("LISTENER_IO").as_deref() != Ok("epoll") && rounds_available().is_ok()
}

fn target(partition: u16, read_through: bool) -> Target {
    Target {
        partition: PartitionId(partition),
        tenant: TenantId(0),
        read_through,
        write_through: false,
        shared: false,
    }
}

/// A blocking client of a listener under test.
pub(crate) struct Client(pub(crate) Socket);

impl Client {
    fn connect(address: &Address) -> Self {
        let socket = match address {
            Address::Tcp(address) => Socket::from(TcpStream::connect(address).unwrap()),
            Address::Unix(place) => Socket::from(UnixStream::connect(&place.path).unwrap()),
        };
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TIMEOUT)).unwrap();
        if matches!(address, Address::Tcp(_)) {
            socket.set_tcp_nodelay(true).unwrap();
        }
        Self(socket)
    }

    /// Returns another handle to the same socket.
    pub(crate) fn other_hand(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends bytes on a connection that the server may have closed; returns the error if it has.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Shuts down the client's sending side. No error if the server has closed the connection.
    pub(crate) fn finish(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Reads as many bytes of the answer as `expected` has and checks that they are equal.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) {
        let mut answer = vec![0; expected.len()];
        let mut read = 0;
        while read < answer.len() {
            match self.0.read(&mut answer[read..]) {
                Ok(0) => panic!("the server closed after {:?}", String::from_utf8_lossy(&answer[..read])),
                Ok(bytes) => read += bytes,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&answer[..read])),
            }
        }
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }

    /// Reads the rest of the current line of the answer.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(char::from(byte[0]));
        }
        line
    }

    /// Reads `bytes` bytes of the answer.
    pub(crate) fn bytes(&mut self, bytes: usize) -> String {
        let mut read = vec![0; bytes];
        self.0.read_exact(&mut read).unwrap();
        String::from_utf8(read).unwrap()
    }

    /// Reads until the server closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Reads until the server closes the connection, which it may do before it has read all input.
    pub(crate) fn rest_until_closed(&mut self) -> String {
        String::from_utf8(self.bytes_until_closed()).unwrap()
    }

    /// Reads bytes like [`Self::rest_until_closed`].
    pub(crate) fn bytes_until_closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => rest,
        }
    }

    /// Sends a request and checks that the answer is `expected`.
    #[track_caller]
    pub(crate) fn check(&mut self, sent: &str, expected: &str) {
        self.send(sent.as_bytes());
        self.expect(expected);
    }
}
