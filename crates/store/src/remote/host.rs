//! A server's host and port, and TCP connections to it.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::escape::quoted;
use crate::{Cause, OpenCause};

/// Idle time after which the system sends TCP keepalive probes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A host's name or address, and a port. Names are resolved for every connection, so that a server
/// may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// The host, without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl HostPort {
    /// Parses `host:port`, with an IPv6 address in brackets. The port is `port` by default.
    pub(crate) fn parse(option: &'static str, text: &str, port: u16) -> Result<Self, OpenCause> {
        let refused = |detail: &str| OpenCause::Remote {
            option,
            detail: format!("{} {detail}", quoted("address", text)),
            remedy: "write a host and a port, such as \"127.0.0.1:6379\", \"cache.example.com:6379\" or \"[::1]:6379\"",
        };
        let (host, digits) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => match rest.strip_prefix(':') {
                Some(digits) => (host, Some(digits)),
                None if rest.is_empty() => (host, None),
                None => return Err(refused("has more after the bracket than a port")),
            },
            Some(_) => return Err(refused("has no IPv6 address in its brackets")),
            None => match text.split_once(':') {
                Some((host, digits)) => (host, Some(digits)),
                None => (text, None),
            },
        };
        let named = host.contains(':') || !host.is_empty() && host.bytes().all(is_of_a_name);
        if !named {
            return Err(refused("names no host"));
        }
        let port = match digits {
            None => port,
            Some(digits) => {
                digits.parse().ok().filter(|&port| port > 0).ok_or_else(|| refused("has no port"))?
            }
        };
        Ok(Self { host: host.to_owned(), port })
    }

    /// Resolves the host's name to addresses.
    ///
    /// # Errors
    /// [`Cause::Name`] when the name cannot be resolved before the deadline.
    pub(crate) async fn look_up(&self, deadline: Deadline) -> Result<Vec<SocketAddr>, Cause> {
        let nameless = |detail| Cause::Name { host: self.host.clone(), detail };
        let found = deadline.wait(tokio::net::lookup_host((self.host.as_str(), self.port))).await;
        let found = found.ok_or_else(|| nameless(deadline.spent("no answer")))?;
        let found: Vec<_> = found.map_err(|error| nameless(error.to_string()))?.take(ADDRESSES_MAX).collect();
        if found.is_empty() { Err(nameless("it is known, but nowhere".into())) } else { Ok(found) }
    }

    /// Connects to the first of `addresses` that accepts.
    ///
    /// # Errors
    /// [`Cause::Unreachable`] with the error of the last address, or when none accepts before the
    /// deadline.
    pub(crate) async fn reach(
        &self,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<TcpStream, Cause> {
        let mut detail = String::new();
        for address in addresses {
            match deadline.wait(TcpStream::connect(address)).await {
                Some(Ok(stream)) => {
                    // Nagle's algorithm would delay small requests until earlier ones are
                    // acknowledged.
                    let _ = stream.set_nodelay(true);
                    // Detects an idle connection that a firewall or NAT has dropped.
                    let _ =
                        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
                    return Ok(stream);
                }
                Some(Err(error)) => detail = error.to_string(),
                None => {
                    detail = deadline.spent("no connection");
                    break;
                }
            }
        }
        Err(Cause::Unreachable { address: self.to_string(), detail })
    }
}

/// A deadline shared by several steps, such as resolving a name and connecting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    timeout: Duration,
    end: Instant,
}

impl Deadline {
    /// Makes a deadline that is `timeout` from now.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, end: Instant::now() + timeout }
    }

    /// Waits for `work` to complete; none if the deadline passes first.
    pub(crate) async fn wait<F: Future>(self, work: F) -> Option<F::Output> {
        timeout_at(self.end, work).await.ok()
    }

    /// Describes the passed deadline as an error does: `what` and the timeout, such as `no answer
    /// within 2000 ms`.
    pub(crate) fn spent(self, what: &str) -> String {
        format!("{what} within {} ms", self.timeout.as_millis())
    }

    /// The time from the start to the deadline.
    pub(crate) fn timeout(self) -> Duration {
        self.timeout
    }
}

/// Formats the address in the form that [`HostPort::parse`] accepts.
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_host_and_port_are_formatted_as_they_were_written() {
        for (text, host, port) in [
            ("127.0.0.1:6379", "127.0.0.1", 6379),
            ("cache-1.example.com:1", "cache-1.example.com", 1),
            ("[::1]:65535", "::1", 65535),
        ] {
            let address = HostPort::parse("address", text, 9).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(HostPort::parse("address", "db", 9).unwrap().to_string(), "db:9");
        assert_eq!(HostPort::parse("address", "[::1]", 9).unwrap().to_string(), "[::1]:9");
    }

    #[test]
    fn invalid_host_and_port_are_refused_with_an_example() {
        for text in
            ["", ":1", "a:", "a:0", "a:65536", "a:b", "::1", "[::1]1", "[x]:1", "a b:1", "user@a:1", "a/b:1"]
        {
            let refused = HostPort::parse("address", text, 9).unwrap_err().to_string();
            assert!(refused.contains("`address`") && refused.contains("127.0.0.1:6379"), "{refused}");
        }
        for text in ["redis://:secret@h:1", "root:secret@127.0.0.1:3306", "secret@h"] {
            let refused = HostPort::parse("address", text, 9).unwrap_err().to_string();
            assert!(refused.contains("(the address ") && !refused.contains("secret"), "{refused}");
        }
    }

    #[tokio::test]
    async fn host_that_does_not_resolve_is_an_error_of_cause_name() {
        let address = HostPort::parse("address", "no-such-host.invalid:1", 9).unwrap();
        let cause = address.look_up(Deadline::new(Duration::from_secs(30))).await.unwrap_err();
        assert!(matches!(&cause, Cause::Name { host, .. } if host == "no-such-host.invalid"), "{cause}");
    }
}
