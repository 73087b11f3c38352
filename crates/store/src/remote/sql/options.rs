//! What a configuration says of a MySQL or PostgreSQL store.

use serde::Deserialize;

use crate::remote::options::RemoteOptions;
use crate::remote::secret::Secret;

/// Options of a store on a MySQL, MariaDB or PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlOptions {
    /// Host and port, as in `127.0.0.1:3306` or `[::1]:5432`, 3306 and 5432 where it has none; or
    /// `unix:` and the path of a socket.
    pub address: String,
    /// Who the server is to take us for.
    pub user: String,
    /// Where the user's password is; none where the server asks for none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// The database that the statements mean.
    pub database: String,
    /// The statement that reads. With `:key`, or parts of the key `:key.1`, `:key.2`, it reads one
    /// key and answers one row; a second row is not looked at. With `IN (:keys)` it reads up to 256
    /// keys, and its first column says which key a row answers, byte for byte as text.
    pub query: String,
    /// The statement that stores `:value` under `:key`; without it the store takes no writes.
    #[serde(default)]
    pub write: Option<String>,
    /// The statement that removes `:key`; without it the store takes no removals.
    #[serde(default)]
    pub delete: Option<String>,
    /// What of a row is the value; one column by default.
    #[serde(default)]
    pub value: SqlValue,
    /// The column that says for how many seconds the value is good.
    #[serde(default)]
    pub ttl_column: Option<String>,
    /// The column that says what the value may be invalidated by: tags split by commas.
    #[serde(default)]
    pub tags_column: Option<String>,
    /// How the server is dealt with; 8 connections by default. The time for an answer is that of a
    /// statement as a whole.
    #[serde(default = "default_remote")]
    pub remote: RemoteOptions,
}

/// What of a row is the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlValue {
    /// One column: text and bytes as they are, numbers in decimal; null is no value.
    #[default]
    Column,
    /// All columns but those of time to live and tags, as a JSON object: bytes as base64, times as
    /// text.
    Json,
}

impl SqlOptions {
    /// Defaults for a store at `address` that only reads.
    #[must_use]
    pub fn new(
        address: impl Into<String>,
        user: impl Into<String>,
        database: impl Into<String>,
        query: impl Into<String>,
    ) -> Self {
        Self {
            address: address.into(),
            user: user.into(),
            password: None,
            database: database.into(),
            query: query.into(),
            write: None,
            delete: None,
            value: SqlValue::default(),
            ttl_column: None,
            tags_column: None,
            remote: default_remote(),
        }
    }
}

/// A statement has its connection alone, so there are more of them than where answers are
/// pipelined.
fn default_remote() -> RemoteOptions {
    RemoteOptions { connections_max: 8, ..RemoteOptions::default() }
}
