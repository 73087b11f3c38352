//! Finds the keys of requests that are not parsed yet, for prefetching.

use super::super::KEY_BYTES_MAX;
use super::header::{HEADER_BYTES, Header, REQUEST};

/// The key of each request in a buffer, found without parsing the requests; see
/// [`memcached::Ahead`](super::super::Ahead).
///
/// The scan is approximate: it validates nothing but the first byte of a frame, and ends at the
/// first frame whose key is incomplete or too long.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a>(&'a [u8]);

impl<'a> Ahead<'a> {
    /// Scans `buf`, which has to start at a frame, for keys.
    #[must_use]
    pub const fn of(buf: &'a [u8]) -> Self {
        Self(buf)
    }

    /// The number of bytes at the end of the buffer that have not been scanned.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.0.len()
    }
}

impl<'a> Iterator for Ahead<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let header =
                Header::of(self.0).filter(|header| self.0[0] == REQUEST && header.key <= KEY_BYTES_MAX)?;
            let start = HEADER_BYTES + header.extras;
            let key = self.0.get(start..start + header.key)?;
            self.0 = self.0.get(header.frame_bytes()..).unwrap_or_default();
            if !key.is_empty() {
                return Some(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::client::{self, Key};
    use super::*;

    fn key(text: &[u8]) -> Key<'_> {
        Key::new(text).expect("it is short")
    }

    #[test]
    fn scan_finds_the_key_of_every_binary_request_that_has_one() {
        let mut bytes = Vec::new();
        client::get(&mut bytes, key(b"a"), [0; 4]);
        client::no_op(&mut bytes, [0; 4]);
        client::set(&mut bytes, key(b"bc"), b"value", [0; 4]);
        let unscanned = bytes.len();
        client::get(&mut bytes, key(b"cut"), [0; 4]);
        let mut ahead = Ahead::of(&bytes[..bytes.len() - 1]);
        assert!(ahead.by_ref().eq([&b"a"[..], b"bc"]));
        assert_eq!(ahead.left(), bytes.len() - 1 - unscanned);
        assert_eq!(Ahead::of(b"get a\r\nget b\r\nget c\r\nget d\r\n").count(), 0);
    }

    proptest! {
        #[test]
        fn scan_for_binary_keys_terminates_on_arbitrary_bytes(buf in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x80), Just(0)], 0..300)) {
            prop_assert!(Ahead::of(&buf).count() <= buf.len() / HEADER_BYTES);
        }
    }
}
