//! The requests of a load and their answers, in each protocol.
//!
//! The protocols differ in the answer to a get. In memcached's text protocol it is the values found
//! and then `END`; in its binary protocol a single answer for one key, or for several keys the
//! values found and then the answer to a `noop`. Redis answers every key in order, preceded by
//! their number if there are several. [`Answer`] represents all of these, so that the code that
//! counts them is independent of the protocol.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use sherwood_wire::memcached::binary::{Status, client as binary};
use sherwood_wire::memcached::client::{self as memcached, Item, Key};
use sherwood_wire::memcached::{Exptime, StorageVerb};
use sherwood_wire::resp::{LINE_BYTES_MAX, client as redis};
use thiserror::Error;

use super::Protocol;
use super::operations::{Operation, VALUE_BYTES_MAX};

/// An answer of the cache under load, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// A value that was found; others may follow, until [`Self::End`].
    Found,
    /// The end of the values found by a get.
    End,
    /// The number of keys of a get, for each of which a [`Self::Next`] follows.
    List(usize),
    /// The answer for the next key of a get, in order; true if the key was found.
    Next(bool),
    /// The value was set.
    Stored,
    /// An error of this operation; the connection stays usable.
    Refused {
        /// The protocol's name of the error, if the text does not contain it.
        kind: &'static str,
        /// The target's text of the error.
        text: &'a [u8],
    },
    /// A key was rejected, because its answer would have come too late.
    Rejected {
        /// The target's text, which names the expected time.
        text: &'a [u8],
    },
    /// An answer to neither a get nor a set.
    Other,
}

/// The result of parsing received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress<'a> {
    /// An answer, and the bytes it takes.
    Answer(Answer<'a>, usize),
    /// The answer is incomplete: parse again once there are this many bytes or more.
    Incomplete(usize),
}

/// The reason why bytes are not an answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum ReplyError {
    #[error(transparent)]
    Memcached(#[from] memcached::ReplyError),
    #[error(transparent)]
    MemcachedBinary(#[from] binary::ReplyError),
    #[error(transparent)]
    Redis(#[from] redis::ReplyError),
}

impl Protocol {
    /// Appends a get of the operation's keys. The deadline is sent only with memcached's text
    /// protocol and for a single key.
    pub(super) fn get(self, out: &mut Vec<u8>, operation: &Operation, deadline: Option<Duration>) {
        let keys = operation.key.split(|&byte| byte == b' ');
        match (self, deadline) {
            (Self::Memcached, Some(deadline)) => {
                memcached::meta_get(out, checked(&operation.key), millis(deadline));
            }
            (Self::Memcached, None) => memcached::get(out, keys.map(checked)),
            (Self::MemcachedBinary, _) if operation.keys == 1 => {
                binary::get(out, binary_key(&operation.key), OPAQUE);
            }
            (Self::MemcachedBinary, _) => {
                keys.for_each(|key| binary::get_quietly(out, binary_key(key), OPAQUE));
                binary::no_op(out, OPAQUE);
            }
            (Self::Redis, _) if operation.keys == 1 => redis::get(out, &operation.key),
            (Self::Redis, _) => redis::mget(out, keys),
        }
    }

    /// Appends a set of the operation's key, which is read with this deadline.
    pub(super) fn set(
        self,
        out: &mut Vec<u8>,
        operation: &Operation,
        value: &[u8],
        deadline: Option<Deadline>,
    ) {
        match (self, deadline) {
            (Self::Memcached, Some(Deadline { within, missed })) => {
                memcached::meta_set(out, checked(&operation.key), value, millis(within), missed);
            }
            (Self::Memcached, None) => {
                let item = Item { value, flags: 0, exptime: Exptime(0) };
                let answer = memcached::Answer::Expected;
                memcached::store(out, StorageVerb::Set, checked(&operation.key), item, answer);
            }
            (Self::MemcachedBinary, _) => binary::set(out, binary_key(&operation.key), value, OPAQUE),
            (Self::Redis, _) => redis::set(out, &operation.key, value),
        }
    }

    /// Parses the first answer in `bytes`.
    pub(super) fn parse(self, bytes: &[u8]) -> Result<Progress<'_>, ReplyError> {
        Ok(match self {
            Self::Memcached => match memcached::parse(bytes, VALUE_BYTES_MAX)? {
                memcached::Progress::Reply { consumed, reply } => Progress::Answer(reply.into(), consumed),
                memcached::Progress::Incomplete { need } => Progress::Incomplete(need),
            },
            Self::MemcachedBinary => match binary::parse(bytes, VALUE_BYTES_MAX)? {
                binary::Progress::Reply { consumed, reply } => Progress::Answer(reply.into(), consumed),
                binary::Progress::Incomplete { need } => Progress::Incomplete(need),
            },
            Self::Redis => match redis::parse(bytes)? {
                redis::Progress::Reply(reply, consumed) => Progress::Answer(reply.into(), consumed),
                redis::Progress::Incomplete(need) => Progress::Incomplete(need),
            },
        })
    }
}

/// The opaque id by which a client can match responses to requests; unused here, because responses
/// are matched by their order.
const OPAQUE: [u8; 4] = [0; 4];

/// Most bytes of one answer that are held: the largest value and the longest line before it.
pub(super) const ANSWER_BYTES_MAX: usize = VALUE_BYTES_MAX as usize + LINE_BYTES_MAX;

/// The deadline with which the key of a set is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) within: Duration,
    /// True if the set follows a miss that has taken longer.
    pub(super) missed: bool,
}

