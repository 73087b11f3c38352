//! What a configuration says of a MySQL or PostgreSQL store.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

use crate::options::check;
use crate::remote::secret::Secret;
use crate::remote::tls::TlsOptions;
use crate::{OpenCause, StoreOptions};

/// Options of a store on a MySQL, MariaDB or PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlOptions {
    /// Host and port, as in `127.0.0.1:3306` or `[::1]:5432`, or `unix:` and the path of a socket.
    pub address: String,
    /// Who the server is to take us for.
    pub user: String,
    /// Where the user's password is; none where the server asks for none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// The database that the statements mean.
    pub database: String,
    /// The statement that reads. With `:key`, or parts of the key `:key.1`, `:key.2`, it reads one key and answers one row; a
    /// second row is not looked at. With `IN (:keys)` it reads up to 256 keys, and its first column says which key a row
    /// answers, byte for byte as text.
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
    /// Connections open at a time, 1 to 256; 8 by default.
    #[serde(default = "default_connections_max")]
    pub connections_max: u16,
    /// Milliseconds for a connection to be there, with name, encryption and log-in, 1 to 600,000; 2,000 by default.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u32,
    /// Bytes that a value to write, and the answer of a statement, may have, 1 KiB to 1 GiB; 16 MiB by default.
    #[serde(default = "default_value_max")]
    pub value_max: u64,
    /// Calls that may wait for a connection, 1 to 1,000,000; 1,024 by default. One more is refused.
    #[serde(default = "default_queued_calls_max")]
    pub queued_calls_max: u32,
    /// How connections are encrypted; none where they are not.
    #[serde(default)]
    pub tls: Option<TlsOptions>,
}

/// What of a row is the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlValue {
    /// One column: text and bytes as they are, numbers in decimal; null is no value.
    #[default]
    Column,
    /// All columns but those of time to live and tags, as a JSON object: bytes as base64, times as text.
    Json,
}

impl SqlOptions {
    /// Connections a store may have.
    pub const CONNECTIONS_MAX: RangeInclusive<u16> = 1..=256;
    /// Milliseconds that connecting may be told to take.
    pub const CONNECT_TIMEOUT_MS: RangeInclusive<u32> = 1..=600_000;
    /// Bytes that an answer may be allowed.
    pub const VALUE_MAX: RangeInclusive<u64> = 1 << 10..=1 << 30;

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
            connections_max: default_connections_max(),
            connect_timeout_ms: default_connect_timeout_ms(),
            value_max: default_value_max(),
            queued_calls_max: default_queued_calls_max(),
            tls: None,
        }
    }

    pub(super) fn validate(&self) -> Result<(), OpenCause> {
        check("connections_max", self.connections_max, &Self::CONNECTIONS_MAX)?;
        check("connect_timeout_ms", self.connect_timeout_ms, &Self::CONNECT_TIMEOUT_MS)?;
        check("value_max", self.value_max, &Self::VALUE_MAX)?;
        check("queued_calls_max", self.queued_calls_max, &StoreOptions::QUEUED_CALLS_MAX)
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms.into())
    }
}

fn default_connections_max() -> u16 {
    8
}

fn default_connect_timeout_ms() -> u32 {
    2_000
}

fn default_value_max() -> u64 {
    16 << 20
}

fn default_queued_calls_max() -> u32 {
    1_024
}
