//! Names of nodes for keys; pure.
//!
//! A name is the key with all bytes percent-encoded but letters, digits, `-`, `_`, `~`, `:` and
//! `.`; names that ZooKeeper does not allow, `.` and `..`, are encoded completely, and the empty
//! key is `%`.

use std::fmt::Write;

use bytes::Bytes;

/// Longest key in bytes.
pub(super) const KEY_BYTES_MAX: usize = 4_096;

/// Returns the name of the node for a key.
pub(super) fn encode(key: &[u8]) -> String {
    if key.is_empty() {
        return "%".to_owned();
    }
    let mut name = String::with_capacity(key.len());
    let is_dots = matches!(key, b"." | b"..");
    for &byte in key {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b':' | b'.');
        if is_plain && !is_dots {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// Returns the key of a node; none if the node is not one of the store.
pub(super) fn decode(name: &str) -> Option<Bytes> {
    let mut key = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' && name.len() > 1 {
            let (digits, after) = rest.split_at_checked(2)?;
            rest = after;
            key.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        } else if byte != b'%' {
            key.push(byte);
        }
    }
    (key.len() <= KEY_BYTES_MAX && encode(&key) == name).then(|| key.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_name_of_its_own_that_is_decoded_to_it() {
        for (key, name) in [
            (&b"p:7"[..], "p:7"),
            (b"", "%"),
            (b"%", "%25"),
            (b".", "%2E"),
            (b"..", "%2E%2E"),
            (b"a.b", "a.b"),
            (b"a/b c", "a%2Fb%20c"),
            ("ä\u{0}".as_bytes(), "%C3%A4%00"),
            (&[0xff], "%FF"),
        ] {
            assert_eq!(encode(key), name);
            assert_eq!(decode(name).as_deref(), Some(key));
        }
    }

    #[test]
    fn nodes_of_others_have_no_key() {
        for name in ["a%2", "a%", "%%", "%2f", "%41", "a b", ".", "ä", "%+1", &"x".repeat(KEY_BYTES_MAX + 1)]
        {
            assert_eq!(decode(name), None, "{name}");
        }
    }
}
