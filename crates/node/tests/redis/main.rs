//! The Redis listener on real sockets, and clients that others wrote against it.
//!
//! What becomes of a test whose client is not installed is in `programs`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use sockets, threads, processes and the machine's clock"
)]

#[path = "../common/programs.rs"]
mod programs;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::{Cache, Options, Partition};
use sherwood_model::{BackendId, PartitionId, SeededState, TenantId};
use sherwood_node::Buffers;
use sherwood_node::clock::Clock;
use sherwood_node::listener::{Bound, MemcachedOptions, Places, Routing, Running, Service, Target};
use tokio::sync::watch;

use crate::programs::{check_script, run};

/// Longest wait for anything; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A listener on a port of its own. It ends with the test.
struct Server {
    running: Option<Running>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// With one look-aside partition of 64 MiB and room for so many connections.
    fn start(places: usize) -> Self {
        let partition = Partition { tenant: TenantId(0), backend: BackendId(0), budget_bytes: 64 << 20 };
        let cache = Cache::new(Options::default(), &[partition], SeededState::new(1)).unwrap();
        let target = Target { partition: PartitionId(0), tenant: TenantId(0), read_through: false };
        let service = Service {
            cache: Arc::new(cache),
            routing: Routing::single(target),
            backends: None,
            places: Arc::new(Places::new(places)),
            buffers: Buffers::new(1 << 30),
        };
        let bind = SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let options =
            MemcachedOptions { bind, threads: 2, drain_timeout: PATIENCE, ..MemcachedOptions::default() };
        let (stop, stopped) = watch::channel(false);
        let bound = Bound::bind(options).unwrap();
        let running = bound.serve_redis(service, Clock::start(), 1, stopped).unwrap();
        Self { running: Some(running), stop }
    }

    fn address(&self) -> SocketAddr {
        self.running
            .as_ref()
            .and_then(|running| running.address().tcp())
            .expect("it runs until the test ends")
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(running) = self.running.take() {
            let ended = running.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

/// All that is sent until the connection ends.
fn rest(mut stream: TcpStream) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn a_pipeline_is_answered_in_order_and_quit_closes() {
    let server = Server::start(16);
    let mut stream = server.connect();
    stream.write_all(b"SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nGET none\r\nQUIT\r\n").unwrap();
    assert_eq!(rest(stream), "+OK\r\n$1\r\n1\r\n$-1\r\n+OK\r\n");
}

#[test]
fn bytes_that_are_no_request_are_answered_before_the_end() {
    let server = Server::start(16);
    let mut stream = server.connect();
    stream.write_all(b"*1\r\n$-1\r\nmore that nobody reads").unwrap();
    assert_eq!(rest(stream), "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = Server::start(1);
    let mut first = server.connect();
    first.write_all(b"PING\r\n").unwrap();
    first.read_exact(&mut [0; 7]).unwrap();
    assert_eq!(rest(server.connect()), "-ERR max number of clients reached\r\n");
}

#[test]
fn redis_py_works() {
    let server = Server::start(16);
    check_script("redis_smoke.py", "redis", server.address().port());
}

#[test]
fn redis_cli_and_redis_benchmark_work() {
    let remedy = "apt-get install redis-tools";
    let server = Server::start(64);
    let port = server.address().port().to_string();
    let cli = |args: &[&str]| run(Command::new("redis-cli").args(["-p", &port]).args(args), remedy);
    let Some(set) = cli(&["set", "k", "v", "ex", "100"]) else { return };
    assert_eq!(String::from_utf8_lossy(&set.stdout).trim(), "OK");
    let info = cli(&["-3", "info"]).expect("it was there a moment ago");
    assert!(String::from_utf8_lossy(&info.stdout).contains("redis_version"), "{info:?}");
    let Some(bench) = run(
        Command::new("redis-benchmark").args([
            "-p",
            &port,
            "-n",
            "1000",
            "-c",
            "8",
            "-P",
            "4",
            "-q",
            "-t",
            "ping,set,get,incr,mset",
        ]),
        remedy,
    ) else {
        return;
    };
    let said = String::from_utf8_lossy(&bench.stdout);
    assert!(bench.status.success() && said.contains("MSET (10 keys)"), "{said}");
}
