//! Targets of load, by scheme, host and port.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::cache::Protocol;

/// A target, as in `--target`: `SCHEME://host:port`, for Redis with an optional `/0` after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server at the address.
    pub kind: TargetKind,
    /// True if connections speak TLS.
    pub tls: bool,
    /// `host:port`.
    pub address: String,
}

/// The kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A cache that speaks this protocol.
    Cache(Protocol),
    /// A gateway that answers `POST /v1/requests`.
    Gateway,
}

/// The schemes of targets, without and with TLS.
const SCHEMES: [(TargetKind, [&str; 2]); 4] = [
    (TargetKind::Cache(Protocol::Memcached), ["memcached", "memcacheds"]),
    (TargetKind::Cache(Protocol::MemcachedBinary), ["memcached-binary", "memcacheds-binary"]),
    (TargetKind::Cache(Protocol::Redis), ["redis", "rediss"]),
    (TargetKind::Gateway, ["http", "https"]),
];

/// The reason why a target was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The text does not begin with the scheme of a target.
    #[error(
        "target `{0}` is none: give memcached://host:port, memcached-binary://host:port, redis://host:port or \
         http://host:port, with TLS memcacheds://, memcacheds-binary://, rediss:// or https://"
    )]
    Unknown(String),
    /// An address without a port, or with more after the port.
    #[error("target `{0}`: the address has to be host:port with a port from 1 to 65535 and nothing after it")]
    Address(String),
    /// A Redis database other than 0, or a user.
    #[error(
        "target `{0}`: load goes to database 0, and a password is read from --password-file; give redis://host:port"
    )]
    Database(String),
}

impl Target {
    /// Returns the host of the address, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let unknown = || TargetError::Unknown(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        let of = |(kind, schemes): (TargetKind, [&str; 2])| {
            schemes.iter().position(|&known| known == scheme).map(|at| (kind, at == 1))
        };
        let (kind, tls) = SCHEMES.into_iter().find_map(of).ok_or_else(unknown)?;
        let is_redis = kind == TargetKind::Cache(Protocol::Redis);
        let address = rest.strip_suffix('/').unwrap_or(rest);
        let address = match address.split_once('/') {
            Some((address, "0")) if is_redis => address,
            _ if is_redis && address.contains(['/', '@']) => {
                return Err(TargetError::Database(text.to_owned()));
            }
            _ => address,
        };
        let valid = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        let target = Self { kind, tls, address: address.to_owned() };
        if valid { Ok(target) } else { Err(TargetError::Address(text.to_owned())) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = SCHEMES.into_iter().find(|(kind, _)| *kind == self.kind);
        let (_, schemes) = scheme.expect("every kind has its schemes");
        write!(formatter, "{}://{}", schemes[usize::from(self.tls)], self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_parsed_from_scheme_host_and_port() {
        for (text, kind, tls) in [
            ("memcached://127.0.0.1:11211", TargetKind::Cache(Protocol::Memcached), false),
            ("memcacheds://cache-1:11211", TargetKind::Cache(Protocol::Memcached), true),
            ("memcached-binary://cache-1:11211", TargetKind::Cache(Protocol::MemcachedBinary), false),
            ("memcacheds-binary://cache-1:11211", TargetKind::Cache(Protocol::MemcachedBinary), true),
            ("redis://localhost:6379", TargetKind::Cache(Protocol::Redis), false),
            ("rediss://localhost:6379", TargetKind::Cache(Protocol::Redis), true),
            ("http://localhost:8080", TargetKind::Gateway, false),
            ("https://localhost:8080", TargetKind::Gateway, true),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.kind, target.tls, target.to_string()), (kind, tls, text.to_owned()));
        }
        for text in ["redis://localhost:6379/", "redis://localhost:6379/0"] {
            assert_eq!(text.parse::<Target>().unwrap().address, "localhost:6379");
        }
        let target: Target = "http://[::1]:8080/".parse().unwrap();
        assert_eq!((target.address.as_str(), target.host()), ("[::1]:8080", "::1"));
    }

    #[test]
    fn text_that_is_no_target_is_refused_with_the_accepted_form() {
        for (text, part) in [
            ("redis://localhost:6379/1", "database 0"),
            ("redis://:secret@localhost:6379", "--password-file"),
            ("redis://localhost", "host:port with a port"),
            ("localhost:11211", "memcached://host:port"),
            ("ftp://localhost:21", "memcached://host:port"),
            ("memcached://localhost", "host:port with a port"),
            ("http://localhost:80/v1", "nothing after it"),
            ("http://localhost:0", "1 to 65535"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
