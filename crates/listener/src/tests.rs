//! Conversations of memcached clients without sockets: bytes in, answers out, on a clock driven by
//! the test.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use sherwood_cache::{Access, Cache, Eviction, NewItem, Options, Partition};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

use super::account::BufferBytes;
use super::backends::{Backends, FetchFailure, StoreChange, StoreFailure};
use super::clock::{ManualClock, Moment};
use super::conversation::{Advance, Conversation, Conversations, NextStep};
use super::counters::Count;
use super::fake::{FakeBackends, Fetched, Noted, Stored, now};
use super::fetch::FETCH_KEYS_MAX;
use super::fetch::fetch;
use super::in_memory_client::InMemoryClient;
use super::memcached::Memcached;
use super::options::ListenerOptions;
use super::output::Output;
use super::passwords::Passwords;
use super::routing::{Routing, Target};
use super::shared::{ConnectionLimit, Service, Shared};
use super::tenants::UserRoutes;

mod rounds;

mod shared;

mod tenants;

mod through;

pub(crate) mod work;

const UNIX_SECS: u64 = 1_800_000_000;
pub(super) const ITEM_BYTES_MAX: u32 = 1000;

pub(super) fn service(cache: Arc<Cache>, routing: Routing, backends: Option<Arc<dyn Backends>>) -> Service {
    Service {
        cache,
        routing,
        backends,
        connection_limit: Arc::new(ConnectionLimit::new(1)),
        buffers: Arc::new(AtomicU64::new(0)),
        background: None,
        passwords: None,
        users: UserRoutes::default(),
        network: None,
        standings: None,
        times: Arc::default(),
        batches: None,
        hot_keys: None,
    }
}

/// A `BufferBytes` with a bound on kept memory, whose counts a test can read.
pub(super) struct Bounded {
    kept_max: u64,
    kept: AtomicU64,
    buffers: AtomicU64,
    uncounted: AtomicU64,
}

impl Bounded {
    pub(super) fn new(kept_max: u64) -> Self {
        let [kept, buffers, uncounted] = [0; 3].map(AtomicU64::new);
        Self { kept_max, kept, buffers, uncounted }
    }

    /// Returns the bytes of buffers, and the sum of upper bounds of memory whose exact size is
    /// unknown.
    pub(super) fn buffers(&self) -> (u64, u64) {
        (self.buffers.load(Relaxed), self.uncounted.load(Relaxed))
    }

    /// Returns the bytes of kept memory that are taken.
    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Relaxed)
    }
}

impl BufferBytes for Bounded {
    fn add(&self, bytes: u64) {
        self.buffers.add(bytes);
    }

    fn subtract(&self, bytes: u64) {
        self.buffers.subtract(bytes);
    }

    fn add_uncounted(&self, bytes_max: u64) {
        self.uncounted.add(bytes_max);
    }

    fn subtract_uncounted(&self, bytes_max: u64) {
        self.uncounted.subtract(bytes_max);
    }

    fn take_kept(&self, bytes: u64) -> bool {
        let more = |kept: u64| kept.checked_add(bytes).filter(|&sum| sum <= self.kept_max);
        self.kept.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn return_kept(&self, bytes: u64) {
        self.kept.fetch_sub(bytes, Relaxed);
    }

    fn kept_bytes_max(&self) -> u64 {
        self.kept_max
    }
}

/// The names and passwords that a test listener accepts.
pub(super) struct Known(pub(super) &'static [(&'static str, &'static str)]);

impl Passwords for Known {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let known =
            self.0.iter().any(|(name, known)| name.as_bytes() == user && known.as_bytes() == password);
        known.then_some(TenantId(0))
    }
}

/// Creates a clock that shows a second after its origin.
pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Instant::from_secs(1), Duration::from_secs(UNIX_SECS)))
}

/// A memcached client of a listener without a socket.
pub(super) struct Client {
    inner: InMemoryClient,
    elapsed: Duration,
    on_fetch: Option<Box<dyn Fn()>>,
}

