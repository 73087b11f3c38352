//! Targets for whole listeners: the answers to arbitrary input.
//!
//! The answers must depend only on the bytes a client sent. They must not depend on how the network
//! cut the bytes into pieces, on how full buffers were, or on where an answer was too long to be
//! sent at once. Each target sends the same bytes to new listeners in several ways and compares the
//! answers. Other properties of a conversation are checked by [`InMemoryClient::send`]. Listeners
//! are small, so that their limits are reached: of a value, of a partition, and of the answers sent
//! at once. Half of the keys are fetched from a backend that fails for some of them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use sherwood_cache::{Cache, Options, Partition};
use sherwood_listener::{
    Clock, ConnectionLimit, FetchFailure, InMemoryClient, ListenerOptions, ManualClock, Moment, Routing,
    Service, StoreChange, StoreFailure, Target, UserRoutes,
};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

#[path = "../../crates/listener/tests/common/fake.rs"]
#[allow(dead_code, reason = "changes are observed elsewhere")]
mod fake;

use crate::stream::{Target as Function, expanded, ways_to_cut};

use fake::{FakeBackends, Fetched, Stored, now};

/// Every fuzz target for a listener with its name, which is also the name of its folder below
/// `fuzz/corpus`.
pub const TARGETS: [(&str, Function); 3] = [
    ("memcached_conversation", memcached_conversation),
    ("memcached_binary_conversation", memcached_binary_conversation),
    ("redis_conversation", redis_conversation),
];

/// Longest value in bytes that the listeners store; repeated words exceed it.
const ITEM_BYTES_MAX: u32 = 300;
/// Most bytes of answers that the listeners send at once: less than a value.
const OUTPUT_BYTES_MAX: usize = 200;
/// Bytes of the listeners' two partitions together: room for some thousand small items.
const TOTAL_BYTES: u64 = 1 << 20;

/// Sends `input` to memcached listeners, as text and meta commands.
///
/// # Panics
/// When a conversation violates its contract.
pub fn memcached_conversation(input: &[u8]) {
    same_however_cut(&expanded(input), memcached);
}

/// Sends `input` to memcached listeners, as frames of the binary protocol: see [`frames`].
///
/// # Panics
/// When a conversation violates its contract.
pub fn memcached_binary_conversation(input: &[u8]) {
    same_however_cut(&frames(input), memcached);
}

/// Sends `input` to Redis listeners, as commands in both versions of RESP.
///
/// # Panics
/// When a conversation violates its contract.
pub fn redis_conversation(input: &[u8]) {
    same_however_cut(&expanded(input), redis);
}

/// Makes frames of `input`, so that most of what a fuzzer tries has lengths that agree. Four bytes
/// make a frame: its command, the length of its extras, its key and the length of its value. The
/// key is a letter with a number, or of any length; `0xfe` as command is followed by a byte of its
/// own instead.
#[must_use]
pub fn frames(input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut rest = input;
    while let [opcode, extras, name, value, after @ ..] = rest {
        rest = after;
        if *opcode == 0xfe {
            stream.push(*extras);
            continue;
        }
        let extras: usize = [0, 4, 8, 20, 0, 8, 3, 0][usize::from(extras % 8)];
        let letter = char::from([b'a', b'k', b'w', b'k'][usize::from(name % 4)]);
        let key = match name {
            0 => String::new(),
            255 => "x".repeat(usize::from(*value)),
            name => format!("{letter}{}", name / 4),
        };
        let value = "5".repeat(if *value < 200 { usize::from(value / 8) } else { 2 * usize::from(*value) });
        let body = (extras + key.len() + value.len()) as u32;
        stream.extend([0x80, *opcode, 0, key.len() as u8, extras as u8, 0, 0, 0]);
        stream.extend(body.to_be_bytes());
        stream.extend([*opcode; 4]);
        // One frame in eight has a CAS.
        stream.extend(u64::from(if name % 8 == 7 { name % 3 } else { 0 }).to_be_bytes());
        stream.extend(std::iter::repeat_n(0, extras));
        stream.extend(key.bytes());
        stream.extend(value.bytes());
    }
    stream
}

