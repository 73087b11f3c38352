//! Addresses of database servers: a host and port, or a UNIX socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::escape::quoted;
use crate::remote::host::{Deadline, HostPort};
use crate::{Cause, OpenCause};

/// The address of a database server: a host and port, or a UNIX socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A name or an IP address.
    Tcp(HostPort),
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

const REMEDY: &str = "write a host and a port, such as \"127.0.0.1:3306\", \"db.example.com:5432\" or \"[::1]:3306\", or \"unix:\" and the \
                      path of a socket";

impl Address {
    /// Parses `host:port` as [`HostPort::parse`] does, or `unix:/path`. The port is `port` by
    /// default.
    ///
    /// # Errors
    /// When it is none of these.
    pub(crate) fn parse(text: &str, port: u16) -> Result<Self, OpenCause> {
        let refused = |detail| OpenCause::Remote { option: "address", detail, remedy: REMEDY };
        match text.strip_prefix("unix:") {
            None => HostPort::parse("address", text, port).map(Self::Tcp).map_err(|cause| match cause {
                OpenCause::Remote { detail, .. } => refused(detail),
                cause => cause,
            }),
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => {
                let seen = quoted("address", text);
                Err(refused(format!("{seen} has no whole path, from the first slash on")))
            }
        }
    }

    /// Resolves the host; empty for a UNIX socket.
    ///
    /// # Errors
    /// As [`HostPort::look_up`].
    pub(crate) async fn look_up(&self, deadline: Deadline) -> Result<Vec<SocketAddr>, Cause> {
        match self {
            Self::Tcp(host) => host.look_up(deadline).await,
            Self::Unix(_) => Ok(Vec::new()),
        }
    }

    /// The cause when the database server accepts no connections.
    pub(crate) fn unreachable(&self, detail: impl fmt::Display) -> Cause {
        Cause::Unreachable { address: self.to_string(), detail: detail.to_string() }
    }

    /// The cause when a connection to the database ended early.
    pub(crate) fn reset(&self, detail: impl fmt::Display) -> Cause {
        Cause::Reset { address: self.to_string(), detail: detail.to_string() }
    }

    /// The cause of an I/O error on a connection, while connecting or later.
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

/// True if a connection ended in the middle of a message. The drivers' libraries read messages with
/// a codec of tokio, in which only the text of the error shows this.
pub(crate) fn is_end_within(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == "bytes remaining on stream")
}

/// Formats the address in the form that [`Address::parse`] accepts.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => host.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_database_address_is_formatted_as_it_was_written() {
        for text in ["127.0.0.1:3306", "db.example:1", "[::1]:5432", "unix:/run/my sql.sock"] {
            assert_eq!(Address::parse(text, 9).unwrap().to_string(), text);
        }
        assert_eq!(Address::parse("db", 9).unwrap().to_string(), "db:9");
    }

    #[test]
    fn invalid_database_address_is_refused_with_an_example() {
        for text in ["", "a b:1", "a:0", "unix:run"] {
            let refusal = Address::parse(text, 9).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("`address` cannot be used (\"{text}\"")), "{refusal}");
            assert!(refusal.contains("127.0.0.1:3306") && refusal.contains("\"unix:\""), "{refusal}");
        }
        for text in ["mysql://root:secret@h/shop", "root:secret@127.0.0.1:3306", "unix:root:secret@run"] {
            let refusal = Address::parse(text, 9).unwrap_err().to_string();
            assert!(refusal.contains("(the address ") && !refusal.contains("secret"), "{refusal}");
        }
    }
}
