//! Addresses of listeners: an IP address and a port, or a UNIX socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address that a listener accepts connections at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address. Port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A UNIX socket: a file that processes on the same machine connect to.
    Unix(UnixSocket),
}

/// The address of a UNIX socket: a file that processes on the same machine connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// The path of the socket's file: 1 to [`PATH_BYTES_MAX`](Self::PATH_BYTES_MAX) bytes.
    pub path: PathBuf,
    /// Mode bits of the file: connecting requires write permission.
    pub permissions: u32,
}

impl UnixSocket {
    /// Maximum length of a path in bytes: the system's limit.
    pub const PATH_BYTES_MAX: usize = 107;
    /// Default permissions of a socket's file: only the owner may connect.
    pub const PERMISSIONS: u32 = 0o700;
}

impl Address {
    /// Returns the IP address and port of a TCP address; none for a UNIX socket.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns the UNIX socket; none for a TCP address.
    #[must_use]
    pub fn unix(&self) -> Option<&UnixSocket> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(place) => Some(place),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(UnixSocket { path, .. }) => write!(f, "unix:{}", path.display()),
        }
    }
}
