//! Writes the responses of a server. Every function appends to `out`.

use super::header::{HEADER_BYTES, Header, RESPONSE};
use super::{Echo, Status};

/// Maximum number of bytes that [`value_head`] appends: header, flags, and the longest key.
pub const VALUE_HEAD_BYTES_MAX: usize = HEADER_BYTES + FLAGS_BYTES + super::super::KEY_BYTES_MAX;
/// Bytes of the extras of a value: its flags.
const FLAGS_BYTES: usize = 4;

/// Appends the head of a response that succeeded.
#[inline]
fn head(out: &mut Vec<u8>, echo: Echo, extras: usize, key: usize, body: usize, cas: u64) {
    // Values have at most 1 GiB.
    let header = Header { echo, status: Status::Success as u16, key, extras, body: body as u32, cas };
    out.extend_from_slice(&header.bytes(RESPONSE));
}

/// Appends a success without a value. `cas` is that of the stored item, if there is one, else 0.
pub fn success(out: &mut Vec<u8>, echo: Echo, cas: u64) {
    head(out, echo, 0, 0, 0, cas);
}

/// Appends the head of a value of `bytes` bytes, which have to follow it. `key` is empty if the
/// request does not ask for it.
#[inline]
pub fn value_head(out: &mut Vec<u8>, echo: Echo, key: &[u8], flags: u32, cas: u64, bytes: usize) {
    head(out, echo, FLAGS_BYTES, key.len(), FLAGS_BYTES + key.len() + bytes, cas);
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(key);
}

/// Appends a value, as [`value_head`] and the value's bytes.
pub fn value(out: &mut Vec<u8>, echo: Echo, key: &[u8], flags: u32, cas: u64, value: &[u8]) {
    out.reserve(VALUE_HEAD_BYTES_MAX + value.len());
    value_head(out, echo, key, flags, cas, value.len());
    out.extend_from_slice(value);
}

/// Appends the answer to a get whose item does not exist. It contains `key`, or an error text if
/// `key` is empty.
pub fn miss(out: &mut Vec<u8>, echo: Echo, key: &[u8]) {
    if key.is_empty() {
        return error(out, echo, Status::NotFound);
    }
    let (status, body) = (Status::NotFound as u16, key.len() as u32);
    let header = Header { echo, status, key: key.len(), extras: 0, body, cas: 0 };
    out.extend_from_slice(&header.bytes(RESPONSE));
    out.extend_from_slice(key);
}

/// Appends the resulting number of an `increment` or `decrement`.
pub fn number(out: &mut Vec<u8>, echo: Echo, number: u64, cas: u64) {
    let bytes = number.to_be_bytes();
    head(out, echo, 0, 0, bytes.len(), cas);
    out.extend_from_slice(&bytes);
}

/// Appends a success with a text.
pub fn text(out: &mut Vec<u8>, echo: Echo, text: &str) {
    head(out, echo, 0, 0, text.len(), 0);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a statistic. The last one is followed by [`success`].
pub fn stat(out: &mut Vec<u8>, echo: Echo, name: &str, value: &str) {
    head(out, echo, 0, name.len(), name.len() + value.len(), 0);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// Appends an error with its text.
pub fn error(out: &mut Vec<u8>, echo: Echo, status: Status) {
    error_text(out, echo, status, status.text());
}

/// Appends an error with a human-readable text of at most some KiB.
pub fn error_text(out: &mut Vec<u8>, echo: Echo, status: Status, text: &str) {
    let header = Header { echo, status: status as u16, key: 0, extras: 0, body: text.len() as u32, cas: 0 };
    out.extend_from_slice(&header.bytes(RESPONSE));
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Echo = Echo { opcode: 0x0d, opaque: [1, 2, 3, 4] };

    fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn value_response_consists_of_header_flags_key_and_value() {
        let bytes = written(|out| value(out, ECHO, b"key", 0xdead, 7, b"value"));
        let expected = b"\x81\x0d\x00\x03\x04\x00\x00\x00\x00\x00\x00\x0c\x01\x02\x03\x04\
                         \x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\xde\xadkeyvalue";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn error_response_has_a_text_and_a_miss_has_the_key_instead_if_given() {
        let bytes = written(|out| error(out, ECHO, Status::Exists));
        let expected = b"\x81\x0d\x00\x00\x00\x00\x00\x02\x00\x00\x00\x14\x01\x02\x03\x04\
                         \x00\x00\x00\x00\x00\x00\x00\x00Data exists for key.";
        assert_eq!(bytes, expected);
        let bytes = written(|out| miss(out, ECHO, b"key"));
        let expected = b"\x81\x0d\x00\x03\x00\x00\x00\x01\x00\x00\x00\x03\x01\x02\x03\x04\
                         \x00\x00\x00\x00\x00\x00\x00\x00key";
        assert_eq!(bytes, expected);
        assert!(written(|out| miss(out, ECHO, b"")).ends_with(b"Not found"));
    }

    #[test]
    fn longest_value_head_is_exactly_value_head_bytes_max_long() {
        let key = [b'k'; super::super::super::KEY_BYTES_MAX];
        let bytes = written(|out| value_head(out, ECHO, &key, u32::MAX, u64::MAX, 1 << 30));
        assert_eq!(bytes.len(), VALUE_HEAD_BYTES_MAX);
    }
}
