//! A simulated run: a store, its clients and its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::super::simulated::{Draw, End, Faults, Network, Seen};
use super::super::{Memcached, MemcachedOptions, Redis, RedisOptions, RemoteOptions};
use super::server::{Mode, Protocol, Server, value};
use crate::{Fault, KeyAnswer, Store, StoreError};

/// Time within which every call ends: more than any server waits.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest size of a value in bytes; the value of [`LARGE`] is larger.
const VALUE_BYTES_MAX: u64 = 1 << 10;

/// Keys that always have a value, which is their value 0.
const FIXED: [&str; 3] = ["fixed", "fixed-1", "fixed-2"];
/// A key whose value is over the limit.
const LARGE: &str = "large";
/// A key that never has a value.
const ABSENT: &str = "absent";
/// Keys that are written.
const WRITTEN: [&str; 3] = ["written", "written-1", "written-2"];

/// Runs the simulation of one seed and returns the events that occurred.
///
/// # Panics
/// If an invariant does not hold.
pub(super) fn live(seed: u64, is_told: bool) -> Seen {
    runtime().block_on(run(seed, is_told))
}

/// Creates a runtime with a paused clock.
pub(super) fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

async fn run(seed: u64, is_told: bool) -> Seen {
    let mut draw = Draw::new(seed);
    let server = server(&mut draw);
    FIXED.iter().for_each(|key| server.store(key, value(key, 0)));
    server.store(LARGE, vec![b'v'; VALUE_BYTES_MAX as usize + 9]);
    let network = network(&server, &mut draw, is_told);
    let _entered = network.enter();
    let connections_max = 1 + draw.below(3) as u16;
    let world = World {
        store: store(server.protocol, connections_max, &mut draw),
        server: Arc::clone(&server),
        network: network.clone(),
        writes: AtomicUsize::new(0),
    };
    let clients = (0..=draw.below(4)).map(|_| world.client(draw.split()));
    join_all(clients.collect::<Vec<_>>()).await;
    drop(world);
    // The connections' tasks notice that.
    sleep(CALL_TIMEOUT).await;
    assert!(server.received_most() <= 1, "a write was sent {} times", server.received_most());
    let (open, open_most) = network.open();
    assert_eq!(open, 0, "connections are left");
    assert!(open_most <= connections_max.into(), "{open_most} connections, at most {connections_max}");
    network.seen()
}

pub(super) fn server(draw: &mut Draw) -> Arc<Server> {
    let protocol = draw.one_of(&[Protocol::Redis, Protocol::Memcached]);
    let mode = draw.one_of(&[Mode::Healthy, Mode::Healthy, Mode::Breaking, Mode::Refusing, Mode::Lying]);
    Arc::new(Server::new(protocol, mode, Duration::from_millis(30) + draw.ms(30)))
}

pub(super) fn network(server: &Arc<Server>, draw: &mut Draw, is_told: bool) -> Network {
    let breaks = server.mode == Mode::Breaking;
    let admit = Box::new(move |draw: &mut Draw| {
        if !breaks {
            return Some(Faults::NONE);
        }
        let most = draw.one_of(&[30, 300, 3_000]);
        let mut cut = |percent| draw.chance(percent).then(|| 1 + draw.below(most));
        let (to_client, to_server) = (cut(30), cut(30));
        let end = draw.one_of(&[End::Closed, End::Reset]);
        (!draw.chance(5)).then_some(Faults { to_client, to_server, end })
    });
    let server = Arc::clone(server);
    let serve = Box::new(move |end, draw| {
        let network = Network::of_this_thread().expect("it has entered one");
        tokio::spawn(Arc::clone(&server).serve(end, draw, network));
    });
    Network::new(draw.split(), admit, serve, is_told, false)
}

pub(super) fn store(protocol: Protocol, connections_max: u16, draw: &mut Draw) -> Box<dyn Store> {
    let remote = RemoteOptions {
        connections_max,
        value_bytes_max: VALUE_BYTES_MAX,
        answer_timeout_ms: 100,
        ..RemoteOptions::default()
    };
    match protocol {
        Protocol::Redis => {
            let (db, ttl_of_server) = (draw.one_of(&[0, 3]), draw.chance(30));
            let options = RedisOptions { db, ttl_of_server, remote, ..RedisOptions::new("simulated") };
            Box::new(Redis::open("b", &options).expect("valid options"))
        }
        Protocol::Memcached => {
            let options = MemcachedOptions { remote, ..MemcachedOptions::new("simulated") };
            Box::new(Memcached::open("b", &options).expect("valid options"))
        }
    }
}

/// A store in a run, and the server and network that it is checked against.
struct World {
    store: Box<dyn Store>,
    server: Arc<Server>,
    network: Network,
    /// Number of writes so far; it numbers values and removed keys.
    writes: AtomicUsize,
}

