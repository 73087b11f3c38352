//! The commands of a memcached client, and the reasons to refuse a line.

use super::line::split_word;
use super::{Exptime, Meta, MetaRefusal};

/// A parsed memcached command, borrowing from the buffer it was parsed from.
///
/// With `noreply` nothing is written in answer, not even an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat` or `gats`: looks up keys; a long list of keys arrives as several of
    /// these.
    Retrieval(Retrieval<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend` or `cas`: stores a value.
    Storage(Storage<'a>),
    /// A storage command whose value is over the limit. It is answered with
    /// [`super::reply::TOO_LARGE`], and a `set` also removes the value stored before, so that no
    /// client reads it any more. The parser skips the value as it arrives.
    TooLarge {
        /// The storage operation that was refused.
        verb: StorageVerb,
        /// Key of the refused value.
        key: &'a [u8],
        /// True if no answer is written.
        noreply: bool,
    },
    /// `incr` or `decr`: changes a number.
    Arithmetic {
        /// Key of the number to change.
        key: &'a [u8],
        /// The change: an amount to add or subtract.
        delta: Delta,
        /// True if no answer is written.
        noreply: bool,
    },
    /// `touch`: changes the expiry time of an item.
    Touch {
        /// Key of the item.
        key: &'a [u8],
        /// The new expiry time of the item.
        exptime: Exptime,
        /// True if no answer is written.
        noreply: bool,
    },
    /// `delete`, with or without the obsolete delay of 0: removes an item.
    Delete {
        /// Key to remove.
        key: &'a [u8],
        /// True if no answer is written.
        noreply: bool,
    },
    /// `flush_all`: removes all items, now or later.
    FlushAll {
        /// The delay of the flush; 0 or less flushes at once.
        delay: Exptime,
        /// True if no answer is written.
        noreply: bool,
    },
    /// `stats`, with the words that follow it on its line.
    Stats(&'a [u8]),
    /// `version`: asks for the server's version.
    Version,
    /// `verbosity`, whose level has no meaning here.
    Verbosity {
        /// True if no answer is written.
        noreply: bool,
    },
    /// A meta command: `mg`, `ms`, `md`, `ma` or `me`.
    Meta(Meta<'a>),
    /// `mn`, answered with [`super::reply::META_NO_OP`], which tells the client that the quiet
    /// commands before it are done.
    MetaNoOp,
    /// `quit`: write the outstanding answers and close.
    Quit,
}

/// `get`, `gets`, `gat` or `gats`: a look-up of keys.
///
/// A key list longer than [`super::KEYS_BYTES_MAX`] arrives as several of these, all but one with
/// `last` unset; the answer is `END` after the last one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieval<'a> {
    /// The keys, in order, repetitions included. Each is 1 to 250 bytes long.
    pub keys: Keys<'a>,
    /// True if the answer contains each item's unique number or CAS (`gets`, `gats`).
    pub cas: bool,
    /// The new expiry time of the items found (`gat`, `gats`).
    pub touch: Option<Exptime>,
    /// True if these are the last keys of the list.
    pub last: bool,
}

/// The keys of a look-up, in order: an iterator over slices of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub(super) &'a [u8]);

impl<'a> Keys<'a> {
    /// Restores the keys from a copy of [`text`](Self::text), so that a key list can be set aside
    /// and continued later.
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

    /// The keys that the iterator has not returned yet, as the client wrote them.
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
    /// The storage operation, such as `set`.
    pub verb: StorageVerb,
    /// The key of the value, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client flags: a number opaque to the server; ignored by `append` and `prepend`.
    pub flags: u32,
    /// The expiry time; ignored by `append` and `prepend`.
    pub exptime: Exptime,
    /// The value, 0 bytes to the limit.
    pub value: &'a [u8],
    /// True if no answer is written.
    pub noreply: bool,
}

/// The operation of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageVerb {
    /// `set`: store unconditionally.
    Set,
    /// `add`: store if the key does not exist.
    Add,
    /// `replace`: store if the key exists.
    Replace,
    /// `append`: append to the existing value.
    Append,
    /// `prepend`: prepend to the existing value.
    Prepend,
    /// `cas`: store if the item still has this unique number (CAS).
    Cas(u64),
}

/// The change that `incr` or `decr` makes to a 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta {
    /// `incr`: add this amount; wraps around after 18,446,744,073,709,551,615.
    Increase(u64),
    /// `decr`: subtract this amount; stops at 0.
    Decrease(u64),
}

impl Delta {
    /// Returns `number` after this change, as `incr` or `decr` makes it.
    #[must_use]
    pub fn apply(self, number: u64) -> u64 {
        match self {
            Self::Increase(by) => number.wrapping_add(by),
            Self::Decrease(by) => number.saturating_sub(by),
        }
    }
}

/// The reason why bytes are not a memcached command, with memcached's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The line begins with no known command.
    Unknown,
    /// Too few words for this command, a key over 250 bytes or with a zero byte in it, or a word
    /// that is not a number or is out of range.
    BadFormat,
    /// A word after the key of a `delete` that is neither `0` nor `noreply`. Newer versions of
    /// memcached ignore such words; here a client that still sends a delay learns of it.
    BadDelete,
    /// An expiry time that is not a number.
    BadExptime,
    /// An amount of `incr` or `decr` that is not a 64-bit number.
    BadDelta,
    /// A value whose announced length is not followed by a line end.
    BadChunk,
    /// The line is an invalid meta command.
    Meta(MetaRefusal),
    /// [`super::LINE_BYTES_MAX`] bytes without a line end. The start of the next command is
    /// unknown: the connection has to be closed.
    LineTooLong,
}

impl Refusal {
    /// The line to answer, including its line end.
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
