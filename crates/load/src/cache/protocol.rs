//! What a load says and hears, in the words of each protocol.
//!
//! The protocols differ in how a get is answered. memcached sends the values that it found and a
//! word after the last; Redis answers every key in turn, after their number if more than one was
//! asked for. [`Answer`] keeps both, so that whoever counts them knows of no protocol.

use std::fmt;

use sherwood_wire::memcached::client::{self as memcached, Item, Key};
use sherwood_wire::memcached::{Exptime, StorageVerb};
use sherwood_wire::resp::{LINE_BYTES_MAX, client as redis};
use thiserror::Error;

use super::Protocol;
use super::operations::{Operation, VALUE_BYTES_MAX};

/// One answer of the target, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// One of the values that were found; others may follow, until [`Self::End`].
    Found,
    /// All that was found has come.
    End,
    /// So many [`Self::Next`] follow.
    List(usize),
    /// Whether the key next in order was found.
    Next(bool),
    /// The value was set.
    Stored,
    /// An error: the operation failed, the connection is still in step.
    Refused {
        /// What the protocol calls it, where that is not in the text.
        kind: &'static str,
        /// What the target says.
        text: &'a [u8],
    },
    /// Nothing that answers what a load asks.
    Other,
}

/// What the bytes that have come are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress<'a> {
    /// An answer, and how many bytes it took.
    Answer(Answer<'a>, usize),
    /// Not a whole answer yet: offer the bytes again once there are so many or more.
    Incomplete(usize),
}

/// Why bytes are no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum ReplyError {
    #[error(transparent)]
    Memcached(#[from] memcached::ReplyError),
    #[error(transparent)]
    Redis(#[from] redis::ReplyError),
    #[error(
        "the target announced an answer of {0} bytes; values of at most {VALUE_BYTES_MAX} are read: ask for smaller ones"
    )]
    TooLarge(usize),
}

impl Protocol {
    /// Appends a get of the operation's keys.
    pub(super) fn get(self, out: &mut Vec<u8>, operation: &Operation) {
        let keys = operation.key.split(|&byte| byte == b' ');
        match self {
            Self::Memcached => memcached::get(out, keys.map(checked)),
            Self::Redis if operation.keys == 1 => redis::get(out, &operation.key),
            Self::Redis => redis::mget(out, keys),
        }
    }

    /// Appends a set of the operation's key.
    pub(super) fn set(self, out: &mut Vec<u8>, operation: &Operation, value: &[u8]) {
        match self {
            Self::Memcached => {
                let item = Item { value, flags: 0, exptime: Exptime(0) };
                let answer = memcached::Answer::Expected;
                memcached::store(out, StorageVerb::Set, checked(&operation.key), item, answer);
            }
            Self::Redis => redis::set(out, &operation.key, value),
        }
    }

    /// Reads the first answer in `bytes`.
    pub(super) fn parse(self, bytes: &[u8]) -> Result<Progress<'_>, ReplyError> {
        let progress = match self {
            Self::Memcached => match memcached::parse(bytes, VALUE_BYTES_MAX)? {
                memcached::Progress::Reply { consumed, reply } => Progress::Answer(reply.into(), consumed),
                memcached::Progress::Incomplete { need } => Progress::Incomplete(need),
            },
            Self::Redis => match redis::parse(bytes)? {
                redis::Progress::Reply(reply, consumed) => Progress::Answer(reply.into(), consumed),
                redis::Progress::Incomplete(need) => Progress::Incomplete(need),
            },
        };
        match progress {
            Progress::Incomplete(need) if need > ANSWER_BYTES_MAX => Err(ReplyError::TooLarge(need)),
            progress => Ok(progress),
        }
    }
}

/// The largest value and the longest line before it: what a connection may have to hold at once.
const ANSWER_BYTES_MAX: usize = VALUE_BYTES_MAX as usize + LINE_BYTES_MAX;

fn checked(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).expect("workloads yield keys that can be sent")
}

impl<'a> From<memcached::Reply<'a>> for Answer<'a> {
    fn from(reply: memcached::Reply<'a>) -> Self {
        use memcached::Reply;
        match reply {
            Reply::Value { .. } => Self::Found,
            Reply::End => Self::End,
            Reply::Stored => Self::Stored,
            Reply::NotStored => Self::Refused { kind: "NOT_STORED", text: b"" },
            Reply::Error(text) => Self::Refused { kind: "ERROR", text },
            Reply::ClientError(text) => Self::Refused { kind: "CLIENT_ERROR", text },
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
            Reply::Error(text) => Self::Refused { kind: "", text },
            Reply::Simple(_) | Reply::Integer(_) => Self::Other,
        }
    }
}

/// For a sentence: what it is, or what the target says, of which at most [`TEXT_BYTES_MAX`] bytes.
impl fmt::Display for Answer<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found | Self::Next(true) => formatter.write_str("a value"),
            Self::End => formatter.write_str("an end of values"),
            Self::List(len) => write!(formatter, "a list of {len}"),
            Self::Next(false) => formatter.write_str("no value"),
            Self::Stored => formatter.write_str("that a value was set"),
            Self::Refused { kind, text } => {
                let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
                let between = if kind.is_empty() || text.is_empty() { "" } else { " " };
                write!(formatter, "`{kind}{between}{text}`")
            }
            Self::Other => formatter.write_str("what no get or set is answered with"),
        }
    }
}

/// As much of an error as is quoted: a sentence, and no page that a wrong target sends.
const TEXT_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(key: &str) -> Operation {
        let keys = key.split(' ').count() as u32;
        Operation { key: key.as_bytes().to_vec(), keys, ..Operation::default() }
    }

    fn asked(protocol: Protocol, ask: impl Fn(Protocol, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        ask(protocol, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_protocol_asks_in_its_own_words() {
        let one = |protocol: Protocol, out: &mut Vec<u8>| protocol.get(out, &operation("a"));
        let two = |protocol: Protocol, out: &mut Vec<u8>| protocol.get(out, &operation("a bc"));
        let set = |protocol: Protocol, out: &mut Vec<u8>| protocol.set(out, &operation("a"), b"vv");
        assert_eq!(asked(Protocol::Memcached, one), "get a\r\n");
        assert_eq!(asked(Protocol::Memcached, two), "get a bc\r\n");
        assert_eq!(asked(Protocol::Memcached, set), "set a 0 0 2\r\nvv\r\n");
        assert_eq!(asked(Protocol::Redis, one), "*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        assert_eq!(asked(Protocol::Redis, two), "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$2\r\nbc\r\n");
        assert_eq!(asked(Protocol::Redis, set), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nvv\r\n");
    }

    #[test]
    fn errors_are_quoted_as_the_target_words_them_and_not_at_length() {
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

    #[test]
    fn an_answer_too_large_to_hold_is_refused_when_it_is_announced() {
        let announced = format!("${}\r\n", VALUE_BYTES_MAX);
        assert!(matches!(Protocol::Redis.parse(announced.as_bytes()), Ok(Progress::Incomplete(_))));
        let announced = format!("${}\r\n", 2 * VALUE_BYTES_MAX);
        assert!(matches!(Protocol::Redis.parse(announced.as_bytes()), Err(ReplyError::TooLarge(_))));
    }
}
