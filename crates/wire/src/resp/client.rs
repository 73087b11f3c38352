//! Requests and replies of a Redis client.
//!
//! Any number of requests is appended to a buffer, and the replies arrive in the same order.

use thiserror::Error;

use super::{BULK_BYTES_MAX, LINE_BYTES_MAX, integer};

/// Appends a request: the command's name and its arguments.
pub fn request(out: &mut Vec<u8>, args: &[&[u8]]) {
    super::reply::array(out, args.len());
    for arg in args {
        super::reply::bulk(out, arg);
    }
}

/// Appends `GET <key>`, answered by [`Reply::Bulk`] or [`Reply::Null`].
pub fn get(out: &mut Vec<u8>, key: &[u8]) {
    request(out, &[b"GET", key]);
}

/// Appends `MGET <key>*`, answered by a [`Reply::Array`] of as many as there are keys, each
/// [`Reply::Bulk`] or [`Reply::Null`], in their order. The iterator is cloned to count the keys.
pub fn mget<'a>(out: &mut Vec<u8>, keys: impl Iterator<Item = &'a [u8]> + Clone) {
    super::reply::array(out, 1 + keys.clone().count());
    super::reply::bulk(out, b"MGET");
    keys.for_each(|key| super::reply::bulk(out, key));
}

/// Appends `SET <key> <value>`, answered by [`Reply::Simple`] or [`Reply::Error`].
pub fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    request(out, &[b"SET", key, value]);
}

/// A reply of a Redis server, borrowing from the buffer it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A simple string: a status, mostly `OK`.
    Simple(&'a [u8]),
    /// An error of this request; the connection stays usable.
    Error(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A byte string.
    Bulk(&'a [u8]),
    /// Null: no value.
    Null,
    /// The start of an array of this many replies.
    Array(usize),
}

/// The result of [`parse`]: a reply, or that it is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A reply, and its number of bytes at the start of the buffer.
    Reply(Reply<'a>, usize),
    /// The reply is incomplete: parse again once the buffer holds this many bytes or more.
    Incomplete(usize),
}

/// The reason why bytes are not a reply. The start of the next reply is then unknown: close the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// The first byte is not that of a supported type of reply.
    #[error("a Redis server was to answer and sent byte {0:#04x}; +, -, :, $, * and _ are understood")]
    Type(u8),
    /// A number is invalid, or a length is out of range.
    #[error(
        "a Redis server sent a number that is none or a length out of range; at most {BULK_BYTES_MAX} bytes are taken"
    )]
    Number,
    /// A line has no end within the length limit.
    #[error("a Redis server sent a line without an end in {LINE_BYTES_MAX} bytes")]
    Line,
    /// A line, a null or a byte string of the announced length is not followed by `\r\n`. Bytes
    /// were lost or added, and those that follow may belong to another reply.
    #[error(
        "a Redis server sent a line or a text that is not followed by a line end, so bytes are missing or too many"
    )]
    LineEnd,
}

/// Parses the reply at the start of `buf`, which may be any of version 2 of the protocol, or the
/// null of version 3.
///
/// # Errors
/// When the bytes are not a reply.
pub fn parse(buf: &[u8]) -> Result<Progress<'_>, ReplyError> {
    let Some((&mark, rest)) = buf.split_first() else { return Ok(Progress::Incomplete(1)) };
    if !b"+-:$*_".contains(&mark) {
        return Err(ReplyError::Type(mark));
    }
    let window = &rest[..rest.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return match window.len() == LINE_BYTES_MAX {
            true => Err(ReplyError::Line),
            false => Ok(Progress::Incomplete(buf.len() + 1)),
        };
    };
    let line = rest[..end].strip_suffix(b"\r").ok_or(ReplyError::LineEnd)?;
    let used = 1 + end + 1;
    let reply = match mark {
        b'+' => Reply::Simple(line),
        b'-' => Reply::Error(line),
        b'_' if line.is_empty() => Reply::Null,
        b'_' => return Err(ReplyError::LineEnd),
        _ => match (mark, integer(line).ok_or(ReplyError::Number)?) {
            (b':', number) => Reply::Integer(number),
            (_, -1) => Reply::Null,
            (b'*', len) => Reply::Array(usize::try_from(len).map_err(|_| ReplyError::Number)?),
            (_, len) => return bulk(buf, used, len),
        },
    };
    Ok(Progress::Reply(reply, used))
}

