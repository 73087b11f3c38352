//! Options of a Cassandra server.

use serde::Deserialize;

use crate::OpenCause;
use crate::escape::quoted;
use crate::remote::host::HostPort;
use crate::remote::options::{self, RemoteOptions};
use crate::remote::secret::Secret;

/// Default port of Cassandra.
pub(crate) const PORT: u16 = 9042;

/// Longest name of a keyspace or a table.
const NAME_BYTES_MAX: usize = 48;

/// Options of a Cassandra server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CassandraOptions {
    /// Host and port of one server, which coordinates all requests; the port is 9042 by default.
    pub address: String,
    /// The keyspace of the table.
    pub keyspace: String,
    /// The table with the items: its primary key is the column `key`, a blob, and it has a column
    /// `value`, a blob.
    pub table: String,
    /// User who logs in; with `password`.
    #[serde(default)]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Options of the connections to the server.
    #[serde(default)]
    pub remote: RemoteOptions,
}

impl CassandraOptions {
    /// Defaults for a table of the server at `address`.
    #[must_use]
    pub fn new(address: impl Into<String>, keyspace: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            keyspace: keyspace.into(),
            table: table.into(),
            user: None,
            password: None,
            remote: RemoteOptions::default(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { address, keyspace, table, user, password, remote } = self;
        remote.validate()?;
        HostPort::parse("address", address, PORT)?;
        for (option, name) in [("keyspace", keyspace), ("table", table)] {
            let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_of_a_name) {
                return Err(OpenCause::Remote {
                    option,
                    detail: format!("{} is no name", quoted(option, name)),
                    remedy: "write 1 to 48 letters, digits and `_`, in the spelling that the server shows",
                });
            }
        }
        if user.is_some() == password.is_some() { Ok(()) } else { Err(options::half_a_login()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cassandra_options_that_cannot_be_used_are_refused_by_name() {
        let options = CassandraOptions::new("127.0.0.1", "shop", "items");
        assert!(options.validate().is_ok());
        let refusal = |options: CassandraOptions| options.validate().unwrap_err().to_string();
        for name in ["", "a b", "a\"b", "a.b", &"x".repeat(49)] {
            let keyspace = refusal(CassandraOptions { keyspace: name.into(), ..options.clone() });
            assert!(keyspace.starts_with("`keyspace` cannot be used"), "{keyspace}");
            let table = refusal(CassandraOptions { table: name.into(), ..options.clone() });
            assert!(table.starts_with("`table` cannot be used"), "{table}");
        }
        let user = CassandraOptions { user: Some("a".into()), ..options };
        assert!(refusal(user).contains("password_file"));
    }
}