impl World {
    /// Makes some calls, with pauses that often end at the time when an idle connection is closed.
    async fn client(&self, mut draw: Draw) {
        for _ in 0..=draw.below(6) {
            let idle = self.server.idle.as_millis() as usize;
            let pause = draw.one_of(&[0, 0, 1, idle, idle + 1, idle + 2, idle + 3, 2 * idle]);
            sleep(Duration::from_millis(pause as u64)).await;
            match draw.below(6) {
                0 => self.put(&mut draw).await,
                1 => self.delete(&mut draw).await,
                _ => self.get(&mut draw).await,
            }
        }
    }

    /// Waits for a call, or sometimes drops it before its end and returns none.
    async fn call<T>(&self, call: impl Future<Output = T>, draw: &mut Draw) -> Option<T> {
        let is_dropped = draw.chance(10);
        let ended = timeout(if is_dropped { draw.ms(5) } else { CALL_TIMEOUT }, call).await;
        assert!(is_dropped || ended.is_ok(), "a call does not end");
        if ended.is_err() {
            self.network.note("call: dropped");
        }
        ended.ok()
    }

    async fn get(&self, draw: &mut Draw) {
        let known: Vec<&str> = FIXED.into_iter().chain(WRITTEN).chain([ABSENT, LARGE]).collect();
        // Many keys at once have a second connection opened.
        let count = draw.one_of(&[1, 1, 2, 4, 12]);
        let keys: Vec<&str> = (0..count).map(|_| draw.one_of(&known)).collect();
        let lost = self.lost();
        let call = self.store.get_each(keys.iter().map(|&key| Bytes::from_static(key.as_bytes())).collect());
        let Some(answers) = self.call(call, draw).await else { return };
        match answers {
            Ok(answers) => {
                self.network.note("read: answered");
                if self.server.mode == Mode::Healthy && self.lost() > lost {
                    self.network.note("read: sent to a connection that had ended, and answered");
                }
                assert_eq!(answers.each.len(), keys.len());
                keys.iter().zip(&answers.each).for_each(|(key, answer)| self.check(key, answer));
            }
            Err(error) => {
                self.network.note("read: failed");
                assert!(self.server.mode != Mode::Healthy, "a read failed: {error}");
            }
        }
    }

    /// Checks the answer for one key of a read.
    fn check(&self, key: &'static str, answer: &KeyAnswer) {
        match answer {
            Ok(None) => assert!(!FIXED.contains(&key) && key != LARGE, "{key} is absent"),
            Ok(Some(found)) => {
                let text = found.value.escape_ascii();
                let number = found.value.strip_prefix(format!("{key}=").as_bytes()).and_then(|rest| {
                    let digits = rest.split(|&byte| byte == b':').next()?;
                    std::str::from_utf8(digits).ok()?.parse::<usize>().ok()
                });
                let number = number.unwrap_or_else(|| panic!("{key} was answered by \"{text}\""));
                assert_eq!(found.value, value(key, number), "{key} was answered by \"{text}\"");
                assert!(!FIXED.contains(&key) || number == 0, "{key} was answered by \"{text}\"");
            }
            Err(error) => {
                let is_large = key == LARGE && error.cause().label() == "too_large";
                assert!(self.server.mode != Mode::Healthy || is_large, "{key} failed: {error}");
            }
        }
    }

    /// Returns the number of times that bytes were written to connections that had ended.
    fn lost(&self) -> u64 {
        self.network.count("client: wrote after the end")
    }

    async fn put(&self, draw: &mut Draw) {
        let (key, number) = (draw.one_of(&WRITTEN), 1 + self.writes.fetch_add(1, Relaxed));
        let value = Bytes::from(value(key, number));
        let call = self.store.put(Bytes::from_static(key.as_bytes()), value.clone());
        let result = self.call(call, draw).await;
        self.check_write(&value, result);
    }

    async fn delete(&self, draw: &mut Draw) {
        let key = Bytes::from(format!("removed-{}", self.writes.fetch_add(1, Relaxed)));
        let result = self.call(self.store.delete(key.clone()), draw).await;
        self.check_write(&key, result);
    }

    /// Checks that the result of a write agrees with what the server did.
    fn check_write(&self, name: &[u8], result: Option<Result<(), StoreError>>) {
        let done = self.server.done(name);
        match result {
            None => {}
            Some(Ok(())) => {
                assert_eq!(done, 1, "a write succeeded, but was not done");
                self.network.note("write: done");
            }
            Some(Err(error)) if error.fault() == Fault::Broken => self.network.note("write: unknown"),
            Some(Err(error)) => {
                assert_eq!(done, 0, "a write was done in spite of: {error}");
                self.network.note("write: not done");
            }
        }
    }
}
