//! Conversations of Redis clients without sockets: bytes in, answers out, on a clock driven by the
//! test.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sherwood_cache::{Access, Cache, NewItem, Options, Partition};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};
use sherwood_wire::resp::client;

use super::{Redis, connection_bytes_max};
use crate::backends::{Backends, FetchFailure, StoreChange, StoreFailure};
use crate::clock::{ManualClock, Moment};
use crate::counters::Count;
use crate::fake::{FakeBackends, Fetched, Stored, now};
use crate::in_memory_client::InMemoryClient;
use crate::options::ListenerOptions;
use crate::passwords::Passwords;
use crate::routing::{Routing, Target};
use crate::shared::{ConnectionLimit, Service, Shared};
use crate::tenants::UserRoutes;

mod commands;
mod databases;
mod isolation;
mod kept;
mod locks;
mod login;
mod portions;
mod shared;
mod tenants;
mod through;
mod transactions;
mod work;

const ITEM_BYTES_MAX: u32 = 1000;

/// A Redis listener without sockets, and its clock.
struct Listener {
    redis: Redis,
    shared: Arc<Shared>,
    now: Instant,
}

impl Listener {
    fn new(cache: Arc<Cache>, routing: Routing, backends: Option<Arc<dyn Backends>>) -> Self {
        Self::asking(cache, routing, backends, None)
    }

    /// Creates a listener that requires a password, if `passwords` has any.
    fn asking(
        cache: Arc<Cache>,
        routing: Routing,
        backends: Option<Arc<dyn Backends>>,
        passwords: Option<Arc<dyn Passwords>>,
    ) -> Self {
        Self::serving(Service {
            cache,
            routing,
            backends,
            connection_limit: Arc::new(ConnectionLimit::new(9)),
            buffers: Arc::new(AtomicU64::new(0)),
            background: None,
            passwords,
            users: UserRoutes::default(),
            network: None,
            standings: None,
            times: Arc::default(),
            batches: None,
            hot_keys: None,
        })
    }

    fn serving(service: Service) -> Self {
        let options = ListenerOptions {
            threads: 1,
            item_size_max: ITEM_BYTES_MAX,
            output_bytes_max: 4096,
            ..ListenerOptions::default()
        };
        let now = Instant::from_secs(1);
        let clock = Arc::new(ManualClock::new(now, Duration::from_secs(1_800_000_000)));
        let shared = Arc::new(Shared::new(options, service, clock));
        Self { redis: Redis::new(1), shared, now }
    }

    /// Creates a look-aside listener (misses are not fetched) with one partition.
    fn plain() -> Self {
        Self::new(cache(1), Routing::single(target(0, false)), None)
    }

    fn client(&self) -> InMemoryClient {
        let bytes_max = connection_bytes_max(&self.shared.options);
        InMemoryClient::open(&self.redis, Arc::clone(&self.shared), bytes_max)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn count(&self, count: Count) -> u64 {
        self.shared.counts().get(count)
    }

    /// Returns the listener's wall time in seconds since 1970.
    fn unix_secs(&self) -> u64 {
        self.shared.clock.unix(self.now).as_secs()
    }

    /// Sends `bytes` from a client and returns the answers, up to the end of the input or the
    /// closing of the connection.
    fn send(&self, client: &mut InMemoryClient, bytes: &[u8]) -> Vec<u8> {
        let mut said = client.send(Moment { now: self.now, unix_secs: self.unix_secs() }, bytes);
        if client.is_closed() {
            said.extend_from_slice(b"(closed)");
        }
        said
    }

    /// Sends a request whose arguments are the words of `line`. Returns the answer with its line
    /// ends replaced by spaces.
    fn ask(&self, client: &mut InMemoryClient, line: &str) -> String {
        let answer = self.send(client, &request(line));
        String::from_utf8_lossy(&answer).replace("\r\n", " ").trim_end().to_owned()
    }

    #[track_caller]
    fn check(&self, client: &mut InMemoryClient, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(self.ask(client, line), *expected, "after {line:?}");
        }
    }
}

/// Encodes a request whose arguments are the words of `line`; `''` is an empty argument.
fn request(line: &str) -> Vec<u8> {
    let words: Vec<&[u8]> =
        line.split(' ').map(|word| if word == "''" { b"" } else { word.as_bytes() }).collect();
    let mut out = Vec::new();
    client::request(&mut out, &words);
    out
}

