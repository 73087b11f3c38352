//! Tests of conversations in the binary protocol, without sockets.

mod login;
mod shared;
mod through;
mod work;

use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::{Access, Cache, NewItem};
use sherwood_model::{Instant, PartitionId};

use crate::clock::Moment;
use crate::counters::Count;
use crate::in_memory_client::InMemoryClient;
use crate::options::ListenerOptions;
use crate::routing::Routing;
use crate::shared::Service;
use crate::tests::{ITEM_BYTES_MAX, cache, clock, service, target};

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const DECREMENT: u8 = 0x06;
const QUIT: u8 = 0x07;
const FLUSH: u8 = 0x08;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;
const PREPEND: u8 = 0x0f;
const STAT: u8 = 0x10;
const SETQ: u8 = 0x11;
const ADDQ: u8 = 0x12;
const REPLACEQ: u8 = 0x13;
const DELETEQ: u8 = 0x14;
const INCREMENTQ: u8 = 0x15;
const DECREMENTQ: u8 = 0x16;
const QUITQ: u8 = 0x17;
const FLUSHQ: u8 = 0x18;
const APPENDQ: u8 = 0x19;
const PREPENDQ: u8 = 0x1a;
const VERBOSITY: u8 = 0x1b;
const TOUCH: u8 = 0x1c;
const GAT: u8 = 0x1d;
const GATQ: u8 = 0x1e;
const GATK: u8 = 0x23;
const GATKQ: u8 = 0x24;

/// A request to be sent.
#[derive(Clone, Default)]
struct Frame {
    opcode: u8,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    cas: u64,
}

fn frame(opcode: u8, key: &str) -> Frame {
    Frame { opcode, key: key.as_bytes().to_vec(), ..Frame::default() }
}

impl Frame {
    fn with(self, value: impl AsRef<[u8]>) -> Self {
        Self { value: value.as_ref().to_vec(), ..self }
    }

    fn numbers(self, numbers: &[u32]) -> Self {
        Self { extras: numbers.iter().flat_map(|number| number.to_be_bytes()).collect(), ..self }
    }

    fn cas(self, cas: u64) -> Self {
        Self { cas, ..self }
    }

    /// The bytes of the request. Its `opaque` is made of the opcode and the length of the key.
    fn bytes(&self) -> Vec<u8> {
        let Self { opcode, extras, key, value, cas } = self;
        let body = (extras.len() + key.len() + value.len()) as u32;
        let mut bytes = vec![0x80, *opcode];
        bytes.extend((key.len() as u16).to_be_bytes());
        bytes.extend([extras.len() as u8, 0, 0, 0]);
        bytes.extend(body.to_be_bytes());
        bytes.extend([0, 0, *opcode, key.len() as u8]);
        bytes.extend(cas.to_be_bytes());
        [&bytes[..], extras, key, value].concat()
    }
}

fn set(key: &str, value: &str) -> Frame {
    frame(SET, key).numbers(&[0, 0]).with(value)
}

/// A request that adds `delta` to a number, or creates it with `initial` and `expiration`.
fn count(opcode: u8, key: &str, delta: u32, initial: u32, expiration: u32) -> Frame {
    frame(opcode, key).numbers(&[0, delta, 0, initial, expiration])
}

/// A response that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reply {
    opcode: u8,
    status: u16,
    cas: u64,
    extras: Vec<u8>,
    key: String,
    value: String,
}

impl Reply {
    /// Takes the first response from `bytes`.
    fn take(bytes: &mut &[u8]) -> Self {
        let header = &bytes[..24];
        let number = |from: usize, to: usize| {
            header[from..to].iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
        };
        assert_eq!((header[0], header[5]), (0x81, 0), "{header:?}");
        assert_eq!(number(12, 15), u64::from(header[1]), "the opaque is that of the request");
        let (key, extras, body) = (number(2, 4) as usize, number(4, 5) as usize, number(8, 12) as usize);
        let (frame, rest) = bytes.split_at(24 + body);
        *bytes = rest;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            opcode: header[1],
            status: number(6, 8) as u16,
            cas: number(16, 24),
            extras: frame[24..24 + extras].to_vec(),
            key: text(&frame[24 + extras..24 + extras + key]),
            value: text(&frame[24 + extras + key..]),
        }
    }

    /// The response as text: opcode, status, extras as numbers, key and value.
    fn words(&self) -> String {
        let mut words = format!("{:02x}", self.opcode);
        if self.status != 0 {
            words += &format!(" error {:x}", self.status);
        }
        for number in self.extras.chunks(4) {
            words += &format!(" {}", number.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)));
        }
        for text in [&self.key, &self.value] {
            if !text.is_empty() {
                words += &format!(" {text}");
            }
        }
        words
    }
}

