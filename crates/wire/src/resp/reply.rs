//! Writes the replies of a Redis server. Every function appends to `out`.

/// The version of the Redis protocol that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Version 2, with which every connection starts.
    #[default]
    Resp2,
    /// Version 3, with types for null, maps, sets and text.
    Resp3,
}

/// Reply: the command succeeded.
pub const OK: &[u8] = b"+OK\r\n";

/// Appends a simple string, such as a status.
pub fn simple(out: &mut Vec<u8>, word: &str) {
    out.push(b'+');
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends an error: a code in capitals and a text. Line ends in the text are replaced by spaces.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// Appends an integer.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a byte string.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(HEADER_BYTES_MAX + bytes.len() + 2);
    bulk_line(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line that announces a byte string of `bytes` bytes, which it and a line end have to
/// follow.
pub fn bulk_line(out: &mut Vec<u8>, bytes: usize) {
    header(out, b'$', bytes);
}

/// Appends text for people: in version 3 a verbatim string, in version 2 a byte string.
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

/// Appends null in place of a byte string.
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Appends null in place of an array.
pub fn null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Appends the start of an array of `len` replies.
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// Appends the start of a set of `len` distinct replies.
pub fn set(out: &mut Vec<u8>, version: Version, len: usize) {
    match version {
        Version::Resp2 => header(out, b'*', len),
        Version::Resp3 => header(out, b'~', len),
    }
}

/// Appends the start of a map of `len` keys, each followed by its value.
pub fn map(out: &mut Vec<u8>, version: Version, len: usize) {
    match version {
        Version::Resp2 => header(out, b'*', 2 * len),
        Version::Resp3 => header(out, b'%', len),
    }
}

/// Most bytes before the contents of a byte string or a list: a type byte, a number and a line end.
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
    fn each_type_of_redis_reply_begins_with_its_type_byte() {
        assert_eq!(written(|out| simple(out, "PONG")), "+PONG\r\n");
        assert_eq!(written(|out| integer(out, i64::MIN)), ":-9223372036854775808\r\n");
        assert_eq!(written(|out| bulk(out, b"a\r\nb")), "$4\r\na\r\nb\r\n");
        assert_eq!(written(|out| array(out, 0)), "*0\r\n");
    }

    #[test]
    fn reply_types_that_version_two_lacks_are_written_as_others() {
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
    fn line_ends_in_an_error_reply_become_spaces() {
        assert_eq!(written(|out| error(out, b"ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn longest_header_of_a_reply_is_within_header_bytes_max() {
        assert!(written(|out| array(out, usize::MAX)).len() <= HEADER_BYTES_MAX);
    }
}
