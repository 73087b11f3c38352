//! Protocols that clients speak to the wrong port, recognised by the first bytes of a connection.
//!
//! Without an answer that it understands, such a client waits until it gives up, and its log says
//! nothing. The answer here is an error of its own protocol, after which the connection closes.

/// A protocol that a port does not speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// memcached's binary protocol, with fields of the first request's header. Only listeners for
    /// memcached clients speak it.
    MemcachedBinary {
        /// The request's code.
        opcode: u8,
        /// The number by which the client finds the request of an answer.
        opaque: [u8; 4],
    },
    /// TLS: the client begins a handshake.
    Tls,
    /// HTTP of any version.
    Http,
}

/// The meaning of the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// They may belong to the protocol of the port, or are too few to tell.
    Own,
    /// They belong to another protocol, and so many are needed to answer.
    Need(usize),
    /// They belong to this protocol.
    Foreign(Foreign),
}

/// The first byte of a request of memcached's binary protocol.
const BINARY_REQUEST: u8 = 0x80;
const BINARY_RESPONSE: u8 = 0x81;
/// The length of a header of memcached's binary protocol.
const BINARY_HEADER_BYTES: usize = 24;
/// Status of memcached's binary protocol: not supported.
const NOT_SUPPORTED: u8 = 0x83;
/// The first byte of a TLS record with a part of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// A TLS record with a fatal alert: the handshake has failed.
const TLS_ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];
/// The longest first line of an HTTP request that is recognised.
const HTTP_LINE_BYTES_MAX: usize = 2 << 10;

impl FirstBytes {
    /// Reads the bytes at the start of a connection.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            [BINARY_REQUEST, opcode, ..] if bytes.len() >= BINARY_HEADER_BYTES => {
                let opaque = [bytes[12], bytes[13], bytes[14], bytes[15]];
                Self::Foreign(Foreign::MemcachedBinary { opcode: *opcode, opaque })
            }
            [BINARY_REQUEST, ..] => Self::Need(BINARY_HEADER_BYTES),
            [TLS_HANDSHAKE, ..] => Self::Foreign(Foreign::Tls),
            // Methods are in upper case; most clients' first byte is not.
            [b'A'..=b'Z', ..] if is_http(bytes) => Self::Foreign(Foreign::Http),
            _ => Self::Own,
        }
    }
}

/// Returns true if the first line is complete and one of an HTTP request.
fn is_http(bytes: &[u8]) -> bool {
    let line = &bytes[..bytes.len().min(HTTP_LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', line) else { return false };
    let line = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
    line.rsplit(|&byte| byte == b' ').next().is_some_and(|word| word.starts_with(b"HTTP/") && word != line)
}

impl Foreign {
    /// The protocol's name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemcachedBinary { .. } => "memcached's binary protocol",
            Self::Tls => "TLS",
            Self::Http => "HTTP",
        }
    }

    /// Appends an error of the protocol, with `text` for people where it has room for one.
    pub fn refuse(self, text: &str, out: &mut Vec<u8>) {
        match self {
            Self::MemcachedBinary { opcode, opaque } => {
                let mut header = [0; BINARY_HEADER_BYTES];
                (header[0], header[1], header[7]) = (BINARY_RESPONSE, opcode, NOT_SUPPORTED);
                // Texts are some hundred bytes long.
                header[8..12].copy_from_slice(&(text.len() as u32).to_be_bytes());
                header[12..16].copy_from_slice(&opaque);
                out.extend_from_slice(&header);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Tls => out.extend_from_slice(TLS_ALERT),
            Self::Http => {
                let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
                out.extend_from_slice(
                    format!("{head}Content-Length: {}\r\n\r\n{text}\n", text.len() + 1).as_bytes(),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(opcode: u8) -> Vec<u8> {
        let mut request = vec![0x80, opcode, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0xde, 0xad, 0, 7];
        request.resize(24, 0);
        request.push(b'k');
        request
    }

    #[test]
    fn request_of_the_binary_protocol_is_answered_with_its_opaque_and_a_status() {
        let request = binary(0x0a);
        assert_eq!(FirstBytes::of(&request[..1]), FirstBytes::Need(24));
        assert_eq!(FirstBytes::of(&request[..23]), FirstBytes::Need(24));
        let FirstBytes::Foreign(foreign) = FirstBytes::of(&request) else { panic!("not recognised") };
        let mut out = Vec::new();
        foreign.refuse("use text", &mut out);
        let mut expected = vec![0x81, 0x0a, 0, 0, 0, 0, 0, 0x83, 0, 0, 0, 8, 0xde, 0xad, 0, 7];
        expected.extend([0; 8]);
        expected.extend(b"use text");
        assert_eq!(out, expected);
    }

    #[test]
    fn tls_handshake_is_answered_with_an_alert() {
        let FirstBytes::Foreign(foreign) = FirstBytes::of(&[0x16, 3, 1]) else { panic!("not recognised") };
        let mut out = Vec::new();
        foreign.refuse("text", &mut out);
        assert_eq!((foreign, &out[..]), (Foreign::Tls, TLS_ALERT));
    }

    #[test]
    fn http_request_is_recognised_by_its_complete_first_line() {
        for line in ["GET / HTTP/1.1\r\n", "POST /v1 HTTP/1.0\nx", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            assert_eq!(FirstBytes::of(line.as_bytes()), FirstBytes::Foreign(Foreign::Http), "{line:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HTTP_LINE_BYTES_MAX));
        for line in
            ["", "GET / HTTP/1.1", "GET key\r\n", "HTTP/1.1\r\n", "get / HTTP/1.1\r\n", "*1\r\n", &long]
        {
            assert_eq!(FirstBytes::of(line.as_bytes()), FirstBytes::Own, "{line:.20?}");
        }
        let mut out = Vec::new();
        Foreign::Http.refuse("no", &mut out);
        let answer = String::from_utf8(out).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("Content-Length: 3\r\n\r\nno\n"),
            "{answer}"
        );
    }
}
