//! memcached and Redis servers, each on a loopback port of its own.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sherwood_load::Pace;
use sherwood_load::cache::{Options, Protocol};

/// Longest wait for a server; reached only by a test that fails.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running cache; killed when dropped.
pub(crate) struct Cache {
    pub(crate) process: Child,
    protocol: Protocol,
    address: String,
}

/// Runs a test with each cache that is installed.
pub(crate) fn with_each(test: impl Fn(Cache)) {
    [Cache::memcached(), Cache::memcached_binary(), Cache::redis(&[])].into_iter().flatten().for_each(test);
}

impl Cache {
    /// Starts memcached; none, with a message on stderr, if it is not installed; in CI that is a
    /// failure.
    pub(crate) fn memcached() -> Option<Self> {
        Self::memcached_by(Protocol::Memcached)
    }

    /// Starts memcached like [`memcached`](Self::memcached), for load by its binary protocol.
    pub(crate) fn memcached_binary() -> Option<Self> {
        Self::memcached_by(Protocol::MemcachedBinary)
    }

    fn memcached_by(protocol: Protocol) -> Option<Self> {
        let port = free_port();
        let arguments = ["-l", "127.0.0.1", "-p", &port, "-U", "0", "-m", "64", "-t", "1", "-u", "nobody"];
        let started = Self::start("memcached", protocol, &port, &arguments);
        assert!(
            started.is_some() || std::env::var("CI").is_err(),
            "memcached is not installed: apt-get install -y memcached"
        );
        started
    }

    /// Starts the Redis server that `REDIS` names, or the one on the path; none, with a message on
    /// stderr, if there is none. The command line's tests run the same load against a node.
    pub(crate) fn redis(more: &[&str]) -> Option<Self> {
        let port = free_port();
        let arguments = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"];
        let binary = std::env::var("REDIS").unwrap_or_else(|_| "redis-server".to_owned());
        Self::start(&binary, Protocol::Redis, &port, &[&arguments, more].concat())
    }

    fn start(binary: &str, protocol: Protocol, port: &str, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(binary);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(process) = command.spawn() else {
            eprintln!("skipped: {binary} is not installed");
            return None;
        };
        let mut cache = Self { process, protocol, address: format!("127.0.0.1:{port}") };
        cache.wait();
        Some(cache)
    }

    /// Waits until the server accepts connections; panics if it ends before.
    fn wait(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(&self.address).is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "the server of {} ended: {ended:?}", self.address);
            assert!(start.elapsed() < TIMEOUT, "nothing accepts on {}", self.address);
            std::thread::yield_now();
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            protocol: self.protocol,
            address: self.address.clone(),
            pace: Pace::Closed,
            connections: 1,
            pipeline: 1,
            duration: None,
            operations_max: None,
            look_aside: true,
            deadline: None,
            tls: None,
            login: None,
            seed: 1,
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub(crate) fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}
