//! Requests and replies of a memcached client.
//!
//! Any number of commands is appended to a buffer, and the replies arrive in the same order. A
//! [`Key`] is checked once, when it is made, so that no key can contain a command.

use thiserror::Error;

use super::line::{Words, flags, unsigned, without_return};
use super::reply::decimal;
use super::{Delta, Exptime, KEY_BYTES_MAX, LINE_BYTES_MAX, StorageVerb};

/// A key that can be sent to memcached: 1 to 250 bytes, none of them a space or a control
/// character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(&'a [u8]);

/// The reason why bytes are not a [`Key`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// The key is empty, or too long: hash long keys before they are sent.
    #[error("a memcached key of {0} bytes was to be sent; it has to have 1 to {KEY_BYTES_MAX}")]
    Length(usize),
    /// The key has a byte with a meaning in the protocol: encode such keys before they are sent.
    #[error(
        "a memcached key with byte {byte:#04x} at {at} was to be sent; spaces and control characters are not allowed"
    )]
    Byte {
        /// Index of the byte in the key.
        at: usize,
        /// The byte that is not allowed.
        byte: u8,
    },
}

impl<'a> Key<'a> {
    /// Makes a key of `bytes`.
    ///
    /// # Errors
    /// When they are not 1 to 250 in number, or one is a space or a control character.
    pub fn new(bytes: &'a [u8]) -> Result<Self, KeyError> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(KeyError::Length(bytes.len()));
        }
        match bytes.iter().position(|&byte| byte <= b' ' || byte == 0x7f) {
            Some(at) => Err(KeyError::Byte { at, byte: bytes[at] }),
            None => Ok(Self(bytes)),
        }
    }

    /// The bytes of the key, which are valid in a request.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Appends `get <key>*`, answered by a [`Reply::Value`] for each key that is found, in the order of
/// the keys, then [`Reply::End`]. Without a key the server answers [`Reply::Error`].
pub fn get<'a>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = Key<'a>>) {
    keys_after(out, b"get", keys);
}

/// Appends `gets <key>*`: like [`get`], and each value is answered with its unique number (CAS).
pub fn gets<'a>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = Key<'a>>) {
    keys_after(out, b"gets", keys);
}

/// Appends `gat <exptime> <key>*`: like [`get`], and sets the expiry time of the items found.
pub fn gat<'a>(out: &mut Vec<u8>, exptime: Exptime, keys: impl IntoIterator<Item = Key<'a>>) {
    out.extend_from_slice(b"gat ");
    seconds(out, exptime);
    keys_after(out, b"", keys);
}

/// Appends `gats <exptime> <key>*`: like [`gat`], and each value is answered with its unique number
/// (CAS).
pub fn gats<'a>(out: &mut Vec<u8>, exptime: Exptime, keys: impl IntoIterator<Item = Key<'a>>) {
    out.extend_from_slice(b"gats ");
    seconds(out, exptime);
    keys_after(out, b"", keys);
}

fn keys_after<'a>(out: &mut Vec<u8>, name: &[u8], keys: impl IntoIterator<Item = Key<'a>>) {
    out.extend_from_slice(name);
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key.0);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `mg <key> v U<ms>`: a read of one key whose value is wanted within `ms` milliseconds, 1
/// to 86,400,000; flag `U` is one of our own. It is answered by [`Reply::MetaValue`] or
/// [`Reply::MetaMiss`].
pub fn meta_get(out: &mut Vec<u8>, key: Key<'_>, within_ms: u64) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key.0);
    out.extend_from_slice(b" v U");
    decimal(out, within_ms);
    out.extend_from_slice(b"\r\n");
}

/// Appends `mg <key> f t v`: a read of one item with its client flags and the time for which it
/// stays, answered by [`Reply::MetaValue`] or [`Reply::MetaMiss`].
pub fn meta_item(out: &mut Vec<u8>, key: Key<'_>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key.0);
    out.extend_from_slice(b" f t v\r\n");
}

/// Appends `mg <key>`: asks for the existence of an item, answered by [`Reply::MetaDone`] or
/// [`Reply::MetaMiss`].
pub fn meta_exists(out: &mut Vec<u8>, key: Key<'_>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key.0);
    out.extend_from_slice(b"\r\n");
}