/// A client of the binary protocol without a socket.
struct Client {
    inner: InMemoryClient,
    elapsed: Duration,
}

impl Client {
    fn new(service: Service) -> Self {
        let options =
            ListenerOptions { threads: 1, item_size_max: ITEM_BYTES_MAX, ..ListenerOptions::default() };
        Self { inner: InMemoryClient::memcached(options, service, clock()), elapsed: Duration::from_secs(1) }
    }

    fn plain() -> Self {
        Self::new(service(cache(1), Routing::single(target(0)), None))
    }

    fn moment(&self) -> Moment {
        Moment { now: Instant::ZERO + self.elapsed, unix_secs: 1_800_000_000 + self.elapsed.as_secs() }
    }

    fn replies(&mut self, bytes: &[u8]) -> Vec<Reply> {
        let answer = self.inner.send(self.moment(), bytes);
        let (mut rest, mut replies) = (&answer[..], Vec::new());
        while !rest.is_empty() {
            replies.push(Reply::take(&mut rest));
        }
        replies
    }

    /// Sends all requests at once and returns the responses as [`words`](Reply::words).
    fn send(&mut self, frames: &[Frame]) -> Vec<String> {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
        let replies = self.replies(&bytes);
        let mut words: Vec<String> = replies.iter().map(Reply::words).collect();
        words.extend(self.inner.is_closed().then(|| "closed".to_owned()));
        words
    }

    #[track_caller]
    fn check(&mut self, frames: &[Frame], expected: &[&str]) {
        assert_eq!(self.send(frames), expected);
    }

    /// Returns the CAS of an item.
    fn cas_of(&mut self, key: &str) -> u64 {
        self.replies(&frame(GET, key).bytes())[0].cas
    }

    fn count(&self, count: Count) -> u64 {
        self.inner.shared.counts().get(count)
    }
}

#[test]
fn binary_get_variants_return_flags_and_value_and_the_key_if_requested() {
    let mut client = Client::plain();
    client.check(&[frame(SET, "a").numbers(&[7, 0]).with("v\r\n")], &["01"]);
    let gets = [frame(GET, "a"), frame(GETK, "a"), frame(GETQ, "a"), frame(GETKQ, "a")];
    client.check(&gets, &["00 7 v\r\n", "0c 7 a v\r\n", "09 7 v\r\n", "0d 7 a v\r\n"]);
    // Quiet ones say nothing of a missing item, and `noop` comes behind them.
    let missing = [frame(GET, "z"), frame(GETK, "z"), frame(GETQ, "z"), frame(GETKQ, "z"), frame(NOOP, "")];
    client.check(&missing, &["00 error 1 Not found", "0c error 1 z", "0a"]);
    assert_eq!((client.count(Count::GetHits), client.count(Count::GetMisses)), (4, 4));
}

#[test]
fn binary_add_fails_for_existing_items_and_replace_append_prepend_delete_for_missing_ones() {
    let mut client = Client::plain();
    let add = |key: &str| frame(ADD, key).numbers(&[1, 0]).with("x");
    let replace = |key: &str| frame(REPLACE, key).numbers(&[2, 0]).with("y");
    client.check(&[add("a"), add("a")], &["02", "02 error 2 Data exists for key."]);
    client.check(&[replace("a"), replace("b")], &["03", "03 error 1 Not found"]);
    let join = [frame(APPEND, "a").with("++"), frame(PREPEND, "a").with("--"), frame(GET, "a")];
    client.check(&join, &["0e", "0f", "00 2 --y++"]);
    let missing = [frame(APPEND, "b").with("+"), frame(PREPEND, "b").with("-")];
    client.check(&missing, &["0e error 5 Not stored.", "0f error 5 Not stored."]);
    client.check(&[frame(DELETE, "a"), frame(DELETE, "a")], &["04", "04 error 1 Not found"]);
    assert_eq!((client.count(Count::TotalItems), client.count(Count::DeleteMisses)), (4, 1));
}