fn cache(partitions: u16) -> Arc<Cache> {
    let partition = |backend| Partition::new(TenantId(0), BackendId(backend), 1 << 20);
    let partitions: Vec<_> = (0..partitions).map(partition).collect();
    let options = Options { total_bytes: 64 << 20, item_bytes_max: ITEM_BYTES_MAX, ..Options::default() };
    Arc::new(Cache::new(options, &partitions, SeededState::new(1)).unwrap())
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

/// Backends that have a value for every key but `none`, fail for `bad`, reject `late`, and record
/// the keys requested.
type Known = FakeBackends<Requested>;

/// A log of the keys requested from backends and of the changes sent to stores.
#[derive(Default)]
struct Requested {
    asked: Mutex<Vec<String>>,
}

fn known() -> Arc<Known> {
    FakeBackends::new(Requested::default(), fetched).storing(stored).shared()
}

fn fetched(requested: &Requested, _: PartitionId, keys: Vec<Bytes>, _: Option<Duration>) -> Fetched {
    let names: Vec<String> = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    requested.asked.lock().unwrap().extend(names.iter().cloned());
    let answer = |name: String| match name.as_str() {
        "none" => Ok(None),
        "bad" => Err(FetchFailure::Failed("broken".to_owned())),
        "late" => Err(FetchFailure::Rejected { expected: Duration::from_millis(35) }),
        name => Ok(Some(Bytes::from(format!("<{name}>")).into())),
    };
    now(names.into_iter().map(answer).collect())
}

fn stored(requested: &Requested, _: PartitionId, key: Bytes, change: StoreChange) -> Stored {
    let name = String::from_utf8_lossy(&key);
    requested.asked.lock().unwrap().push(match change {
        StoreChange::Put { value, expires } => {
            let left = expires.map_or(String::new(), |at| format!(" for {:?}", at - Instant::from_secs(1)));
            format!("{name} = {}{left}", String::from_utf8_lossy(&value))
        }
        StoreChange::Delete => format!("{name} deleted"),
    });
    now(match &*name {
        "bad" => Err(StoreFailure::Failed("the store\nis down".to_owned())),
        "full" => Err(StoreFailure::Refused("try again in 2s".to_owned())),
        _ => Ok(()),
    })
}

#[test]
fn redis_value_over_the_limit_is_refused_and_removes_the_old_value() {
    let listener = Listener::plain();
    let mut client = listener.client();
    let (fits, over) = ("x".repeat(1000), "x".repeat(1001));
    listener.check(&mut client, &[(&format!("SET k {fits}"), "+OK"), ("STRLEN k", ":1000")]);
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    let grown = [("APPEND k y", refused), ("SETRANGE k 1000 y", refused), ("STRLEN k", ":1000")];
    listener.check(&mut client, &grown);
    listener.check(&mut client, &[(&format!("SET k {over} EX 10"), refused), ("EXISTS k", ":0")]);
    assert_eq!(listener.count(Count::StoreTooLarge), 1);
}

#[test]
fn malformed_redis_request_is_answered_with_an_error_and_closes() {
    let listener = Listener::plain();
    let answer = listener.send(&mut listener.client(), b"PING\r\n*1\r\nfoo\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(answer, b"+PONG\r\n-ERR Protocol error: expected '$', got 'f'\r\n(closed)");
    assert_eq!(listener.count(Count::ProtocolErrors), 1);
    let answer = listener.send(&mut listener.client(), b"QUIT\r\nPING\r\n");
    assert_eq!(answer, b"+OK\r\n(closed)");
}

#[test]
fn redis_errors_quote_the_input_up_to_the_first_zero_byte() {
    let listener = Listener::plain();
    let mut out = Vec::new();
    client::request(&mut out, &[b"no\0more", b"\xff\xe9", b"a\0b", b"c\r\nd"]);
    client::request(&mut out, &[b"CLIENT", b"\xff\0x"]);
    assert_eq!(
        listener.send(&mut listener.client(), &out),
        b"-ERR unknown command 'no', with args beginning with: '\xff\xe9' 'a' 'c  d' (commands: docs/src/redis.md of Sherwood 0.1.0)\r\n\
          -ERR unknown subcommand '\xff'. Try CLIENT HELP.\r\n"
    );
}

#[test]
fn http_request_to_redis_closes_the_connection_before_its_body_is_read() {
    let listener = Listener::plain();
    for head in [&b"POST / HTTP/1.1\r\n"[..], b"get / HTTP/1.1\r\nhost: a\r\n"] {
        let said = [head, b"\r\nSET k v\r\n"].concat();
        let answer = listener.send(&mut listener.client(), &said);
        assert!(answer.ends_with(b"(closed)"), "{}", answer.escape_ascii());
    }
    listener.check(&mut listener.client(), &[("EXISTS k", ":0")]);
    assert_eq!(listener.count(Count::ProtocolErrors), 2);
}

#[test]
fn connection_bytes_max_covers_the_longest_redis_request_and_its_answer() {
    let options = ListenerOptions::default();
    assert!(connection_bytes_max(&options) > 2 * options.item_size_max as usize);
}