/// Appends `ms <key> <size> U<ms>` and the value: a store of a key that is read with this deadline,
/// answered by [`Reply::MetaDone`] or an error. `missed` says that it follows a miss for which the
/// reader has waited past its deadline (flag `d`).
pub fn meta_set(out: &mut Vec<u8>, key: Key<'_>, value: &[u8], within_ms: u64, missed: bool) {
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key.0);
    out.push(b' ');
    decimal(out, value.len() as u64);
    out.extend_from_slice(b" U");
    decimal(out, within_ms);
    out.extend_from_slice(if missed { b" d\r\n" } else { b"\r\n" });
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// A value to store, with its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The bytes of the value.
    pub value: &'a [u8],
    /// The client flags: a number stored with the value, opaque to the server.
    pub flags: u32,
    /// The expiry time of the value.
    pub exptime: Exptime,
}

/// The choice whether the server answers a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server answers.
    Expected,
    /// `noreply`: the server answers neither success nor failure.
    Unwanted,
}

/// Appends a storage command, answered by [`Reply::Stored`], [`Reply::NotStored`],
/// [`Reply::Exists`], [`Reply::NotFound`] or an error.
pub fn store(out: &mut Vec<u8>, verb: StorageVerb, key: Key<'_>, item: Item<'_>, answer: Answer) {
    let (name, cas): (&[u8], _) = match verb {
        StorageVerb::Set => (b"set ", None),
        StorageVerb::Add => (b"add ", None),
        StorageVerb::Replace => (b"replace ", None),
        StorageVerb::Append => (b"append ", None),
        StorageVerb::Prepend => (b"prepend ", None),
        StorageVerb::Cas(cas) => (b"cas ", Some(cas)),
    };
    out.extend_from_slice(name);
    out.extend_from_slice(key.0);
    out.push(b' ');
    decimal(out, u64::from(item.flags));
    out.push(b' ');
    seconds(out, item.exptime);
    out.push(b' ');
    decimal(out, item.value.len() as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        decimal(out, cas);
    }
    end(out, answer);
    out.extend_from_slice(item.value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `incr` or `decr`, answered by [`Reply::Number`] or [`Reply::NotFound`].
pub fn arithmetic(out: &mut Vec<u8>, key: Key<'_>, delta: Delta, answer: Answer) {
    let (name, by): (&[u8], _) = match delta {
        Delta::Increase(by) => (b"incr ", by),
        Delta::Decrease(by) => (b"decr ", by),
    };
    out.extend_from_slice(name);
    out.extend_from_slice(key.0);
    out.push(b' ');
    decimal(out, by);
    end(out, answer);
}

/// Appends `touch`, answered by [`Reply::Touched`] or [`Reply::NotFound`].
pub fn touch(out: &mut Vec<u8>, key: Key<'_>, exptime: Exptime, answer: Answer) {
    out.extend_from_slice(b"touch ");
    out.extend_from_slice(key.0);
    out.push(b' ');
    seconds(out, exptime);
    end(out, answer);
}

/// Appends `delete`, answered by [`Reply::Deleted`] or [`Reply::NotFound`].
pub fn delete(out: &mut Vec<u8>, key: Key<'_>, answer: Answer) {
    out.extend_from_slice(b"delete ");
    out.extend_from_slice(key.0);
    end(out, answer);
}

/// Appends `flush_all <delay>`, answered by [`Reply::Ok`].
pub fn flush_all(out: &mut Vec<u8>, delay: Exptime, answer: Answer) {
    out.extend_from_slice(b"flush_all ");
    seconds(out, delay);
    end(out, answer);
}

/// Appends `stats`, answered by any number of [`Reply::Stat`] and [`Reply::End`].
pub fn stats(out: &mut Vec<u8>) {
    out.extend_from_slice(b"stats\r\n");
}

/// Appends `version`, answered by [`Reply::Version`].
pub fn version(out: &mut Vec<u8>) {
    out.extend_from_slice(b"version\r\n");
}

/// Appends `quit`, answered by the end of the connection.
pub fn quit(out: &mut Vec<u8>) {
    out.extend_from_slice(b"quit\r\n");
}

fn seconds(out: &mut Vec<u8>, exptime: Exptime) {
    out.extend_from_slice(itoa::Buffer::new().format(exptime.0).as_bytes());
}

fn end(out: &mut Vec<u8>, answer: Answer) {
    out.extend_from_slice(match answer {
        Answer::Expected => b"\r\n",
        Answer::Unwanted => b" noreply\r\n",
    });
}

/// A reply, or one line of a reply of several lines, with its value if it has one. Borrows from the
/// buffer it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// An item that was found.
    Value {
        /// The key of the item.
        key: &'a [u8],
        /// The client flags that were stored with the item.
        flags: u32,
        /// The unique number (CAS) of the item, after `gets` and `gats`.
        cas: Option<u64>,
        /// The value of the item.
        value: &'a [u8],
    },
    /// `VA`: the value that a meta command has read.
    MetaValue {
        /// The client flags of the item; 0 if they were not requested.
        flags: u32,
        /// Seconds for which the item stays; none if it does not expire, or they were not
        /// requested.
        remaining_s: Option<u64>,
        /// The value of the item.
        value: &'a [u8],
    },
    /// `EN`: a meta command has found no item.
    MetaMiss,
    /// `HD`: a meta command has succeeded, without a value.
    MetaDone,
    /// `END`: the list of values or statistics is complete.
    End,
    /// `STORED`: the value was stored.
    Stored,
    /// `NOT_STORED`: the condition of the storage command was not met.
    NotStored,
    /// `EXISTS`: the item has changed since its unique number was read.
    Exists,
    /// `NOT_FOUND`: the item does not exist.
    NotFound,
    /// `DELETED`: the item was removed.
    Deleted,
    /// `TOUCHED`: the item has its new expiry time.
    Touched,
    /// `OK`: the command succeeded.
    Ok,
    /// `RESET`: the statistics were reset.
    Reset,
    /// The result of an `incr` or `decr`.
    Number(u64),
    /// A statistic: its name and its value.
    Stat(&'a [u8], &'a [u8]),
    /// `VERSION`: the server's version.
    Version(&'a [u8]),
    /// `ERROR` with an optional text: the server does not know the command, or refuses the
    /// connection.
    Error(&'a [u8]),
    /// `CLIENT_ERROR` and its text: the request was invalid.
    ClientError(&'a [u8]),
    /// `SERVER_ERROR` and its text: the server failed.
    ServerError(&'a [u8]),
}

/// The result of [`parse`]: a reply, or that it is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The reply is incomplete: parse again once the buffer holds `need` bytes or more.
    Incomplete {
        /// Number of bytes from the start of the buffer; always more than the buffer holds.
        need: usize,
    },
    /// A reply, or one line of it, was parsed.
    Reply {
        /// Bytes of the reply at the start of the buffer. The reply borrows from them.
        consumed: usize,
        /// The parsed reply, or a line of it.
        reply: Reply<'a>,
    },
}

/// The reason why bytes are not a reply of a memcached server. The connection has to be closed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReplyError {
    /// The first line has no end within the length limit.
    #[error(
        "a memcached reply was read and has no line end in {LINE_BYTES_MAX} bytes; is the peer a memcached server?"
    )]
    LineTooLong,
    /// The first line is none that a memcached server sends.
    #[error("a memcached reply starts with {0:?}, which is none; is the peer a memcached server?")]
    Unknown(String),
    /// The announced length of a value is over the limit.
    #[error(
        "a memcached value of {bytes} bytes was announced; at most {bytes_max} are accepted: raise the limit"
    )]
    ValueTooLarge {
        /// The announced length in bytes.
        bytes: u64,
        /// The limit in bytes.
        bytes_max: u32,
    },
    /// A value whose announced length is not followed by a line end.
    #[error("a memcached value is longer or shorter than the {0} bytes announced")]
    ValueEnd(u64),
}