#[test]
fn quiet_binary_commands_are_answered_only_if_they_fail() {
    let mut client = Client::plain();
    let stores = [
        frame(SETQ, "a").numbers(&[0, 0]).with("5"),
        frame(ADDQ, "b").numbers(&[0, 0]).with("x"),
        frame(REPLACEQ, "b").numbers(&[0, 0]).with("y"),
        frame(APPENDQ, "b").with("+"),
        frame(PREPENDQ, "b").with("-"),
        count(INCREMENTQ, "a", 3, 0, 0),
        count(DECREMENTQ, "a", 1, 0, 0),
        frame(GET, "a"),
        frame(GET, "b"),
        frame(DELETEQ, "b"),
        frame(NOOP, ""),
    ];
    client.check(&stores, &["00 0 7", "00 0 -y+", "0a"]);
    let errors = [
        frame(ADDQ, "a").numbers(&[0, 0]).with("x"),
        frame(REPLACEQ, "b").numbers(&[0, 0]).with("y"),
        frame(APPENDQ, "b").with("+"),
        count(INCREMENTQ, "b", 1, 0, u32::MAX),
        frame(DELETEQ, "b"),
    ];
    let expected = [
        "12 error 2 Data exists for key.",
        "13 error 1 Not found",
        "19 error 5 Not stored.",
        "15 error 1 Not found",
        "14 error 1 Not found",
    ];
    client.check(&errors, &expected);
    client.check(&[frame(FLUSHQ, ""), frame(GET, "a")], &["00 error 1 Not found"]);
    client.check(&[frame(QUITQ, ""), frame(NOOP, "")], &["closed"]);
}

#[test]
fn binary_command_with_a_wrong_cas_fails_and_changes_nothing() {
    let mut client = Client::plain();
    let stored = client.replies(&set("a", "x").bytes())[0].cas;
    assert!(stored != 0 && stored == client.cas_of("a"));
    for opcode in [SET, ADD, REPLACE] {
        let other = frame(opcode, "a").numbers(&[0, 0]).with("no").cas(stored + 1000);
        client.check(&[other], &[&format!("{opcode:02x} error 2 Data exists for key.")]);
        let missing = frame(opcode, "none").numbers(&[0, 0]).with("no").cas(1);
        client.check(&[missing], &[&format!("{opcode:02x} error 1 Not found")]);
    }
    let other = [
        frame(APPEND, "a").with("no").cas(stored + 1000),
        frame(DELETE, "a").cas(stored + 1000),
        frame(DELETE, "none").cas(1),
        frame(GET, "a"),
    ];
    let exists = "error 2 Data exists for key.";
    client
        .check(&other, &[&format!("0e {exists}"), &format!("04 {exists}"), "04 error 1 Not found", "00 0 x"]);
    client.check(&[set("a", "1").cas(stored)], &["01"]);
    let next = client.cas_of("a");
    client.check(&[count(INCREMENT, "a", 1, 0, 0).cas(next + 1000)], &[&format!("05 {exists}")]);
    let counted = client.replies(&count(INCREMENT, "a", 1, 0, 0).cas(next).bytes());
    assert!(counted[0].status == 0 && counted[0].cas == client.cas_of("a"), "{counted:?}");
    let last = client.cas_of("a");
    client.check(&[frame(DELETE, "a").cas(last), frame(GET, "a")], &["04", "00 error 1 Not found"]);
}

#[test]
fn binary_increment_creates_numbers_and_wraps_around_and_decrement_stops_at_zero() {
    let mut client = Client::plain();
    let number = |reply: &Reply| u64::from_str_radix(&hex(&reply.value), 16).unwrap();
    let mut counted = |frame: Frame| number(&client.replies(&frame.bytes())[0]);
    assert_eq!(counted(count(INCREMENT, "n", 5, 9, 0)), 9);
    assert_eq!(counted(count(INCREMENT, "n", 5, 9, u32::MAX)), 14);
    assert_eq!(counted(count(DECREMENT, "n", 4, 0, 0)), 10);
    assert_eq!(counted(count(DECREMENT, "n", 100, 0, 0)), 0);
    client.check(&[set("n", "18446744073709551615")], &["01"]);
    client.check(&[count(INCREMENTQ, "n", 2, 0, 0), frame(GET, "n")], &["00 0 1                   "]);
    let missing = count(INCREMENT, "z", 1, 1, u32::MAX);
    client.check(&[missing], &["05 error 1 Not found"]);
    let text = "05 error 6 Non-numeric server-side value for incr or decr";
    client.check(&[set("t", "abc"), count(INCREMENT, "t", 1, 0, 0)], &["01", text]);
    // The expiry time is that of the item created.
    client.send(&[count(INCREMENT, "soon", 0, 1, 10)]);
    client.elapsed += Duration::from_secs(11);
    client.check(&[frame(GET, "soon")], &["00 error 1 Not found"]);
}

