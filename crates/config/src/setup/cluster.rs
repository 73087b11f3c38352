//! A node's place in a cluster, and its access to the messages of the others.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use sherwood_store::TlsOptions;

/// A node's place in a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSetup {
    /// Name of the cluster: 1 to 64 of `a-z`, `0-9` and `-`, a token of NATS' subjects.
    pub name: String,
    /// Name of this node, one of `nodes`.
    pub node: String,
    /// Distinct names of all nodes, 1 to 64 of the same characters, in the order of the file.
    pub nodes: Vec<String>,
    /// Each node's share of the total of every resource, in the order of `nodes`; their sum is 1.
    pub weights: Vec<f64>,
    /// Names of the nodes that merge all requests and publish what they counted, the preferred one
    /// first; if empty, every node merges all.
    pub statistics: Vec<String>,
    /// Access to NATS.
    pub bus: BusSetup,
}

/// Access to NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusSetup {
    /// Servers, 1 to 16.
    pub servers: Vec<BusServer>,
    /// The secret that the node presents; none for servers that require none.
    pub credentials: Option<BusCredentials>,
    /// Options of TLS, which every connection then uses; if none, only servers with `tls://` do, by
    /// the system's authorities.
    pub tls: Option<TlsOptions>,
}

/// The secret by which a node logs in at NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusCredentials {
    /// A credentials file of NATS, with a JWT and the seed of an nkey.
    File(PathBuf),
    /// A user, and the file of one line with its password.
    Password {
        /// Name of the user.
        user: String,
        /// File of the password.
        password_file: PathBuf,
    },
    /// A file of one line with a token.
    Token(PathBuf),
}

/// A server of NATS: `nats://host:port`, or `tls://` for TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct BusServer {
    is_tls: bool,
    authority: Authority,
    port: u16,
}

/// The error of a text that is not the URL of a server of NATS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be nats:// or tls://, a host, a port, and nothing else")]
pub struct NoBusServer;

impl BusServer {
    /// True for `tls`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host; an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns true if the server is on this machine by its name: `localhost` or a loopback
    /// address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host() == "localhost" || self.host().parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl FromStr for BusServer {
    type Err = NoBusServer;

    fn from_str(text: &str) -> Result<Self, NoBusServer> {
        let uri: Uri = text.parse().map_err(|_| NoBusServer)?;
        let parts = uri.into_parts();
        let is_tls = match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("nats") => false,
            Some("tls") => true,
            _ => return Err(NoBusServer),
        };
        let authority = parts.authority.ok_or(NoBusServer)?;
        let port = authority.port_u16().ok_or(NoBusServer)?;
        let path = parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str);
        if authority.as_str().contains('@') || authority.host().is_empty() || path != "/" {
            return Err(NoBusServer);
        }
        Ok(Self { is_tls, authority, port })
    }
}

impl fmt::Display for BusServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_tls, authority, port: _ } = self;
        write!(f, "{}://{authority}", if *is_tls { "tls" } else { "nats" })
    }
}

impl fmt::Debug for BusServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_server_needs_scheme_host_and_port_and_has_no_user() {
        let server = |text: &str| text.parse::<BusServer>();
        let bus = server("nats://[::1]:4222").unwrap();
        assert_eq!((bus.host(), bus.port(), bus.is_tls(), bus.is_loopback()), ("::1", 4222, false, true));
        assert_eq!(bus.to_string(), "nats://[::1]:4222");
        let bus = server("tls://bus.example:4222/").unwrap();
        assert_eq!((bus.host(), bus.is_tls(), bus.is_loopback()), ("bus.example", true, false));
        assert!(server("nats://localhost:1").unwrap().is_loopback());
        assert!(!server("nats://10.0.0.1:1").unwrap().is_loopback());
        for wrong in
            ["", "127.0.0.1:4222", "ws://a:1", "nats://a", "nats://a:1/b", "nats://u:p@a:1", "nats://:1"]
        {
            assert_eq!(server(wrong), Err(NoBusServer), "{wrong}");
        }
    }
}