/// Parses a byte string of `len` bytes at position `start` of `buf`, and the line end after it.
fn bulk(buf: &[u8], start: usize, len: i64) -> Result<Progress<'_>, ReplyError> {
    let len = u64::try_from(len).ok().filter(|&len| len <= BULK_BYTES_MAX).ok_or(ReplyError::Number)?;
    let used = start + len as usize + LINE_END.len();
    let Some(bytes) = buf.get(start..used) else { return Ok(Progress::Incomplete(used)) };
    let bytes = bytes.strip_suffix(LINE_END).ok_or(ReplyError::LineEnd)?;
    Ok(Progress::Reply(Reply::Bulk(bytes), used))
}

/// The two bytes that end a line and a byte string.
const LINE_END: &[u8] = b"\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_request_is_written_as_an_array_of_byte_strings() {
        let mut out = Vec::new();
        get(&mut out, b"k");
        set(&mut out, b"k", b"\r\n");
        mget(&mut out, [&b"k"[..], b""].into_iter());
        let (single, several) = out.split_at(out.len() - 27);
        assert_eq!(several, b"*3\r\n$4\r\nMGET\r\n$1\r\nk\r\n$0\r\n\r\n");
        assert_eq!(single, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }

    #[test]
    fn each_type_of_redis_reply_is_parsed() {
        for (bytes, reply) in [
            (&b"+OK\r\n"[..], Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b":-7\r\n", Reply::Integer(-7)),
            (b"$4\r\na\r\nb\r\n", Reply::Bulk(b"a\r\nb")),
            (b"$0\r\n\r\n", Reply::Bulk(b"")),
            (b"$-1\r\n", Reply::Null),
            (b"*-1\r\n", Reply::Null),
            (b"_\r\n", Reply::Null),
            (b"*2\r\n", Reply::Array(2)),
        ] {
            assert_eq!(parse(bytes), Ok(Progress::Reply(reply, bytes.len())));
            for cut in 0..bytes.len() {
                assert!(
                    matches!(parse(&bytes[..cut]), Ok(Progress::Incomplete(need)) if need > cut && need <= bytes.len())
                );
            }
        }
    }

    #[test]
    fn bytes_that_are_no_redis_reply_are_an_error() {
        assert_eq!(parse(b"?"), Err(ReplyError::Type(b'?')));
        assert_eq!(parse(b":x\r\n"), Err(ReplyError::Number));
        assert_eq!(parse(b"$-2\r\n"), Err(ReplyError::Number));
        assert_eq!(parse(b"$9000000000\r\n"), Err(ReplyError::Number));
        assert_eq!(parse(&[b'+'; LINE_BYTES_MAX + 1]), Err(ReplyError::Line));
        for text in ["$-0", "$+3", "$ 3", "$3 ", "$03", "$", "$?", "*-2", "*?", ": 1", ":1.5"] {
            assert_eq!(parse(format!("{text}\r\n").as_bytes()), Err(ReplyError::Number), "{text}");
        }
    }

    #[test]
    fn redis_bulk_string_with_a_wrong_announced_length_is_an_error() {
        let answers = [&b"$3\r\nvalue\r\n"[..], b"$6\r\nvalue\r\n$1\r\n", b"$0\r\nxx", b"$5\r\nvalue\n\r"];
        for answer in answers {
            assert_eq!(parse(answer), Err(ReplyError::LineEnd), "{}", answer.escape_ascii());
        }
    }

    #[test]
    fn redis_line_that_does_not_end_with_cr_lf_is_an_error() {
        for answer in ["+OK\n", "-ERR no\n", ":1\n", "$1\nx\r\n", "*1\n", "_\n", "_1\r\n", "\u{2b}\n"] {
            assert_eq!(parse(answer.as_bytes()), Err(ReplyError::LineEnd), "{answer:?}");
        }
    }

    #[test]
    fn resp3_types_are_refused_if_resp3_was_not_negotiated() {
        for answer in [",1.5", "#t", "(1", "!3", "=5", "%1", "~1", ">1", "|1"] {
            let mark = answer.as_bytes()[0];
            assert_eq!(parse(format!("{answer}\r\n").as_bytes()), Err(ReplyError::Type(mark)), "{answer}");
        }
    }
}
