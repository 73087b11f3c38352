//! Targets of load, by scheme, host and port.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A target, as in `--target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `memcached://host:port`: anything that speaks the memcached text protocol.
    Memcached(String),
    /// `memcached-binary://host:port`: anything that speaks memcached's binary protocol.
    MemcachedBinary(String),
    /// `redis://host:port`, with an optional `/0` after it: anything that speaks RESP2.
    Redis(String),
    /// `http://host:port`: a gateway that answers `POST /v1/requests`.
    Http(String),
}

/// The reason why a target was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The text does not begin with the scheme of a target.
    #[error(
        "target `{0}` is none: give memcached://host:port, memcached-binary://host:port, redis://host:port or \
         http://host:port"
    )]
    Unknown(String),
    /// An address without a port, or with more after the port.
    #[error("target `{0}`: the address has to be host:port with a port from 1 to 65535 and nothing after it")]
    Address(String),
    /// A Redis database other than 0, or a user.
    #[error("target `{0}`: load goes to database 0 and without a password; give redis://host:port")]
    Database(String),
}

impl Target {
    /// Returns the address of the target, `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        let (Self::Memcached(address)
        | Self::MemcachedBinary(address)
        | Self::Redis(address)
        | Self::Http(address)) = self;
        address
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| TargetError::Unknown(text.to_owned()))?;
        let build = match scheme {
            "memcached" => Self::Memcached,
            "memcached-binary" => Self::MemcachedBinary,
            "http" => Self::Http,
            "redis" => Self::Redis,
            _ => return Err(TargetError::Unknown(text.to_owned())),
        };
        let address = rest.strip_suffix('/').unwrap_or(rest);
        let address = match address.split_once('/') {
            Some((address, "0")) if scheme == "redis" => address,
            _ if scheme == "redis" && address.contains(['/', '@']) => {
                return Err(TargetError::Database(text.to_owned()));
            }
            _ => address,
        };
        let valid = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if valid { Ok(build(address.to_owned())) } else { Err(TargetError::Address(text.to_owned())) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self {
            Self::Memcached(_) => "memcached",
            Self::MemcachedBinary(_) => "memcached-binary",
            Self::Redis(_) => "redis",
            Self::Http(_) => "http",
        };
        write!(formatter, "{scheme}://{}", self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_parsed_from_scheme_host_and_port() {
        assert_eq!("memcached://127.0.0.1:11211".parse(), Ok(Target::Memcached("127.0.0.1:11211".into())));
        let binary: Target = "memcached-binary://cache-1:11211".parse().unwrap();
        assert_eq!(binary, Target::MemcachedBinary("cache-1:11211".into()));
        assert_eq!(binary.to_string(), "memcached-binary://cache-1:11211");
        for text in ["redis://localhost:6379", "redis://localhost:6379/", "redis://localhost:6379/0"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target, Target::Redis("localhost:6379".into()));
            assert_eq!(target.to_string(), "redis://localhost:6379");
        }
        assert_eq!("http://[::1]:8080/".parse(), Ok(Target::Http("[::1]:8080".into())));
    }

    #[test]
    fn text_that_is_no_target_is_refused_with_the_accepted_form() {
        for (text, part) in [
            ("redis://localhost:6379/1", "database 0"),
            ("redis://:secret@localhost:6379", "without a password"),
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