/// Returns in hexadecimal a number from the value of a [`Reply`], which holds its bytes as text.
fn hex(value: &str) -> String {
    assert_eq!(value.len(), 8, "a small number: {value:?}");
    value.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn binary_touch_and_gat_change_the_expiry_time_of_items() {
    let mut client = Client::plain();
    let soon = |key: &str| frame(SET, key).numbers(&[3, 10]).with("x");
    client.check(&[soon("a"), soon("b"), soon("c"), soon("d")], &["01"; 4]);
    let touch = |opcode: u8, key: &str, at: u32| frame(opcode, key).numbers(&[at]);
    client.check(
        &[
            touch(TOUCH, "a", 100),
            touch(GAT, "b", 100),
            touch(GATKQ, "c", 100),
            touch(TOUCH, "z", 100),
            touch(GAT, "z", 100),
            touch(GATQ, "z", 100),
            touch(GATK, "z", 100),
        ],
        &["1c 3", "1d 3 x", "24 3 c x", "1c error 1 Not found", "1d error 1 Not found", "23 error 1 z"],
    );
    client.elapsed += Duration::from_secs(11);
    let gets = ["a", "b", "c", "d"].map(|key| frame(GET, key));
    client.check(&gets, &["00 3 x", "00 3 x", "00 3 x", "00 error 1 Not found"]);
    // A time in the past removes the item.
    client.check(&[touch(GAT, "a", 1_700_000_000), frame(GET, "a")], &["1d 3 x", "00 error 1 Not found"]);
}

#[test]
fn binary_flush_removes_all_items_at_once_or_after_the_given_delay() {
    let mut client = Client::plain();
    client.check(&[set("a", "x"), frame(FLUSH, ""), frame(GET, "a")], &["01", "08", "00 error 1 Not found"]);
    client.check(&[set("a", "x"), frame(FLUSH, "").numbers(&[10]), frame(GET, "a")], &["01", "08", "00 0 x"]);
    client.elapsed += Duration::from_secs(10);
    client.check(&[frame(GET, "a")], &["00 error 1 Not found"]);
}

#[test]
fn binary_version_verbosity_noop_stat_and_quit_are_answered() {
    let mut client = Client::plain();
    let version = format!("0b {}", crate::VERSION);
    let asked = [frame(VERSION, ""), frame(VERBOSITY, "").numbers(&[1]), frame(NOOP, "")];
    client.check(&asked, &[&version, "1b", "0a"]);
    let settings = client.send(&[frame(STAT, "settings")]);
    let limit = format!("10 item_size_max {ITEM_BYTES_MAX}");
    assert!(settings.contains(&limit) && settings.last().is_some_and(|last| last == "10"), "{settings:?}");
    client.send(&[frame(GET, "none")]);
    let general = client.send(&[frame(STAT, "")]);
    assert!(
        general.contains(&"10 get_misses 1".to_owned()) && general.last().is_some_and(|last| last == "10")
    );
    client.check(
        &[frame(STAT, "reset"), frame(STAT, "detail on"), frame(STAT, "what")],
        &["10", "10", "10 error 1 Not found"],
    );
    assert!(client.send(&[frame(STAT, "")]).contains(&"10 get_misses 0".to_owned()));
    client.check(&[frame(QUIT, ""), frame(NOOP, "")], &["07", "closed"]);
}

#[test]
fn binary_value_over_the_size_limit_is_refused_without_closing_the_connection() {
    let mut client = Client::plain();
    let large = "x".repeat(ITEM_BYTES_MAX as usize + 1);
    client.check(&[set("a", &large[1..])], &["01"]);
    let add = frame(ADD, "a").numbers(&[0, 0]).with(&large);
    client.check(&[add, frame(APPEND, "a").with("x")], &["02 error 3 Too large.", "0e error 5 Not stored."]);
    assert_eq!(client.send(&[frame(GET, "a")]).len(), 1);
    let refused = frame(SETQ, "a").numbers(&[0, 0]).with(&large);
    client.check(&[refused, frame(GET, "a")], &["11 error 3 Too large.", "00 error 1 Not found"]);
    assert_eq!(client.count(Count::StoreTooLarge), 2);
}

#[test]
fn invalid_binary_requests_close_the_connection_but_unknown_commands_do_not() {
    for (bytes, expected) in [
        (frame(0x77, "k").bytes(), &["77 error 81 Unknown command", "0a"][..]),
        (frame(GET, "").bytes(), &["00 error 4 Invalid arguments", "closed"]),
        (frame(GET, &"k".repeat(251)).bytes(), &["00 error 4 Invalid arguments", "closed"]),
        (b"get a\r\n".to_vec(), &["closed"]),
    ] {
        let mut client = Client::plain();
        client.check(&[frame(NOOP, "")], &["0a"]);
        let both = [bytes, frame(NOOP, "").bytes()].concat();
        let mut words: Vec<String> = client.replies(&both).iter().map(Reply::words).collect();
        words.extend(client.inner.is_closed().then(|| "closed".to_owned()));
        assert_eq!(words, expected);
        assert_eq!(client.count(Count::ProtocolErrors), 1);
    }
}

#[test]
fn binary_request_on_a_text_protocol_connection_is_refused() {
    let mut client = Client::plain();
    let moment = client.moment();
    client.inner.send(moment, b"version\r\n");
    let answer = client.inner.send(moment, &[&set("a", "x").bytes()[..], b"\r\n"].concat());
    assert!(answer.starts_with(b"ERROR\r\n") || answer.starts_with(b"CLIENT_ERROR"), "{answer:?}");
    assert_eq!(client.inner.send(moment, b"get a\r\n"), b"END\r\n");
}

#[test]
fn binary_keys_with_arbitrary_bytes_are_routed_by_their_prefix() {
    let targets = [("c/".to_owned(), target(0)), ("u/".to_owned(), target(1))];
    let routing = Routing::by_prefix(sherwood_model::TenantId(0), targets).unwrap();
    let cache: Arc<Cache> = cache(2);
    let mut client = Client::new(service(Arc::clone(&cache), routing, None));
    client.check(&[set("c/a \r\n\0", "x"), frame(GET, "c/a \r\n\0")], &["01", "00 0 x"]);
    let access = Access::at(Instant::from_secs(1));
    assert!(cache.peek(PartitionId(0), b"a \r\n\0", &access, |_| ()).is_some(), "the prefix is cut off");
    cache.set(PartitionId(1), b"b", NewItem::bytes(b"z"), &access).unwrap();
    let elsewhere =
        [set("x/a", "x"), frame(GET, "x/a"), frame(DELETE, "x/a"), count(INCREMENT, "x/a", 1, 0, 0)];
    let nowhere = "01 error 83 no backend for this key's prefix";
    let not_found = ["00", "04", "05"].map(|opcode| format!("{opcode} error 1 Not found"));
    client.check(&elsewhere, &[nowhere, &not_found[0], &not_found[1], &not_found[2]]);
    client.check(&[frame(GETK, "u/b")], &["0c 0 u/b z"]);
}

#[test]
fn text_and_binary_clients_share_items() {
    let service = service(cache(1), Routing::single(target(0)), None);
    let (mut binary, mut text) = (Client::new(service.clone()), crate::tests::Client::new(service));
    binary.check(&[frame(SET, "a").numbers(&[5, 0]).with("x")], &["01"]);
    text.check(&[("get a\r\n", "VALUE a 5 1\r\nx\r\nEND\r\n"), ("set b 6 0 1\r\ny\r\n", "STORED\r\n")]);
    binary.check(&[frame(GET, "b")], &["00 6 y"]);
    let unique = binary.cas_of("b");
    text.check(&[("gets b\r\n", &format!("VALUE b 6 1 {unique}\r\ny\r\nEND\r\n"))]);
}

#[test]
fn meta_command_returns_a_binary_key_in_base64() {
    let service = service(cache(1), Routing::single(target(0)), None);
    let (mut binary, mut text) = (Client::new(service.clone()), crate::tests::Client::new(service));
    binary.check(&[set("a\r\nb", "x")], &["01"]);
    text.check(&[("mg YQ0KYg== b k v\r\n", "VA 1 kYQ0KYg== b\r\nx\r\n")]);
}