/// Returns a deadline in whole milliseconds, rounded up.
fn millis(deadline: Duration) -> u64 {
    deadline.as_nanos().div_ceil(1_000_000) as u64
}

fn checked(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).expect("workloads yield keys that can be sent")
}

fn binary_key(bytes: &[u8]) -> binary::Key<'_> {
    binary::Key::new(bytes).expect("workloads yield keys that can be sent")
}

impl<'a> From<binary::Reply<'a>> for Answer<'a> {
    fn from(reply: binary::Reply<'a>) -> Self {
        use binary::Reply;
        match reply {
            Reply::Value { quiet: true, .. } => Self::Found,
            Reply::Value { quiet: false, .. } => Self::Next(true),
            Reply::NotFound => Self::Next(false),
            Reply::NoOp => Self::End,
            Reply::Done => Self::Stored,
            Reply::Error { status: TEMPORARY_FAILURE, text } => Self::Rejected { text },
            Reply::Error { text, .. } => Self::Refused { kind: "", text },
        }
    }
}

/// The response status of a key that was rejected.
const TEMPORARY_FAILURE: u16 = Status::TemporaryFailure as u16;

impl<'a> From<memcached::Reply<'a>> for Answer<'a> {
    fn from(reply: memcached::Reply<'a>) -> Self {
        use memcached::Reply;
        match reply {
            Reply::Value { .. } => Self::Found,
            Reply::End => Self::End,
            Reply::MetaValue { .. } => Self::Next(true),
            Reply::MetaMiss => Self::Next(false),
            Reply::Stored | Reply::MetaDone => Self::Stored,
            Reply::NotStored => Self::Refused { kind: "NOT_STORED", text: b"" },
            Reply::Error(text) => Self::Refused { kind: "ERROR", text },
            Reply::ClientError(text) => Self::Refused { kind: "CLIENT_ERROR", text },
            Reply::ServerError(text) if text.starts_with(b"rejected: ") => Self::Rejected { text },
            Reply::ServerError(text) => Self::Refused { kind: "SERVER_ERROR", text },
            _ => Self::Other,
        }
    }
}

impl<'a> From<redis::Reply<'a>> for Answer<'a> {
    fn from(reply: redis::Reply<'a>) -> Self {
        use redis::Reply;
        match reply {
            Reply::Bulk(_) => Self::Next(true),
            Reply::Null => Self::Next(false),
            Reply::Array(len) => Self::List(len),
            Reply::Simple(b"OK") => Self::Stored,
            Reply::Error(text) if text.starts_with(b"REJECTED ") => Self::Rejected { text },
            Reply::Error(text) => Self::Refused { kind: "", text },
            Reply::Simple(_) | Reply::Integer(_) => Self::Other,
        }
    }
}