/// Parses the first line at the start of `buf`, with its value if it has one; values are at most
/// `value_bytes_max` long.
///
/// A buffer of `value_bytes_max` + 2,052 bytes is enough for any reply.
///
/// ```
/// use sherwood_wire::memcached::client::{Progress, Reply, parse};
/// let reply = parse(b"VALUE k 0 2\r\nab\r\nEND\r\n", 1024)?;
/// let value = Reply::Value { key: b"k", flags: 0, cas: None, value: b"ab" };
/// assert_eq!(reply, Progress::Reply { consumed: 17, reply: value });
/// assert_eq!(parse(b"VALUE k 0 2\r\na", 1024)?, Progress::Incomplete { need: 17 });
/// assert!(parse(b"HTTP/1.1 400 Bad Request\r\n", 1024).is_err());
/// # Ok::<(), sherwood_wire::memcached::client::ReplyError>(())
/// ```
///
/// # Errors
/// When the bytes are not a reply. The start of the next one is then unknown.
pub fn parse(buf: &[u8], value_bytes_max: u32) -> Result<Progress<'_>, ReplyError> {
    let window = &buf[..buf.len().min(LINE_BYTES_MAX + 1)];
    let Some(at) = memchr::memchr(b'\n', window) else {
        return match window.len() > LINE_BYTES_MAX {
            true => Err(ReplyError::LineTooLong),
            false => Ok(Progress::Incomplete { need: buf.len() + 1 }),
        };
    };
    let line = without_return(&window[..at]);
    if line.starts_with(b"VALUE ") {
        return value(line, buf, at + 1, value_bytes_max);
    }
    if line.starts_with(b"VA ") {
        return meta_value(line, buf, at + 1, value_bytes_max);
    }
    let reply = one_line(line).ok_or_else(|| unknown(line))?;
    Ok(Progress::Reply { consumed: at + 1, reply })
}

