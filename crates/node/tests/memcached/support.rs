//! A memcached listener in the test's own process, and a client that waits with a bound.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use sherwood_cache::{Cache, Options, Partition};
use sherwood_model::{BackendId, PartitionId, SeededState, TenantId};
use sherwood_node::Buffers;
use sherwood_node::clock::Clock;
use sherwood_node::listener::{
    Backends, Bound, Count, MemcachedOptions, Places, Reading, Routing, Running, Service, Target,
};
use tokio::sync::watch;

use crate::patience::PATIENCE;

/// Connections at a time where a test is not about them.
const PLACES: usize = 1024;

/// A listener on a port of its own. It ends with the test.
pub(crate) struct Server {
    running: Option<Running>,
    buffers: Arc<Buffers>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// A listener with one look-aside partition of 64 MiB.
    pub(crate) fn start(options: MemcachedOptions) -> Self {
        Self::serve(options, Routing::single(target(0, false)), None, PLACES)
    }

    /// The same with room for so many connections.
    pub(crate) fn with_places(places: usize) -> Self {
        Self::serve(options(), Routing::single(target(0, false)), None, places)
    }

    /// A listener with one partition whose misses are fetched from `backends`.
    pub(crate) fn read_through(options: MemcachedOptions, backends: Arc<dyn Backends>) -> Self {
        Self::serve(options, Routing::single(target(0, true)), Some(backends), PLACES)
    }

    fn serve(
        options: MemcachedOptions,
        routing: Routing,
        backends: Option<Arc<dyn Backends>>,
        places: usize,
    ) -> Self {
        let partition = Partition { tenant: TenantId(0), backend: BackendId(0), budget_bytes: 64 << 20 };
        let cache = Cache::new(Options::default(), &[partition], SeededState::new(1)).unwrap();
        let places = Arc::new(Places::new(places));
        let buffers = Buffers::new(1 << 30);
        let service =
            Service { cache: Arc::new(cache), routing, backends, places, buffers: Arc::clone(&buffers) };
        let (stop, stopped) = watch::channel(false);
        let bound = Bound::bind(options).unwrap();
        let running = bound.serve(service, Clock::start(), stopped).unwrap();
        Self { running: Some(running), buffers, stop }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server runs until the test ends")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running().address()
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.read().counts.get(count)
    }

    /// What the listener tells of itself.
    pub(crate) fn read(&self) -> Reading {
        self.running().meter().read().expect("it serves")
    }

    pub(crate) fn connections(&self) -> usize {
        self.read().open
    }

    /// What the buffers of threads and clients hold.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Tells the listener to stop, and does not wait for it.
    pub(crate) fn tell_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the listener has stopped.
    pub(crate) fn join(&mut self) {
        self.running.take().expect("a server is joined once").join().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tell_to_stop();
        if let Some(running) = self.running.take() {
            let ended = running.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

/// Options for a server on any free port.
pub(crate) fn options() -> MemcachedOptions {
    let bind = SocketAddr::from(([127, 0, 0, 1], 0));
    MemcachedOptions { bind, threads: 2, drain_timeout: PATIENCE, ..MemcachedOptions::default() }
}

fn target(partition: u16, read_through: bool) -> Target {
    Target { partition: PartitionId(partition), tenant: TenantId(0), read_through }
}

/// A blocking client.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Reads as many bytes as `expected` has; they have to be these.
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

    /// Reads to the end of the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Sends and reads the answer, which has to be this.
    #[track_caller]
    pub(crate) fn check(&mut self, sent: &str, expected: &str) {
        self.send(sent.as_bytes());
        self.expect(expected);
    }
}
