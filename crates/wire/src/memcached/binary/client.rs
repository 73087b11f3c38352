//! Client side: writes requests to read and store items, and parses the replies.
//!
//! Any number of requests may be appended to one buffer. The replies arrive in the same order; a
//! quiet get that finds nothing has no reply.

use thiserror::Error;

use super::super::KEY_BYTES_MAX;
use super::header::{HEADER_BYTES, Header, REQUEST, RESPONSE};
use super::{Echo, Status, opcode};

/// A key that can be sent: 1 to 250 bytes of any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// Makes a key of `bytes`; none if their number is not 1 to 250.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (1..=KEY_BYTES_MAX).contains(&bytes.len()).then_some(Self(bytes))
    }
}

/// Appends `get`, answered by [`Reply::Value`] or an error.
pub fn get(out: &mut Vec<u8>, key: Key<'_>, opaque: [u8; 4]) {
    request(out, Echo { opcode: opcode::GET, opaque }, b"", key.0, b"");
}

/// Appends `getq`, answered by [`Reply::Value`] or an error; there is no reply if the item does not
/// exist.
pub fn get_quietly(out: &mut Vec<u8>, key: Key<'_>, opaque: [u8; 4]) {
    request(out, Echo { opcode: opcode::GETQ, opaque }, b"", key.0, b"");
}

/// Appends `set` without flags and expiry, answered by [`Reply::Done`] or an error.
pub fn set(out: &mut Vec<u8>, key: Key<'_>, value: &[u8], opaque: [u8; 4]) {
    request(out, Echo { opcode: opcode::SET, opaque }, &[0; 8], key.0, value);
}

/// Appends `noop`, answered by [`Reply::NoOp`] after the replies to the requests before it.
pub fn no_op(out: &mut Vec<u8>, opaque: [u8; 4]) {
    request(out, Echo { opcode: opcode::NOOP, opaque }, b"", b"", b"");
}

/// Appends a login by the SASL mechanism `PLAIN`, answered by [`Reply::Done`] or an error.
pub fn log_in(out: &mut Vec<u8>, user: &str, password: &str, opaque: [u8; 4]) {
    let data = format!("\0{user}\0{password}");
    request(out, Echo { opcode: opcode::SASL_AUTH, opaque }, b"", b"PLAIN", data.as_bytes());
}

fn request(out: &mut Vec<u8>, echo: Echo, extras: &[u8], key: &[u8], value: &[u8]) {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let header = Header { echo, status: 0, key: key.len(), extras: extras.len(), body, cas: 0 };
    out.reserve(header.frame_bytes());
    out.extend_from_slice(&header.bytes(REQUEST));
    for part in [extras, key, value] {
        out.extend_from_slice(part);
    }
}

/// A server's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The value of an item.
    Value {
        /// The value itself.
        value: &'a [u8],
        /// True if the reply belongs to a quiet get.
        quiet: bool,
    },
    /// The item does not exist.
    NotFound,
    /// A command without a value succeeded.
    Done,
    /// The answer to `noop`.
    NoOp,
    /// An error of any other status, with its text.
    Error {
        /// The status.
        status: u16,
        /// The server's text.
        text: &'a [u8],
    },
}

/// The result of parsing received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A reply.
    Reply {
        /// Length of the reply in the buffer, bytes.
        consumed: usize,
        /// The reply itself.
        reply: Reply<'a>,
    },
    /// The reply is incomplete: parse again once the buffer holds this many bytes or more.
    Incomplete {
        /// Number of bytes; always more than were passed.
        need: usize,
    },
}

/// The error of bytes that are not a valid reply. The start of the next reply is unknown, so close
/// the connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReplyError {
    /// The bytes do not begin like a response.
    #[error(
        "a response of memcached's binary protocol was expected, which begins with 0x81; the first byte is {0:#04x}"
    )]
    Magic(u8),
    /// The lengths in the header contradict each other: extras and key are longer than the body.
    #[error("a response has extras and key of {fields} bytes in a body of {body}")]
    Lengths {
        /// Length of extras and key together, bytes.
        fields: usize,
        /// Length of the body, bytes.
        body: u32,
    },
    /// The value is longer than the caller accepts.
    #[error("a value of {bytes} bytes was announced; at most {bytes_max} are accepted: raise the limit")]
    TooLarge {
        /// Length of the value, bytes.
        bytes: u32,
        /// The limit in bytes.
        bytes_max: u32,
    },
}

