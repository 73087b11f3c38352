//! Where a server is, and how to get there.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::{Cause, OpenCause};

/// A host and port, or a UNIX socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A name or an IP address, without the brackets that IPv6 is written in.
    Tcp {
        /// The name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a socket.
    Unix(PathBuf),
}

const REMEDY: &str =
    "write a host and a port, such as \"127.0.0.1:3306\" or \"[::1]:3306\", or \"unix:\" and a path";

impl Address {
    /// Reads `host:port`, `[ipv6]:port` or `unix:/path`.
    ///
    /// # Errors
    /// When it is none of these.
    pub(crate) fn parse(text: &str) -> Result<Self, OpenCause> {
        let refused =
            || OpenCause::Remote { option: "address", detail: format!("\"{text}\""), remedy: REMEDY };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(refused()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(refused)?;
        let host = match host.strip_prefix('[') {
            Some(v6) => {
                let v6 = v6.strip_suffix(']').filter(|v6| v6.parse::<Ipv6Addr>().is_ok());
                v6.ok_or_else(refused)?
            }
            None => host,
        };
        let is_bare_v6 = host.contains(':') && !text.starts_with('[');
        if host.is_empty() || is_bare_v6 || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(refused());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// Where the system finds the server; empty for a UNIX socket, which needs no name.
    ///
    /// # Errors
    /// [`Cause::Name`] when the host's name has no address, or none by then.
    pub(crate) async fn resolve(&self, patience: Patience) -> Result<Vec<SocketAddr>, Cause> {
        let Self::Tcp { host, port } = self else { return Ok(Vec::new()) };
        let unknown = |detail| Cause::Name { host: host.clone(), detail };
        let found = patience.wait(tokio::net::lookup_host((host.clone(), *port))).await;
        let found = found.ok_or_else(|| unknown(patience.spent("no answer")))?;
        let found: Vec<_> = found.map_err(|error| unknown(error.to_string()))?.collect();
        if found.is_empty() { Err(unknown("no address".into())) } else { Ok(found) }
    }

    /// What it says of a server that takes no connections there.
    pub(crate) fn unreachable(&self, detail: impl fmt::Display) -> Cause {
        Cause::Unreachable { address: self.to_string(), detail: detail.to_string() }
    }

    /// What it says of a server that took the connection and then nothing came.
    pub(crate) fn silent(&self, patience: Patience) -> Cause {
        let waited_ms = u64::try_from(patience.timeout.as_millis()).unwrap_or(u64::MAX);
        Cause::Silent { address: self.to_string(), waited_ms }
    }

    /// What it says of a connection that ended before its time.
    pub(crate) fn reset(&self, detail: impl fmt::Display) -> Cause {
        Cause::Reset { address: self.to_string(), detail: detail.to_string() }
    }

    /// What it says of a connection whose socket failed at once, or later.
    pub(crate) fn io(&self, error: &io::Error) -> Cause {
        match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable => self.unreachable(error),
            _ => self.reset(error),
        }
    }
}

/// Connects to the first of `found` that takes a connection.
///
/// # Errors
/// What the last one said.
pub(crate) async fn connect(found: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in found {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How long connecting may take, all steps together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    timeout: Duration,
    end: Instant,
}

impl Patience {
    /// From now on.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, end: Instant::now() + timeout }
    }

    /// What comes in time, or none.
    pub(crate) async fn wait<F: Future>(self, work: F) -> Option<F::Output> {
        tokio::time::timeout_at(self.end, work).await.ok()
    }

    /// In words: `no answer within 2000 ms`.
    pub(crate) fn spent(self, what: &str) -> String {
        format!("{what} within {} ms", self.timeout.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_sockets_and_ipv6_are_read_and_shown_alike() {
        for text in ["127.0.0.1:3306", "db.example:1", "[::1]:5432", "unix:/run/my sql.sock"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Address::parse("[::1]:1").unwrap(), Address::Tcp { host: "::1".into(), port: 1 });
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for text in
            ["", "db", ":1", "db:", "db:0", "db:70000", "::1:5432", "[db]:1", "[::1:1", "unix:run", "a b:1"]
        {
            let refusal = Address::parse(text).unwrap_err().to_string();
            assert!(
                refusal.starts_with(&format!("`address` cannot be used (\"{text}\"); write a host")),
                "{refusal}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_told_apart() {
        let address = Address::parse("no-such-host.invalid:1").unwrap();
        let cause = address.resolve(Patience::new(Duration::from_secs(30))).await.unwrap_err();
        assert!(matches!(&cause, Cause::Name { host, .. } if host == "no-such-host.invalid"), "{cause}");
    }
}
