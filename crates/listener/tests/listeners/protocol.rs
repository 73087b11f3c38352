//! Simple commands and their answers, in each protocol that listeners speak.

use sherwood_listener::{Protocol, VERSION};

/// Commands of a protocol, and their answers.
pub(crate) trait Commands {
    /// A command without effect in this protocol, and its answer.
    fn ping(self) -> (&'static str, String);

    /// A command that stores a value.
    fn set(self, key: &str, value: &str) -> String;

    /// The answer to a command that stored a value.
    fn stored(self) -> &'static str;

    /// A command that reads a value.
    fn get(self, key: &str) -> String;

    /// The answer to a read of a key that has this value.
    fn found(self, key: &str, value: &str) -> String;

    /// The answer to a read of a key without a value.
    fn missed(self) -> &'static str;

    /// The answer to a value that is too large.
    fn too_large(self) -> &'static str;

    /// The answer to a client over the limit on connections.
    fn too_many(self) -> &'static str;
}

impl Commands for Protocol {
    fn ping(self) -> (&'static str, String) {
        match self {
            Self::Memcached => ("version\r\n", format!("VERSION {VERSION}\r\n")),
            Self::Redis => ("PING\r\n", "+PONG\r\n".to_owned()),
        }
    }

    fn set(self, key: &str, value: &str) -> String {
        let (key_bytes, value_bytes) = (key.len(), value.len());
        match self {
            Self::Memcached => format!("set {key} 0 0 {value_bytes}\r\n{value}\r\n"),
            Self::Redis => {
                format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n{key}\r\n${value_bytes}\r\n{value}\r\n")
            }
        }
    }

    fn stored(self) -> &'static str {
        match self {
            Self::Memcached => "STORED\r\n",
            Self::Redis => "+OK\r\n",
        }
    }

    fn get(self, key: &str) -> String {
        match self {
            Self::Memcached => format!("get {key}\r\n"),
            Self::Redis => format!("GET {key}\r\n"),
        }
    }

    fn found(self, key: &str, value: &str) -> String {
        let bytes = value.len();
        match self {
            Self::Memcached => format!("VALUE {key} 0 {bytes}\r\n{value}\r\nEND\r\n"),
            Self::Redis => format!("${bytes}\r\n{value}\r\n"),
        }
    }

    fn missed(self) -> &'static str {
        match self {
            Self::Memcached => "END\r\n",
            Self::Redis => "$-1\r\n",
        }
    }

    fn too_large(self) -> &'static str {
        match self {
            Self::Memcached => "SERVER_ERROR object too large for cache\r\n",
            Self::Redis => "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n",
        }
    }

    fn too_many(self) -> &'static str {
        match self {
            Self::Memcached => "ERROR Too many open connections\r\n",
            Self::Redis => "-ERR max number of clients reached\r\n",
        }
    }
}