impl Client {
    pub(super) fn new(service: Service) -> Self {
        let options =
            ListenerOptions { threads: 1, item_size_max: ITEM_BYTES_MAX, ..ListenerOptions::default() };
        let inner = InMemoryClient::memcached(options, service, clock());
        Self { inner, elapsed: Duration::from_secs(1), on_fetch: None }
    }

    pub(super) fn plain() -> Self {
        Self::new(service(cache(1), Routing::single(target(0)), None))
    }

    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.elapsed
    }

    /// Sets a function that is called whenever the client's keys are fetched.
    pub(super) fn on_fetch(&mut self, what: impl Fn() + 'static) {
        self.on_fetch = Some(Box::new(what));
    }

    /// Sends `bytes` and returns the answers, up to the end of the input or the closing of the
    /// connection.
    pub(super) fn send(&mut self, bytes: &[u8]) -> String {
        let moment = Moment { now: self.now(), unix_secs: UNIX_SECS + self.elapsed.as_secs() };
        let backends = self.inner.shared.service.backends.clone();
        let mut said = self.inner.send_with(moment, bytes, |wanted| {
            self.on_fetch.iter().for_each(|what| what());
            fetch(backends.as_ref(), wanted).now_or_never().expect("fakes answer at once").results
        });
        if self.inner.is_closed() {
            said.extend_from_slice(b"(closed)");
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.elapsed += time;
    }

    pub(super) fn count(&self, count: Count) -> u64 {
        self.inner.shared.counts().get(count)
    }

    #[track_caller]
    pub(super) fn check(&mut self, table: &[(&str, &str)]) {
        for (sent, expected) in table {
            assert_eq!(self.send(sent.as_bytes()), *expected, "after {sent:?}");
        }
    }
}

pub(super) fn cache(partitions: u16) -> Arc<Cache> {
    cache_with(partitions, Options::default().eviction)
}

pub(super) fn cache_with(partitions: u16, eviction: Eviction) -> Arc<Cache> {
    let partition = |backend| Partition::new(TenantId(0), BackendId(backend), 1 << 20);
    let partitions: Vec<_> = (0..partitions).map(partition).collect();
    let options =
        Options { total_bytes: 64 << 20, item_bytes_max: ITEM_BYTES_MAX, eviction, ..Options::default() };
    Arc::new(Cache::new(options, &partitions, SeededState::new(1)).unwrap())
}

pub(super) fn target(partition: u16) -> Target {
    Target {
        partition: PartitionId(partition),
        tenant: TenantId(0),
        read_through: false,
        write_through: false,
        shared: false,
    }
}

