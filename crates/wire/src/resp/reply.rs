//! What a server writes. Every function appends to `out` and does nothing else.

/// The version of the protocol a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// What every connection starts with.
    #[default]
    Resp2,
    /// With types for nothing, maps, sets and text.
    Resp3,
}

/// Done.
pub const OK: &[u8] = b"+OK\r\n";

/// A word.
pub fn simple(out: &mut Vec<u8>, word: &str) {
    out.push(b'+');
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// An error: a code in capitals and words. Line ends in it become spaces.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// A number.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A byte string.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(HEADER_BYTES_MAX + bytes.len() + 2);
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A byte string that is text to be read by people.
pub fn text(out: &mut Vec<u8>, version: Version, text: &str) {
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => {
            header(out, b'=', text.len() + 4);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Nothing where there could be a byte string.
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Nothing where there could be an array.
pub fn null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// The start of an array; so many replies follow.
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// The start of a set; so many replies follow, none twice.
pub fn set(out: &mut Vec<u8>, version: Version, len: usize) {
    match version {
        Version::Resp2 => header(out, b'*', len),
        Version::Resp3 => header(out, b'~', len),
    }
}

/// The start of a map; so many keys follow, each with its value after it.
pub fn map(out: &mut Vec<u8>, version: Version, len: usize) {
    match version {
        Version::Resp2 => header(out, b'*', 2 * len),
        Version::Resp3 => header(out, b'%', len),
    }
}

/// Most bytes in front of a byte string or a list: a mark, a number, a line end.
pub const HEADER_BYTES_MAX: usize = 1 + 20 + 2;

fn header(out: &mut Vec<u8>, mark: u8, len: usize) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_type_has_its_mark() {
        assert_eq!(written(|out| simple(out, "PONG")), "+PONG\r\n");
        assert_eq!(written(|out| integer(out, i64::MIN)), ":-9223372036854775808\r\n");
        assert_eq!(written(|out| bulk(out, b"a\r\nb")), "$4\r\na\r\nb\r\n");
        assert_eq!(written(|out| array(out, 0)), "*0\r\n");
    }

    #[test]
    fn the_versions_differ_where_the_second_had_no_type() {
        for (version, expected) in [
            (Version::Resp2, "$-1\r\n*-1\r\n*4\r\n*2\r\n$2\r\nhi\r\n"),
            (Version::Resp3, "_\r\n_\r\n%2\r\n~2\r\n=6\r\ntxt:hi\r\n"),
        ] {
            let all = written(|out| {
                null(out, version);
                null_array(out, version);
                map(out, version, 2);
                set(out, version, 2);
                text(out, version, "hi");
            });
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn an_error_stays_on_its_line() {
        assert_eq!(written(|out| error(out, b"ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn the_bound_on_a_header_holds() {
        assert!(written(|out| array(out, usize::MAX)).len() <= HEADER_BYTES_MAX);
    }
}
