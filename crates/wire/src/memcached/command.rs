//! What a client can ask for, and why a line is not one of these.

use super::line::split_word;
use super::{Exptime, Meta, MetaRefusal};

/// One command, borrowing from the buffer it was parsed from.
///
/// `noreply` means that nothing is written in answer, not even an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`, or a piece of one.
    Retrieval(Retrieval<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Storage(Storage<'a>),
    /// A storage command whose value is over the limit. It is answered with
    /// [`super::reply::TOO_LARGE`], and a `set` also removes what was stored before, so that nobody
    /// goes on reading it. The parser skips the value as it arrives.
    TooLarge {
        /// What was to be done.
        verb: StorageVerb,
        /// Key of the refused value.
        key: &'a [u8],
        /// Whether to stay silent.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// Key of the number.
        key: &'a [u8],
        /// What to do with it.
        delta: Delta,
        /// Whether to stay silent.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Key to keep.
        key: &'a [u8],
        /// For how long from now on.
        exptime: Exptime,
        /// Whether to stay silent.
        noreply: bool,
    },
    /// `delete`, with the obsolete delay of 0 or without.
    Delete {
        /// Key to remove.
        key: &'a [u8],
        /// Whether to stay silent.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// When; 0 and less is at once.
        delay: Exptime,
        /// Whether to stay silent.
        noreply: bool,
    },
    /// `stats`, with the words that follow it.
    Stats(&'a [u8]),
    /// `version`.
    Version,
    /// `verbosity`, whose level has no meaning here.
    Verbosity {
        /// Whether to stay silent.
        noreply: bool,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(Meta<'a>),
    /// `mn`, answered with [`super::reply::META_NO_OP`]: whoever sent quiet commands before learns
    /// that they are done.
    MetaNoOp,
    /// `quit`: write what is owed and close.
    Quit,
}

/// `get`, `gets`, `gat` or `gats`: keys to find.
///
/// A key list longer than [`super::KEYS_BYTES_MAX`] arrives as several of these, all but one with
/// `last` unset; the answer is `END` after the last one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieval<'a> {
    /// The keys, in order, repetitions included. Each is 1 to 250 bytes long.
    pub keys: Keys<'a>,
    /// Whether the answer tells each item's unique number (`gets`, `gats`).
    pub cas: bool,
    /// The new expiry time of what is found (`gat`, `gats`).
    pub touch: Option<Exptime>,
    /// Whether this is the end of the key list.
    pub last: bool,
}

/// Keys of a retrieval, in order: an iterator over slices of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub(super) &'a [u8]);

impl<'a> Keys<'a> {
    /// The keys in what [`text`](Self::text) once gave, so that a key list can be put aside and
    /// gone on with later.
    ///
    /// ```
    /// use sherwood_wire::memcached::Keys;
    /// let mut keys = Keys::of(b"a b c");
    /// assert_eq!(keys.next(), Some(&b"a"[..]));
    /// let aside = keys.text().to_vec();
    /// assert!(Keys::of(&aside).eq([b"b", b"c"]));
    /// ```
    #[must_use]
    pub const fn of(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The keys that have not been taken yet, as the client wrote them.
    #[must_use]
    pub const fn text(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (key, rest) = split_word(self.0)?;
        self.0 = rest;
        Some(key)
    }
}

/// A storage command with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage<'a> {
    /// What is to be done.
    pub verb: StorageVerb,
    /// Key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// Opaque to the server; ignored by `append` and `prepend`.
    pub flags: u32,
    /// When it expires; ignored by `append` and `prepend`.
    pub exptime: Exptime,
    /// The value, 0 bytes to the limit.
    pub value: &'a [u8],
    /// Whether to stay silent.
    pub noreply: bool,
}

/// What a storage command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageVerb {
    /// Store whatever was there.
    Set,
    /// Store if nothing is there.
    Add,
    /// Store if something is there.
    Replace,
    /// Add after the value that is there.
    Append,
    /// Add before the value that is there.
    Prepend,
    /// Store if what is there still has this unique number.
    Cas(u64),
}

/// What `incr` and `decr` do to a number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Add; wraps around after 18,446,744,073,709,551,615.
    Increase(u64),
    /// Subtract; stops at 0.
    Decrease(u64),
}

impl Delta {
    /// `number` after this change.
    #[must_use]
    pub fn apply(self, number: u64) -> u64 {
        match self {
            Self::Increase(by) => number.wrapping_add(by),
            Self::Decrease(by) => number.saturating_sub(by),
        }
    }
}

/// Why bytes were not a command, with the text memcached answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such command.
    Unknown,
    /// Too few words for this command, a key over 250 bytes or with a zero byte in it, or a number
    /// that is none or does not fit.
    BadFormat,
    /// A word after the key of a `delete` that is neither `0` nor `noreply`. memcached has gone on
    /// to ignore such words; who still sends a delay is told so.
    BadDelete,
    /// An expiry time that is not a number.
    BadExptime,
    /// An amount to `incr` or `decr` by that is not a number of 64 bits.
    BadDelta,
    /// A value that is not followed by a line end where its announced length says so.
    BadChunk,
    /// Something wrong with a meta command.
    Meta(MetaRefusal),
    /// [`super::LINE_BYTES_MAX`] bytes without a line end. Where the next command begins is
    /// unknown: the connection has to be closed.
    LineTooLong,
}

impl Refusal {
    /// The line to answer, with its line end.
    #[must_use]
    pub const fn line(self) -> &'static [u8] {
        match self {
            Self::Unknown => b"ERROR\r\n",
            Self::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Self::BadDelete => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            Self::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::BadChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Self::Meta(refusal) => refusal.line(),
            Self::LineTooLong => b"CLIENT_ERROR line too long\r\n",
        }
    }
}
