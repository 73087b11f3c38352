//! Tests of connections that Redis and memcached end while they are kept: idle ones, by an
//! operator, by a restart and after a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Instant;

use sherwood_store::{MemcachedOptions, RedisOptions, RemoteOptions, Store, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::{START_TIMEOUT, Server};
use crate::{keys, label, opened, value, values};

/// Returns options with a few connections, so that several of them end at once.
fn remote() -> RemoteOptions {
    RemoteOptions { connections_max: 3, ..RemoteOptions::default() }
}

fn redis(address: String) -> Arc<dyn Store> {
    opened(StoreOptions::Redis(RedisOptions { remote: remote(), ..RedisOptions::new(address) }))
}

fn memcached(address: String) -> Arc<dyn Store> {
    opened(StoreOptions::Memcached(MemcachedOptions { remote: remote(), ..MemcachedOptions::new(address) }))
}

/// A connection of an operator.
pub(crate) struct Operator(TcpStream);

impl Operator {
    pub(crate) async fn at(server: &Server) -> Self {
        Self(TcpStream::connect(server.address()).await.unwrap())
    }

    /// Sends a command and returns its answer up to `end`.
    pub(crate) async fn say(&mut self, command: &str, end: &str) -> String {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut said = String::new();
        while !said.ends_with(end) {
            let mut bytes = [0; 4096];
            let count = self.0.read(&mut bytes).await.unwrap();
            assert!(count > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        said
    }
}

/// Reads from all connections of `store` at once; no read may fail.
async fn read_at_once(store: &Arc<dyn Store>) {
    let many: Vec<&str> = ["k"; 12].into();
    let (a, b, c) = tokio::join!(values(store, &many), values(store, &many), values(store, &many));
    for found in [a, b, c].concat() {
        assert_eq!(found.as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn no_read_fails_when_an_operator_kills_all_redis_connections() {
    let server = Server::redis(&[]);
    let (store, mut operator) = (redis(server.address()), Operator::at(&server).await);
    store.put("k".into(), "1".into()).await.unwrap();
    for _ in 0..100 {
        read_at_once(&store).await;
        operator.say("CLIENT KILL TYPE normal SKIPME yes", "\r\n").await;
    }
    read_at_once(&store).await;
}

#[tokio::test]
async fn no_read_fails_when_redis_closes_idle_connections() {
    let server = Server::redis(&["--timeout", "1"]);
    let (store, mut operator) = (redis(server.address()), Operator::at(&server).await);
    store.put("k".into(), "1".into()).await.unwrap();
    read_at_once(&store).await;
    let start = Instant::now();
    while !operator.say("INFO clients", "\r\n").await.contains("connected_clients:1\r\n") {
        assert!(start.elapsed() < START_TIMEOUT, "idle connections stay open");
    }
    read_at_once(&store).await;
}

#[tokio::test]
async fn no_read_fails_when_memcached_closes_idle_connections() {
    let server = Server::memcached(|_| vec!["-o".into(), "idle_timeout=1".into()]);
    let (store, mut operator) = (memcached(server.address()), Operator::at(&server).await);
    store.put("k".into(), "1".into()).await.unwrap();
    read_at_once(&store).await;
    let start = Instant::now();
    while operator.say("stats", "END\r\n").await.contains("STAT idle_kicks 0\r\n") {
        assert!(start.elapsed() < START_TIMEOUT, "idle connections stay open");
    }
    read_at_once(&store).await;
}

/// Reads and writes while the server is killed and started again without data: each read has its
/// value, none, or a connection error.
async fn restarted_while_calls_run(mut server: Server, store: Arc<dyn Store>) {
    store.put("k".into(), "1".into()).await.unwrap();
    let calls = (0..4).map(|client: usize| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut failed = 0;
            for call in 0.. {
                if client == 0 {
                    let written = label(store.put("other".into(), "2".into()).await);
                    assert!(["none", "reset", "unreachable", "busy"].contains(&written), "{written}");
                }
                match store.get_many(keys(&["k", "other"])).await {
                    Ok(found) => {
                        let text = |at: usize| found[at].as_ref().map(|found| found.value.to_vec());
                        assert!(text(0).is_none_or(|value| value == b"1"));
                        assert!(text(1).is_none_or(|value| value == b"2"));
                        if failed > 0 && text(0).is_none() {
                            return call;
                        }
                    }
                    Err(error) => {
                        let cause = error.cause().label();
                        assert!(["reset", "unreachable", "busy"].contains(&cause), "{error}");
                        failed += 1;
                        tokio::task::yield_now().await;
                    }
                }
            }
            unreachable!("it returns")
        })
    });
    let calls: Vec<_> = calls.collect();
    let restart = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
        server
    });
    let _server = restart.await.unwrap();
    for call in calls {
        tokio::time::timeout(START_TIMEOUT, call).await.expect("the server is reached again").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_during_a_restart_of_redis_get_their_own_answer_or_an_error() {
    let server = Server::redis(&[]);
    let store = redis(server.address());
    restarted_while_calls_run(server, store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_during_a_restart_of_memcached_get_their_own_answer_or_an_error() {
    let server = Server::memcached(|_| Vec::new());
    let store = memcached(server.address());
    restarted_while_calls_run(server, store).await;
}

/// Starts a forwarder to a port that may change, like the address behind a DNS name. Existing
/// connections stay with their server. Returns its address.
async fn name_of(port: Arc<AtomicU16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(("127.0.0.1", port.load(Relaxed))).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    address
}

#[tokio::test]
async fn connection_to_a_demoted_redis_primary_is_replaced_after_one_refused_write() {
    let (old, new) = (Server::redis(&[]), Server::redis(&[]));
    let port = Arc::new(AtomicU16::new(old.port));
    let store = redis(name_of(Arc::clone(&port)).await);
    store.put("k".into(), "1".into()).await.unwrap();
    Operator::at(&old).await.say(&format!("REPLICAOF 127.0.0.1 {}", new.port), "\r\n").await;
    port.store(new.port, Relaxed);
    assert_eq!(label(store.put("k".into(), "2".into()).await), "wrong_server");
    store.put("k".into(), "3".into()).await.unwrap();
    assert_eq!(value(&store, "k").await.as_deref(), Some("3"));
    assert_eq!(value(&redis(new.address()), "k").await.as_deref(), Some("3"));
}