/// Describes the answer, for a sentence. A refusal is quoted, at most [`TEXT_BYTES_MAX`] bytes of
/// it.
impl fmt::Display for Answer<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found | Self::Next(true) => formatter.write_str("a value"),
            Self::End => formatter.write_str("an end of values"),
            Self::List(len) => write!(formatter, "a list of {len}"),
            Self::Next(false) => formatter.write_str("no value"),
            Self::Stored => formatter.write_str("that a value was set"),
            Self::Refused { kind, text } => {
                let text = quoted(text);
                let between = if kind.is_empty() || text.is_empty() { "" } else { " " };
                write!(formatter, "`{kind}{between}{text}`")
            }
            Self::Rejected { text } => write!(formatter, "`{}`", quoted(text)),
            Self::Other => formatter.write_str("what no get or set is answered with"),
        }
    }
}

fn quoted(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)])
}

/// Most bytes of an error text that are quoted: enough for a sentence, and less than an HTML page
/// from a wrong target.
const TEXT_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(key: &str) -> Operation {
        let keys = key.split(' ').count() as u32;
        Operation { key: key.as_bytes().to_vec(), keys, ..Operation::default() }
    }

    fn encoded(protocol: Protocol, ask: impl Fn(Protocol, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        ask(protocol, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn gets_and_sets_are_encoded_in_each_protocol() {
        let one = |protocol: Protocol, out: &mut Vec<u8>| protocol.get(out, &operation("a"), None);
        let two = |protocol: Protocol, out: &mut Vec<u8>| protocol.get(out, &operation("a bc"), None);
        let set = |protocol: Protocol, out: &mut Vec<u8>| protocol.set(out, &operation("a"), b"vv", None);
        assert_eq!(encoded(Protocol::Memcached, one), "get a\r\n");
        assert_eq!(encoded(Protocol::Memcached, two), "get a bc\r\n");
        assert_eq!(encoded(Protocol::Memcached, set), "set a 0 0 2\r\nvv\r\n");
        let within = Some(Duration::from_micros(2_001));
        let due = |protocol: Protocol, out: &mut Vec<u8>| protocol.get(out, &operation("a"), within);
        assert_eq!(encoded(Protocol::Memcached, due), "mg a v U3\r\n");
        for (missed, expected) in [(false, "ms a 2 U3\r\nvv\r\n"), (true, "ms a 2 U3 d\r\nvv\r\n")] {
            let deadline = within.map(|within| Deadline { within, missed });
            let due = |protocol: Protocol, out: &mut Vec<u8>| {
                protocol.set(out, &operation("a"), b"vv", deadline);
            };
            assert_eq!(encoded(Protocol::Memcached, due), expected);
        }
        let binary = |ask: &dyn Fn(Protocol, &mut Vec<u8>)| {
            let mut out = Vec::new();
            ask(Protocol::MemcachedBinary, &mut out);
            out
        };
        let (get, quiet, no_op) = ([0x80, 0x00, 0, 1], [0x80, 0x09, 0, 2], [0x80, 0x0a, 0, 0]);
        assert!(binary(&one).starts_with(&get) && binary(&one).len() == 25);
        let two_binary = binary(&two);
        assert!(
            two_binary[25..].starts_with(&quiet) && two_binary[51..].starts_with(&no_op),
            "{two_binary:?}"
        );
        assert!(binary(&set).ends_with(b"avv"));
        assert_eq!(encoded(Protocol::Redis, one), "*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        assert_eq!(encoded(Protocol::Redis, two), "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$2\r\nbc\r\n");
        assert_eq!(encoded(Protocol::Redis, set), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nvv\r\n");
    }

    #[test]
    fn errors_of_the_target_are_quoted_verbatim_up_to_a_bound() {
        for (protocol, bytes, quoted) in [
            (Protocol::Memcached, &b"ERROR\r\n"[..], "`ERROR`"),
            (Protocol::Memcached, b"SERVER_ERROR out of memory\r\n", "`SERVER_ERROR out of memory`"),
            (Protocol::Redis, b"-NOAUTH Authentication required.\r\n", "`NOAUTH Authentication required.`"),
        ] {
            let Ok(Progress::Answer(answer, consumed)) = protocol.parse(bytes) else { panic!("{quoted}") };
            assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
            assert_eq!((answer.to_string().as_str(), consumed), (quoted, bytes.len()));
        }
        let long = Answer::Refused { kind: "", text: &[b'x'; 10_000] };
        assert_eq!(long.to_string().len(), TEXT_BYTES_MAX + 2);
    }
}
