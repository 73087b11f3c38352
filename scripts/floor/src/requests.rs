//! The requests and their answers.

use memchr::memchr;

/// The value of every key.
const VALUE: [u8; 100] = [b'v'; 100];

#[derive(Clone, Copy)]
pub(crate) enum Protocol {
    Memcached,
    Redis,
}

impl Protocol {
    /// Appends the answers to the complete requests in `bytes`, and returns how many bytes these
    /// requests take.
    pub(crate) fn answer(self, bytes: &[u8], answers: &mut Vec<u8>) -> usize {
        let answer_first = match self {
            Self::Memcached => memcached,
            Self::Redis => redis,
        };
        let mut taken = 0;
        while let Some(len) = answer_first(&bytes[taken..], answers) {
            taken += len;
        }
        taken
    }
}

/// Answers the first request; returns its length, or `None` if it is incomplete.
fn memcached(bytes: &[u8], answers: &mut Vec<u8>) -> Option<usize> {
    let (line, after) = line(bytes)?;
    if let Some(key) = line.strip_prefix(b"get ") {
        answers.extend_from_slice(b"VALUE ");
        answers.extend_from_slice(key);
        answers.extend_from_slice(b" 0 100\r\n");
        answers.extend_from_slice(&VALUE);
        answers.extend_from_slice(b"\r\nEND\r\n");
        return Some(after);
    }
    if !line.starts_with(b"set ") {
        answers.extend_from_slice(b"ERROR\r\n");
        return Some(after);
    }
    let data_bytes = line.rsplit(|&byte| byte == b' ').next().map_or(0, number);
    let end = after + data_bytes + b"\r\n".len();
    (end <= bytes.len()).then(|| answers.extend_from_slice(b"STORED\r\n"))?;
    Some(end)
}

/// Answers the first request, as [`memcached`] does. A request is an array of strings, each after
/// its length.
fn redis(bytes: &[u8], answers: &mut Vec<u8>) -> Option<usize> {
    let (head, mut end) = line(bytes)?;
    let mut command = &b""[..];
    for at in 0..head.strip_prefix(b"*").map_or(0, number) {
        let (length, after) = line(&bytes[end..])?;
        let start = end + after;
        let string = start..start + length.strip_prefix(b"$").map_or(0, number);
        end = string.end + b"\r\n".len();
        if end > bytes.len() {
            return None;
        }
        if at == 0 {
            command = &bytes[string];
        }
    }
    match command {
        b"GET" => {
            answers.extend_from_slice(b"$100\r\n");
            answers.extend_from_slice(&VALUE);
            answers.extend_from_slice(b"\r\n");
        }
        b"SET" => answers.extend_from_slice(b"+OK\r\n"),
        _ => answers.extend_from_slice(b"-ERR unknown command\r\n"),
    }
    Some(end)
}

/// Returns the first line without its end, and the number of bytes with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn number(digits: &[u8]) -> usize {
    digits.iter().fold(0, |number, digit| 10 * number + usize::from(digit.wrapping_sub(b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(protocol: Protocol, requests: &str) -> (String, usize) {
        let mut answers = Vec::new();
        let taken = protocol.answer(requests.as_bytes(), &mut answers);
        (String::from_utf8(answers).unwrap(), taken)
    }

    #[test]
    fn complete_requests_are_answered() {
        let value = "v".repeat(100);
        let (answers, taken) =
            answered(Protocol::Memcached, "get a\r\nset bc 0 0 3\r\nx\ny\r\nget d\r\nget e");
        assert_eq!(
            answers,
            format!("VALUE a 0 100\r\n{value}\r\nEND\r\nSTORED\r\nVALUE d 0 100\r\n{value}\r\nEND\r\n")
        );
        assert_eq!(taken, 33);
        let get = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        let (answers, taken) = answered(
            Protocol::Redis,
            &format!("{get}*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nx\ny\r\n{get}*2\r\n$3\r\n"),
        );
        assert_eq!(answers, format!("$100\r\n{value}\r\n+OK\r\n$100\r\n{value}\r\n"));
        assert_eq!(taken, 2 * get.len() + 29);
    }

    #[test]
    fn incomplete_requests_are_left() {
        for (protocol, request) in [
            (Protocol::Memcached, "set a 0 0 3\r\nxyz\r\n"),
            (Protocol::Redis, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nxyz\r\n"),
        ] {
            for len in 0..request.len() {
                assert_eq!(answered(protocol, &request[..len]), (String::new(), 0), "{len}");
            }
            assert_eq!(answered(protocol, request).1, request.len());
        }
    }
}
