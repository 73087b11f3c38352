//! Simple commands and their answers, in each protocol that listeners speak.

use sherwood_listener::VERSION;

/// The protocols that listeners speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Memcached,
    Redis,
}

/// Every protocol that listeners speak.
pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Memcached, Protocol::Redis];

impl Protocol {
    /// A command without effect in this protocol, and its answer.
    pub(crate) fn ping(self) -> (&'static str, String) {
        match self {
            Self::Memcached => ("version\r\n", format!("VERSION {VERSION}\r\n")),
            Self::Redis => ("PING\r\n", "+PONG\r\n".to_owned()),
        }
    }

    pub(crate) fn set(self, key: &str, value: &str) -> String {
        let (key_bytes, value_bytes) = (key.len(), value.len());
        match self {
            Self::Memcached => format!("set {key} 0 0 {value_bytes}\r\n{value}\r\n"),
            Self::Redis => {
                format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n{key}\r\n${value_bytes}\r\n{value}\r\n")
            }
        }
    }

    pub(crate) fn stored(self) -> &'static str {
        match self {
            Self::Memcached => "STORED\r\n",
            Self::Redis => "+OK\r\n",
        }
    }

    pub(crate) fn get(self, key: &str) -> String {
        match self {
            Self::Memcached => format!("get {key}\r\n"),
            Self::Redis => format!("GET {key}\r\n"),
        }
    }

    pub(crate) fn found(self, key: &str, value: &str) -> String {
        let bytes = value.len();
        match self {
            Self::Memcached => format!("VALUE {key} 0 {bytes}\r\n{value}\r\nEND\r\n"),
            Self::Redis => format!("${bytes}\r\n{value}\r\n"),
        }
    }

    pub(crate) fn missed(self) -> &'static str {
        match self {
            Self::Memcached => "END\r\n",
            Self::Redis => "$-1\r\n",
        }
    }

    pub(crate) fn too_large(self) -> &'static str {
        match self {
            Self::Memcached => "SERVER_ERROR object too large for cache\r\n",
            Self::Redis => "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n",
        }
    }

    pub(crate) fn too_many(self) -> &'static str {
        match self {
            Self::Memcached => "ERROR Too many open connections\r\n",
            Self::Redis => "-ERR max number of clients reached\r\n",
        }
    }
}