pub(super) fn seconds(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn memcached_storage_commands_store_only_if_their_conditions_hold() {
    Client::plain().check(&[
        ("get a\r\n", "END\r\n"),
        ("set a 5 0 3\r\nabc\r\nget a\r\n", "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add b 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("replace a 6 0 1\r\ny\r\nreplace c 0 0 1\r\ny\r\n", "STORED\r\nNOT_STORED\r\n"),
        (
            "append a 9 9 2\r\n++\r\nprepend a 9 9 1\r\n-\r\nget a\r\n",
            "STORED\r\nSTORED\r\nVALUE a 6 4\r\n-y++\r\nEND\r\n",
        ),
        ("append c 0 0 1\r\nx\r\nprepend c 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ("set e 0 0 0\r\n\r\nget e\r\n", "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n"),
        ("get a b c a\r\n", "VALUE a 6 4\r\n-y++\r\nVALUE b 0 1\r\nx\r\nVALUE a 6 4\r\n-y++\r\nEND\r\n"),
        ("delete a\r\ndelete a 0\r\nget a\r\n", "DELETED\r\nNOT_FOUND\r\nEND\r\n"),
    ]);
}

#[test]
fn noreply_suppresses_every_answer_of_memcached_commands() {
    let mut client = Client::plain();
    client.check(&[
        ("set a 0 0 1 noreply\r\n5\r\nadd a 0 0 1 noreply\r\nx\r\nreplace z 0 0 1 noreply\r\nx\r\n", ""),
        ("append a 0 0 1 noreply\r\n0\r\nprepend a 0 0 1 noreply\r\n1\r\ncas a 0 0 1 0 noreply\r\nx\r\n", ""),
        ("incr a 1 noreply\r\ndecr a 3 noreply\r\nincr z 1 noreply\r\nincr a x noreply\r\n", ""),
        ("touch a 0 noreply\r\ndelete z noreply\r\nverbosity 1 noreply\r\nset b x 0 1 noreply\r\nx\r\n", ""),
        ("get a\r\n", "VALUE a 0 3\r\n148\r\nEND\r\n"),
        ("flush_all noreply\r\nget a\r\n", "END\r\n"),
    ]);
    let large = "x".repeat(ITEM_BYTES_MAX as usize + 1);
    assert_eq!(client.send(format!("set a 0 0 {} noreply\r\n{large}\r\n", large.len()).as_bytes()), "");
}

#[test]
fn incr_and_decr_change_numbers_and_refuse_other_values() {
    Client::plain().check(&[
        ("incr n 1\r\ndecr n 1\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n"),
        ("set n 7 0 2\r\n10\r\nincr n 5\r\n", "STORED\r\n15\r\n"),
        ("decr n 6\r\nget n\r\n", "9\r\nVALUE n 7 2\r\n9 \r\nEND\r\n"),
        ("incr n 91\r\nget n\r\n", "100\r\nVALUE n 7 3\r\n100\r\nEND\r\n"),
        ("decr n 200\r\nincr n 18446744073709551615\r\nincr n 2\r\n", "0\r\n18446744073709551615\r\n1\r\n"),
        (
            "set n 0 0 3\r\nabc\r\nincr n 1\r\n",
            "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        (
            "set n 0 0 0\r\n\r\nincr n 1\r\n",
            "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        (
            "set n 0 0 2\r\n-1\r\ndecr n 1\r\n",
            "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        ("set n 0 0 21\r\n000000000000000000001\r\nincr n 1\r\n", "STORED\r\n2\r\n"),
    ]);
}

#[test]
fn cas_stores_only_if_the_item_is_unchanged() {
    let mut client = Client::plain();
    let unique = |reply: &str| reply.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    client.send(b"set a 0 0 1\r\nx\r\n");
    let first = unique(&client.send(b"gets a\r\n"));
    assert_eq!(client.send(format!("cas a 3 0 1 {first}\r\ny\r\n").as_bytes()), "STORED\r\n");
    assert_eq!(client.send(format!("cas a 0 0 1 {first}\r\nz\r\n").as_bytes()), "EXISTS\r\n");
    assert_eq!(client.send(b"cas b 0 0 1 1\r\nz\r\n"), "NOT_FOUND\r\n");
    let second = client.send(b"gets a\r\n");
    assert_eq!(second, format!("VALUE a 3 1 {}\r\ny\r\nEND\r\n", unique(&second)));
    assert_eq!(
        client.send(b"touch a 0\r\ngets a\r\n"),
        format!("TOUCHED\r\n{second}"),
        "a touch changes no number"
    );
    client.send(b"set a 0 0 1\r\n1\r\n");
    let before = unique(&client.send(b"gets a\r\n"));
    client.send(b"incr a 1\r\n");
    assert_ne!(unique(&client.send(b"gets a\r\n")), before);
}

#[test]
fn items_expire_at_relative_absolute_and_past_expiry_times() {
    let mut client = Client::plain();
    let date = UNIX_SECS + 11;
    client.check(&[
        (
            "set never 0 0 1\r\nx\r\nset gone 0 -1 1\r\nx\r\nset soon 0 10 1\r\nx\r\n",
            "STORED\r\nSTORED\r\nSTORED\r\n",
        ),
        (
            &format!("set date 0 {date} 1\r\nx\r\nset past 0 {} 1\r\nx\r\n", UNIX_SECS - 9),
            "STORED\r\nSTORED\r\n",
        ),
        ("get gone past\r\nadd gone 0 1 1\r\ny\r\n", "END\r\nSTORED\r\n"),
    ]);
    client.pass(seconds(9));
    client.check(&[
        ("get gone soon date\r\n", "VALUE soon 0 1\r\nx\r\nVALUE date 0 1\r\nx\r\nEND\r\n"),
        ("touch soon 5\r\ntouch gone 5\r\n", "TOUCHED\r\nNOT_FOUND\r\n"),
    ]);
    client.pass(seconds(2));
    client.check(&[
        ("get never soon date\r\n", "VALUE never 0 1\r\nx\r\nVALUE soon 0 1\r\nx\r\nEND\r\n"),
        (
            "gat 20 soon none\r\ngat -1 never\r\n",
            "VALUE soon 0 1\r\nx\r\nEND\r\nVALUE never 0 1\r\nx\r\nEND\r\n",
        ),
    ]);
    client.pass(seconds(10));
    client.check(&[("get soon never\r\n", "VALUE soon 0 1\r\nx\r\nEND\r\n")]);
    client.pass(seconds(10));
    client.check(&[("get soon\r\n", "END\r\n")]);
}

#[test]
fn flush_all_removes_items_now_or_after_its_delay() {
    let mut client = Client::plain();
    client.check(&[
        ("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n", "STORED\r\nOK\r\nEND\r\n"),
        ("set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
        ("flush_all 10\r\nget a\r\n", "OK\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    ]);
    client.pass(seconds(10));
    client
        .check(&[("get a\r\nset a 0 0 1\r\ny\r\nget a\r\n", "END\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n")]);
}

#[test]
fn memcached_set_of_a_value_over_the_limit_is_refused_and_removes_the_old_value() {
    let mut client = Client::plain();
    let value = |bytes: usize| "x".repeat(bytes);
    let largest = ITEM_BYTES_MAX as usize;
    let send = |client: &mut Client, verb: &str, bytes: usize| {
        client.send(format!("{verb} a 0 0 {bytes}\r\n{}\r\n", value(bytes)).as_bytes())
    };
    assert_eq!(send(&mut client, "set", largest), "STORED\r\n");
    assert_eq!(send(&mut client, "add", largest + 1), "SERVER_ERROR object too large for cache\r\n");
    assert!(client.send(b"get a\r\n").starts_with("VALUE"), "an add that fails leaves what is there");
    assert_eq!(send(&mut client, "append", 1), "NOT_STORED\r\n");
    assert!(client.send(b"get a\r\n").starts_with("VALUE"));
    assert_eq!(send(&mut client, "set", largest + 1), "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.send(b"get a\r\nversion\r\n"), format!("END\r\nVERSION {}\r\n", super::VERSION));
    assert_eq!(client.count(Count::StoreTooLarge), 2);
}

#[test]
fn value_that_does_not_fit_its_partition_is_refused() {
    let partition = Partition::new(TenantId(0), BackendId(0), 200);
    let options = Options { total_bytes: 1000, ..Options::default() };
    let cache = Arc::new(Cache::new(options, &[partition], SeededState::new(1)).unwrap());
    let mut client = Client::new(service(cache, Routing::single(target(0)), None));
    let set = format!("set a 0 0 500\r\n{}\r\n", "x".repeat(500));
    client.check(&[(&set, "SERVER_ERROR out of memory storing object\r\n"), ("get a\r\n", "END\r\n")]);
    assert_eq!(client.count(Count::StoreNoMemory), 1);
}

#[test]
fn memcached_keys_are_routed_by_their_prefix() {
    let routing = Routing::by_prefix(
        TenantId(0),
        [("catalog/".to_owned(), target(0)), ("user/".to_owned(), target(1))],
    )
    .unwrap();
    let cache = cache(2);
    let mut client = Client::new(service(Arc::clone(&cache), routing, None));
    client.check(&[
        ("set catalog/a 0 0 1\r\nx\r\nset user/a 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n"),
        ("get user/a catalog/a other/a\r\n", "VALUE user/a 0 1\r\ny\r\nVALUE catalog/a 0 1\r\nx\r\nEND\r\n"),
        ("set other/a 0 0 1\r\nx\r\n", "SERVER_ERROR no backend for this key's prefix\r\n"),
        ("set other/a 0 0 1 noreply\r\nx\r\n", ""),
        (
            "delete other/a\r\nincr other/a 1\r\ntouch other/a 1\r\n",
            "NOT_FOUND\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
        ),
    ]);
    let access = Access::at(Instant::from_secs(1));
    assert!(cache.peek(PartitionId(1), b"a", &access, |_| ()).is_some(), "the prefix is cut off");
    cache.set(PartitionId(0), b"b", NewItem::bytes(b"z"), &access).unwrap();
    client.check(&[
        ("get catalog/b\r\n", "VALUE catalog/b 0 1\r\nz\r\nEND\r\n"),
        ("flush_all\r\nget catalog/a user/a\r\n", "OK\r\nEND\r\n"),
    ]);
}

#[test]
fn stats_reports_the_counters_and_can_reset_them() {
    let mut client = Client::plain();
    client.send(
        b"set a 0 0 1\r\nx\r\nget a b\r\ndelete a\r\nset c 0 0 1\r\nx\r\nincr z 1\r\nfoo\r\nme c\r\nmn\r\n",
    );
    client.pass(seconds(5));
    let stats = client.send(b"stats\r\n");
    for line in [
        "STAT pid ",
        "STAT uptime ",
        "STAT time 1800000006\r",
        "STAT version ",
        "STAT curr_connections 0\r",
        "STAT total_connections 0\r",
        "STAT cmd_get 2\r",
        "STAT cmd_set 2\r",
        "STAT cmd_meta 1\r",
        "STAT get_hits 1\r",
        "STAT get_misses 1\r",
        "STAT delete_hits 1\r",
        "STAT incr_misses 1\r",
        "STAT total_items 2\r",
        "STAT curr_items 1\r",
        "STAT limit_maxbytes 67108864\r",
        "STAT evictions 0\r",
        "STAT threads 1\r",
        "STAT protocol_errors 1\r",
    ] {
        assert!(stats.contains(line), "{line} in {stats}");
    }
    assert!(stats.ends_with("END\r\n"));
    client.check(&[
        ("stats reset\r\n", "RESET\r\n"),
        ("stats items\r\nstats nonsense\r\n", "END\r\nERROR\r\n"),
    ]);
    let stats = client.send(b"stats\r\n");
    assert!(stats.contains("STAT cmd_get 0\r") && stats.contains("STAT curr_items 1\r"), "{stats}");
    assert_eq!(client.count(Count::CmdGet), 2, "what the node reports is not reset by a client");
    let settings = client.send(b"stats settings\r\n");
    assert!(settings.contains("STAT item_size_max 1000\r\n") && settings.ends_with("END\r\n"), "{settings}");
}

#[test]
fn input_after_quit_is_not_executed() {
    Client::plain().check(&[("verbosity 1\r\nquit\r\nset a 0 0 1\r\nx\r\n", "OK\r\n(closed)")]);
}

/// Backends that have a value for every key except those that start with `no`, fail for those that
/// start with `bad`, and record the keys requested.
pub(super) type Fake = FakeBackends<Log>;

/// The calls to the backends, one per line.
#[derive(Default)]
pub(super) struct Log(Mutex<Vec<String>>);

impl Log {
    /// Returns and clears the log of calls.
    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

pub(super) fn fake() -> Arc<Fake> {
    FakeBackends::new(Log::default(), fetched).storing(stored).noting(noted).shared()
}

/// A service whose only partition other nodes cache, too, and its backends.
pub(super) fn shared_service() -> (Service, Arc<Fake>) {
    let cache = cache(1);
    let fake = FakeBackends::new(Log::default(), fetched).noting(noted).sharing(Arc::clone(&cache)).shared();
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&fake) as _);
    (service(cache, Routing::single(Target { shared: true, ..target(0) }), backends), fake)
}

fn fetched(log: &Log, partition: PartitionId, keys: Vec<Bytes>, within: Option<Duration>) -> Fetched {
    let keys: Vec<String> = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    let by = within.map_or(String::new(), |within| format!(" within {within:?}"));
    log.add(format!("fetch {} {}{by}", partition.0, keys.join(",")));
    let answer = |key: String| match key.get(..2) {
        Some("no") => Ok(None),
        Some("ba") => Err(FetchFailure::Failed("down".to_owned())),
        Some("fu") => Err(FetchFailure::Refused("try again in 2s".to_owned())),
        Some("re") => Err(FetchFailure::Rejected { expected: Duration::from_micros(35_200) }),
        _ => Ok(Some(Bytes::from(format!("<{key}>")).into())),
    };
    now(keys.into_iter().map(answer).collect())
}

fn stored(log: &Log, partition: PartitionId, key: Bytes, change: StoreChange) -> Stored {
    let name = String::from_utf8_lossy(&key);
    log.add(match change {
        StoreChange::Put { value, expires } => {
            let left = expires.map_or(String::new(), |at| format!(" for {:?}", at - Instant::from_secs(1)));
            format!("store {} {name} {}{left}", partition.0, String::from_utf8_lossy(&value))
        }
        StoreChange::Delete => format!("delete {} {name}", partition.0),
    });
    now(match name.get(..3) {
        Some("bad") => Err(StoreFailure::Failed("the store\nis down".to_owned())),
        Some("ful") => Err(StoreFailure::Refused("try again\nin 2s".to_owned())),
        _ => Ok(()),
    })
}

fn noted(log: &Log, partition: PartitionId, change: Noted<'_>) {
    log.add(match change {
        Noted::Key(key) => format!("write {} {}", partition.0, String::from_utf8_lossy(key)),
        Noted::Flush(at) => format!("flush {} at {} s", partition.0, at.as_nanos() / 1_000_000_000),
    });
}

pub(super) fn read_through() -> (Client, Arc<Fake>, Arc<Cache>) {
    let through = |partition| Target { read_through: true, ..target(partition) };
    let routes = [("a/", through(0)), ("b/", through(1)), ("aside/", target(2))];
    let routing =
        Routing::by_prefix(TenantId(0), routes.map(|(prefix, target)| (prefix.to_owned(), target))).unwrap();
    let (fake, cache) = (fake(), cache(3));
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&fake) as _);
    (Client::new(service(Arc::clone(&cache), routing, backends)), fake, cache)
}

#[test]
fn get_answers_fetched_values_in_the_order_of_the_keys() {
    let (mut client, fake, _) = read_through();
    client.send(b"set a/2 7 0 1\r\nx\r\nset aside/1 0 0 1\r\ny\r\n");
    fake.log();
    client.check(&[(
        "get a/1 b/1 a/2 aside/1 aside/2 a/no b/bad a/3 zz\r\n",
        "VALUE a/1 0 3\r\n<1>\r\nVALUE b/1 0 3\r\n<1>\r\nVALUE a/2 7 1\r\nx\r\nVALUE aside/1 0 1\r\ny\r\n\
         VALUE a/3 0 3\r\n<3>\r\nEND\r\n",
    )]);
    assert_eq!(fake.log(), ["fetch 0 1,no,3", "fetch 1 1,bad"]);
    assert_eq!((client.count(Count::Fetches), client.count(Count::FetchErrors)), (5, 1));
    assert_eq!((client.count(Count::GetHits), client.count(Count::GetMisses)), (2, 7));
}

#[test]
fn fetched_value_has_the_cas_of_the_stored_item() {
    let (mut client, _, cache) = read_through();
    client.check(&[("gets a/1\r\n", "VALUE a/1 0 3 0\r\n<1>\r\nEND\r\n")]);
    // Another value is stored meanwhile.
    let filling = FakeBackends::new(Arc::clone(&cache), |cache, partition, _, _| {
        let access = Access::at(Instant::from_secs(1));
        cache.set(partition, b"1", NewItem::bytes(b"newer"), &access).unwrap();
        now(vec![Ok(Some(Bytes::from_static(b"fetched").into()))])
    });
    let backends: Arc<dyn Backends> = filling.shared();
    let through = Target { read_through: true, ..target(0) };
    let routing = Routing::by_prefix(TenantId(0), [("a/".to_owned(), through)]).unwrap();
    let mut client = Client::new(service(Arc::clone(&cache), routing, Some(backends)));
    let filled = client.send(b"gets a/1\r\n");
    assert!(filled.ends_with("\r\nnewer\r\nEND\r\n"), "{filled}");
    let unique =
        cache.peek(PartitionId(0), b"1", &Access::at(Instant::from_secs(1)), |item| item.cas).unwrap();
    assert!(filled.starts_with(&format!("VALUE a/1 0 5 {unique}\r\n")), "{filled}");
}

#[test]
fn rejected_key_is_an_error_if_it_is_the_only_one_of_its_get_and_else_a_miss() {
    let (mut client, _, _) = read_through();
    let error = "SERVER_ERROR rejected: the answer is expected after 35.2 ms, too late\r\n";
    client.check(&[
        ("get a/reject\r\nget a/1\r\n", &format!("{error}VALUE a/1 0 3\r\n<1>\r\nEND\r\n")),
        ("gat 0 a/reject\r\n", error),
        ("get a/full\r\nmg a/full v\r\n", &"SERVER_ERROR rejected: try again in 2s\r\n".repeat(2)),
        ("get a/1 a/reject\r\n", "VALUE a/1 0 3\r\n<1>\r\nEND\r\n"),
        ("get a/reject a/reject\r\n", "END\r\n"),
    ]);
}

#[test]
fn flush_all_calls_the_flush_of_the_backends() {
    let (mut client, fake, _) = read_through();
    client.check(&[("flush_all\r\nflush_all 10\r\n", "OK\r\nOK\r\n")]);
    let log = fake.log();
    let parts = client.inner.shared.service.routing.partitions().len();
    assert_eq!(log.len(), 2 * parts, "{log:?}");
    assert!(log[..parts].iter().all(|line| line.ends_with(" at 1 s")), "{log:?}");
    assert!(log[parts..].iter().all(|line| line.ends_with(" at 11 s")), "{log:?}");
}

#[test]
fn memory_of_the_keys_of_an_unfinished_get_is_counted_until_it_ends() {
    let shared = Arc::new(Shared::new(
        ListenerOptions { threads: 1, ..ListenerOptions::default() },
        service(cache(1), Routing::single(Target { read_through: true, ..target(0) }), Some(fake())),
        clock(),
    ));
    let mut client = Memcached.open(&shared, 0);
    assert_eq!(client.kept_bytes(), 0);
    let moment = Moment { now: Instant::from_secs(1), unix_secs: UNIX_SECS };
    let line = format!("get{}\r\n", (0..200).map(|key| format!(" k{key:0200}")).collect::<String>());
    let (mut left, mut kept) = (line.as_bytes(), Vec::new());
    loop {
        let mut output = Output::default();
        let Advance { consumed, next } = client.advance(moment, left.into(), &mut output);
        left = &left[consumed..];
        kept.push(client.kept_bytes());
        match next {
            NextStep::Fetch(wanted) => client.resume(moment, vec![Ok(None); wanted.len()], &mut output),
            NextStep::Need(_) => break,
            _ => {}
        }
    }
    assert!(kept.len() > 3 && kept[0] > 64 * 200, "{kept:?}");
    assert_eq!(kept.last(), Some(&0), "{kept:?}");
}

#[test]
fn many_misses_of_a_get_are_fetched_in_rounds() {
    let (mut client, fake, _) = read_through();
    let keys: Vec<String> = (0..2 * FETCH_KEYS_MAX + 1).map(|key| format!("a/{key}")).collect();
    let answer = client.send(format!("get {}\r\n", keys.join(" ")).as_bytes());
    let answered: Vec<&str> =
        answer.lines().filter_map(|line| line.strip_prefix("VALUE ")?.split(' ').next()).collect();
    assert_eq!(answered, keys);
    assert_eq!(fake.log().len(), 3);
}

#[test]
fn every_memcached_change_of_an_item_calls_the_write_of_the_backends() {
    let (mut client, fake, _) = read_through();
    client.send(b"set a/1 0 0 1\r\n1\r\nincr a/1 1\r\nappend aside/1 0 0 1\r\nx\r\ndelete b/1\r\ntouch a/1 0\r\nget a/1\r\n");
    assert_eq!(fake.log(), ["write 0 1", "write 0 1", "write 2 1", "write 1 1"]);
    client.send(format!("set a/1 0 0 {}\r\n", ITEM_BYTES_MAX + 1).as_bytes());
    assert_eq!(fake.log(), ["write 0 1"], "a value that is too large removes the old one");
}