/// Parses the first reply in `bytes`. A value of more than `value_bytes_max` bytes is an error.
///
/// # Errors
/// If the bytes are not a valid reply.
pub fn parse(bytes: &[u8], value_bytes_max: u32) -> Result<Progress<'_>, ReplyError> {
    if let Some(&first) = bytes.first().filter(|&&first| first != RESPONSE) {
        return Err(ReplyError::Magic(first));
    }
    let Some(header) = Header::of(bytes) else { return Ok(Progress::Incomplete { need: HEADER_BYTES }) };
    let Some(value_bytes) = header.value_bytes() else {
        return Err(ReplyError::Lengths { fields: header.extras + header.key, body: header.body });
    };
    if value_bytes > value_bytes_max {
        return Err(ReplyError::TooLarge { bytes: value_bytes, bytes_max: value_bytes_max });
    }
    let consumed = header.frame_bytes();
    let Some(frame) = bytes.get(..consumed) else { return Ok(Progress::Incomplete { need: consumed }) };
    let value = &frame[HEADER_BYTES + header.extras + header.key..];
    let (loud, quiet) = opcode::loud(header.echo.opcode);
    let reply = match (header.status, loud) {
        (SUCCESS, opcode::GET | opcode::GETK | opcode::GAT | opcode::GATK) => Reply::Value { value, quiet },
        (SUCCESS, opcode::NOOP) => Reply::NoOp,
        (SUCCESS, _) => Reply::Done,
        (NOT_FOUND, _) => Reply::NotFound,
        (status, _) => Reply::Error { status, text: value },
    };
    Ok(Progress::Reply { consumed, reply })
}

const SUCCESS: u16 = Status::Success as u16;
const NOT_FOUND: u16 = Status::NotFound as u16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Command, Event, Parser, response};
    use super::*;
    use crate::memcached::Limits;

    fn parsed(bytes: &[u8]) -> Reply<'_> {
        match parse(bytes, 100) {
            Ok(Progress::Reply { consumed, reply }) if consumed == bytes.len() => reply,
            other => panic!("{other:?} of {bytes:?}"),
        }
    }

    #[test]
    fn server_parses_binary_requests_of_the_client_and_client_parses_the_responses() {
        let mut bytes = Vec::new();
        let key = Key::new(b"key").expect("it is short");
        get_quietly(&mut bytes, key, *b"1234");
        set(&mut bytes, key, b"value", *b"5678");
        log_in(&mut bytes, "ann", "secret", *b"9abc");
        let (mut parser, mut start, mut seen) = (Parser::new(Limits { value_bytes_max: 9 }), 0, Vec::new());
        while start < bytes.len() {
            let step = parser.parse(&bytes[start..]);
            start += step.consumed;
            let Event::Request(request) = step.event else { panic!("{:?}", step.event) };
            seen.push((request.echo, request.quiet, request.command));
        }
        assert!(matches!(seen[0].2, Command::Get { key: b"key", with_key: false, touch: None }) && seen[0].1);
        assert!(matches!(seen[1].2, Command::Storage(storage) if storage.value == b"value"));
        assert_eq!(seen[2].2, Command::SaslAuth { mechanism: b"PLAIN", data: b"\0ann\0secret" });

        let mut out = Vec::new();
        response::value(&mut out, seen[0].0, b"", 0, 1, b"value");
        assert_eq!(parsed(&out), Reply::Value { value: b"value", quiet: true });
        out.clear();
        response::success(&mut out, seen[1].0, 1);
        assert_eq!(parsed(&out), Reply::Done);
        out.clear();
        response::error(&mut out, seen[2].0, Status::AuthError);
        assert_eq!(parsed(&out), Reply::Error { status: 0x20, text: b"Auth failure." });
    }

    #[test]
    fn invalid_binary_reply_is_an_error() {
        assert_eq!(parse(b"VALUE", 100), Err(ReplyError::Magic(b'V')));
        let mut out = Vec::new();
        response::value(&mut out, Echo { opcode: 0, opaque: [0; 4] }, b"", 0, 1, &[b'v'; 101]);
        assert_eq!(parse(&out[..24], 100), Err(ReplyError::TooLarge { bytes: 101, bytes_max: 100 }));
        out[11] = 3;
        assert_eq!(parse(&out, 100), Err(ReplyError::Lengths { fields: 4, body: 3 }));
    }

    proptest! {
        #[test]
        fn incomplete_binary_reply_asks_for_more_bytes_than_given(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(first) = bytes.first_mut() {
                *first = RESPONSE;
            }
            match parse(&bytes, 1000) {
                Ok(Progress::Incomplete { need }) => prop_assert!(need > bytes.len() && need <= 24 + 255 + 65_535 + 1000),
                Ok(Progress::Reply { consumed, .. }) => prop_assert!((24..=bytes.len()).contains(&consumed)),
                Err(_) => {}
            }
        }
    }
}