fn value<'a>(
    line: &'a [u8],
    buf: &'a [u8],
    start: usize,
    bytes_max: u32,
) -> Result<Progress<'a>, ReplyError> {
    let words = Words::of(line);
    let cas = match words.count() {
        4 => Some(None),
        5 => unsigned(words.get(4)).map(Some),
        _ => None,
    };
    let (Some(cas), Some(flags), Some(bytes)) = (cas, flags(words.get(2)), unsigned(words.get(3))) else {
        return Err(unknown(line));
    };
    block(buf, start, bytes, bytes_max, |value| Reply::Value { key: words.get(1), flags, cas, value })
}

fn meta_value<'a>(
    line: &'a [u8],
    buf: &'a [u8],
    start: usize,
    bytes_max: u32,
) -> Result<Progress<'a>, ReplyError> {
    let words = Words::of(line);
    let bytes = unsigned(words.get(1)).ok_or_else(|| unknown(line))?;
    let returned = |flag| (2..words.count()).find_map(|at| words.get(at).strip_prefix(&[flag]));
    let flags = returned(b'f').map_or(Some(0), flags).ok_or_else(|| unknown(line))?;
    let remaining_s = match returned(b't') {
        None | Some(b"-1") => None,
        Some(seconds) => Some(unsigned(seconds).ok_or_else(|| unknown(line))?),
    };
    block(buf, start, bytes, bytes_max, |value| Reply::MetaValue { flags, remaining_s, value })
}

/// Parses the value of `bytes` bytes that begins at `start`, and its line end.
fn block<'a>(
    buf: &'a [u8],
    start: usize,
    bytes: u64,
    bytes_max: u32,
    reply: impl FnOnce(&'a [u8]) -> Reply<'a>,
) -> Result<Progress<'a>, ReplyError> {
    if bytes > u64::from(bytes_max) {
        return Err(ReplyError::ValueTooLarge { bytes, bytes_max });
    }
    let consumed = start + bytes as usize + 2;
    let Some(value) = buf.get(start..consumed) else { return Ok(Progress::Incomplete { need: consumed }) };
    let value = value.strip_suffix(b"\r\n").ok_or(ReplyError::ValueEnd(bytes))?;
    Ok(Progress::Reply { consumed, reply: reply(value) })
}

fn one_line(line: &[u8]) -> Option<Reply<'_>> {
    let (name, text) = match memchr::memchr(b' ', line) {
        Some(space) => (&line[..space], &line[space + 1..]),
        None => (line, &line[line.len()..]),
    };
    Some(match name {
        b"END" => Reply::End,
        b"EN" => Reply::MetaMiss,
        b"HD" => Reply::MetaDone,
        b"STORED" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"EXISTS" => Reply::Exists,
        b"NOT_FOUND" => Reply::NotFound,
        b"DELETED" => Reply::Deleted,
        b"TOUCHED" => Reply::Touched,
        b"OK" => Reply::Ok,
        b"RESET" => Reply::Reset,
        b"VERSION" => Reply::Version(text),
        b"ERROR" => Reply::Error(text),
        b"CLIENT_ERROR" => Reply::ClientError(text),
        b"SERVER_ERROR" => Reply::ServerError(text),
        b"STAT" => {
            let end = memchr::memchr(b' ', text).unwrap_or(text.len());
            Reply::Stat(&text[..end], text.get(end + 1..).unwrap_or_default())
        }
        number => Reply::Number(unsigned(number)?),
    })
}

fn unknown(line: &[u8]) -> ReplyError {
    ReplyError::Unknown(String::from_utf8_lossy(&line[..line.len().min(64)]).into_owned())
}