/// Creates the client of a new memcached listener.
#[must_use]
pub fn memcached(clock: Arc<dyn Clock>) -> InMemoryClient {
    InMemoryClient::memcached(options(), service(), clock)
}

/// Creates the client of a new Redis listener.
#[must_use]
pub fn redis(clock: Arc<dyn Clock>) -> InMemoryClient {
    InMemoryClient::redis(options(), service(), clock, 1)
}

/// Creates a clock that stands still.
#[must_use]
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new(Instant::from_secs(1), Duration::from_secs(1_800_000_000)))
}

fn same_however_cut(stream: &[u8], open: fn(Arc<dyn Clock>) -> InMemoryClient) {
    let clock = clock();
    let moment = clock.moment();
    let [whole, others @ ..] = ways_to_cut(stream);
    let whole = answers(&whole, moment, open(Arc::clone(&clock)));
    for pieces in others {
        let other = answers(&pieces, moment, open(Arc::clone(&clock)));
        let at = other.iter().zip(&whole).take_while(|(one, other)| one == other).count();
        assert!(
            other == whole,
            "{} pieces are answered {:?}…, and all at once {:?}…, after {at} bytes that are the same",
            pieces.len(),
            shown(&other[at..]),
            shown(&whole[at..])
        );
    }
}

/// Returns all answers to `pieces` of input, followed by whether the connection was closed. Time
/// stands still.
#[must_use]
pub fn answers(pieces: &[&[u8]], moment: Moment, mut client: InMemoryClient) -> Vec<u8> {
    let mut answers: Vec<u8> = pieces.iter().flat_map(|piece| client.send(moment, piece)).collect();
    answers.extend_from_slice(if client.is_closed() { b"(closed)" } else { b"" });
    answers
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}

fn options() -> ListenerOptions {
    ListenerOptions {
        threads: 1,
        item_size_max: ITEM_BYTES_MAX,
        output_bytes_max: OUTPUT_BYTES_MAX,
        ..ListenerOptions::default()
    }
}

fn service() -> Service {
    let options =
        Options { total_bytes: TOTAL_BYTES, item_bytes_max: ITEM_BYTES_MAX, shards: 1, ..Options::default() };
    let partitions =
        [0, 1, 2].map(|backend| Partition::new(TenantId(0), BackendId(backend), TOTAL_BYTES / 3));
    let cache = Cache::new(options, &partitions, SeededState::new(1)).expect("options that are valid");
    let target = |partition: u16| Target {
        partition: PartitionId(partition),
        tenant: TenantId(0),
        read_through: partition > 0,
        write_through: partition == 2,
        shared: false,
    };
    let prefixes = [(String::new(), target(0)), ("k".to_owned(), target(1)), ("w".to_owned(), target(2))];
    Service {
        cache: Arc::new(cache),
        routing: Routing::by_prefix(TenantId(0), prefixes).expect("prefixes that differ"),
        // They have some keys, lack others, and fail for or reject the rest.
        backends: Some(FakeBackends::new((), fetched).storing(stored).shared()),
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

fn fetched(_: &(), _: PartitionId, keys: Vec<Bytes>, _: Option<Duration>) -> Fetched {
    let answer = |key: Bytes| match key.last().map_or(0, |byte| byte % 8) {
        0 => Err(FetchFailure::Failed("broken".to_owned())),
        4 => Err(FetchFailure::Rejected { expected: Duration::from_millis(7) }),
        1 | 5 => Ok(None),
        _ => Ok(Some(key.into())),
    };
    now(keys.into_iter().map(answer).collect())
}

fn stored(_: &(), _: PartitionId, key: Bytes, _: StoreChange) -> Stored {
    let fails = key.last().is_some_and(|byte| byte % 8 == 0);
    now(if fails { Err(StoreFailure::Failed("broken\r\n".to_owned())) } else { Ok(()) })
}
