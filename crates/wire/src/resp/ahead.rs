//! Finds the keys of Redis requests that are not parsed yet, for prefetching.

/// The first argument of each request in a buffer, its key if it has one, found without parsing the
/// requests. A server can prefetch the items of requests that it has not come to yet.
///
/// The scan is approximate. It validates nothing and has no state from before the buffer, so an
/// argument may be invalid, and it ends at the first request that it does not support: an inline
/// request, or one of more than 1,024 arguments. It takes a few nanoseconds per argument, skips
/// their bytes, and ends after the last complete request.
///
/// ```
/// use sherwood_wire::resp::Ahead;
/// let ahead = Ahead::of(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n*2\r\n");
/// assert!(ahead.eq([b"a", b"b"]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a>(&'a [u8]);

impl<'a> Ahead<'a> {
    /// Scans `buf` for keys; it begins with a request.
    #[must_use]
    pub const fn of(buf: &'a [u8]) -> Self {
        Self(buf)
    }

    /// The number of bytes at the end of the buffer that have not been scanned.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.0.len()
    }

    /// Returns the first argument of the next request, if it has one; none if no complete request
    /// is left.
    fn request(&mut self) -> Option<Option<&'a [u8]>> {
        let (count, mut rest) = header(self.0, b'*')?;
        if count > ARGUMENTS_MAX {
            return None;
        }
        let mut first = None;
        for index in 0..count {
            let (len, body) = header(rest, b'$')?;
            if index == 1 {
                first = body.get(..len);
            }
            rest = body.get(len.checked_add(b"\r\n".len())?..)?;
        }
        self.0 = rest;
        Some(first)
    }
}

impl<'a> Iterator for Ahead<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let first = self.request()?;
            if first.is_some() {
                return first;
            }
        }
    }
}

/// Parses a line that consists of `mark` and a number; returns the number and the bytes after the
/// line.
fn header(rest: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let (&first, text) = rest.split_first()?;
    if first != mark {
        return None;
    }
    let mut number = 0_usize;
    for (at, &byte) in text.iter().enumerate().take(DIGITS_MAX) {
        match byte {
            b'0'..=b'9' => number = number * 10 + usize::from(byte - b'0'),
            b'\r' => return Some((number, text.get(at + b"\r\n".len()..)?)),
            _ => return None,
        }
    }
    None
}

/// Longest number in bytes, with its line's end: lengths and counts have at most nine digits.
const DIGITS_MAX: usize = 10;

/// Most arguments of a request that is scanned for its key. A long request arrives in many pieces,
/// and is scanned again with each: without a bound, a client that sends a request of hundreds of
/// thousands of arguments in small pieces would cost milliseconds per packet. Chosen: some
/// microseconds, and more arguments than any but bulk requests have.
const ARGUMENTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unscanned_bytes_begin_after_the_last_complete_request() {
        let mut ahead = Ahead::of(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nxy\r\n*2\r\n$3\r\nGET\r\n$1\r\nb");
        assert_eq!((ahead.next(), ahead.left()), (Some(&b"a"[..]), 18));
        assert_eq!((ahead.next(), ahead.left()), (None, 18));
    }

    #[test]
    fn bytes_that_are_no_redis_request_end_the_scan_for_keys() {
        for text in [
            "GET a\r\n",
            "*2\r\n$3\r\nGET\r\n:1\r\n",
            "*-1\r\n",
            "*9999999999\r\n",
            "*1\r\n$999999999\r\n",
            "*\r",
        ] {
            assert_eq!(Ahead::of(text.as_bytes()).next(), None, "{text:?}");
        }
    }

    #[test]
    fn request_of_too_many_arguments_is_not_scanned_for_keys() {
        let request = |arguments: usize| {
            let mut bytes = format!("*{arguments}\r\n").into_bytes();
            bytes.extend_from_slice(&b"$1\r\na\r\n".repeat(arguments));
            bytes
        };
        assert_eq!(Ahead::of(&request(ARGUMENTS_MAX)).count(), 1);
        let longer = request(ARGUMENTS_MAX + 1);
        let mut ahead = Ahead::of(&longer);
        assert_eq!((ahead.next(), ahead.left()), (None, longer.len()));
    }

    proptest! {
        #[test]
        fn scan_of_any_bytes_for_redis_keys_ends(buf in "[*$0-9\r\nA]{0,60}") {
            prop_assert!(Ahead::of(buf.as_bytes()).count() <= buf.len());
        }
    }
}
