//! Options of MySQL and PostgreSQL stores.

use serde::Deserialize;

use crate::remote::options::RemoteOptions;
use crate::remote::secret::Secret;

/// Options of a store on a MySQL, MariaDB or PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlOptions {
    /// Host and port, such as `127.0.0.1:3306` or `[::1]:5432`; the port is 3306 or 5432 by
    /// default. Or `unix:` and the path of a socket.
    pub address: String,
    /// The user as whom the connector logs in.
    pub user: String,
    /// The place of the user's password; none if the server requires none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Name of the database in which the statements run.
    pub database: String,
    /// The read statement. With `:key`, or the parts of a key `:key.1`, `:key.2`, it reads one key
    /// and returns one row; a second row is ignored. With `IN (:keys)` it reads up to 256 keys, and
    /// its first column is the row's key, in any spelling that the server considers equal.
    pub query: String,
    /// The statement that stores `:value` under `:key`; without it writes are refused.
    #[serde(default)]
    pub write: Option<String>,
    /// The statement that removes `:key`; without it removals are refused.
    #[serde(default)]
    pub delete: Option<String>,
    /// The columns of a row that are the value; one column by default.
    #[serde(default)]
    pub value: SqlValue,
    /// The column with the time to live in seconds.
    #[serde(default)]
    pub ttl_column: Option<String>,
    /// The column with the tags, separated by commas.
    #[serde(default)]
    pub tags_column: Option<String>,
    /// Options of the connections; 8 connections by default. The answer timeout is for a whole
    /// statement.
    #[serde(default = "default_remote")]
    pub remote: RemoteOptions,
}

/// The columns of a row that are the value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlValue {
    /// A single column: text and bytes unchanged, numbers in decimal; null is no value.
    #[default]
    Column,
    /// All columns except time to live and tags, as a JSON object: bytes in base64, times as text.
    Json,
}

impl SqlOptions {
    /// Defaults for a read-only store at `address`.
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

/// Default options of connections: 8 of them, more than for pipelined protocols, since a statement
/// has a connection of its own.
fn default_remote() -> RemoteOptions {
    RemoteOptions { connections_max: 8, ..RemoteOptions::default() }
}
