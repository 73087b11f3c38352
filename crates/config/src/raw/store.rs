//! `[backend.store]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use sherwood_store::{Secret, TlsOptions};

use super::Key;
use super::text_or_table::{TextOrTable, text_or_table};
use crate::units::{ByteSize, Span};

/// Keys of every kind of store. The keys that a kind accepts are checked during resolution, so that
/// the error can name the kind.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStore {
    /// Embedded: a key-value store on disk (`"kv"`), SQLite, or a product of matrices
    /// (`"compute"`); values made of their keys after a fixed time (`"synthetic"`); or a
    /// [server](backends.md) of this protocol.
    #[schemars(extend("x-required" = true, "enum" = ["kv", "sqlite", "compute", "synthetic", "memcached", "redis", "http", "mysql",
        "postgres", "dynamodb", "zookeeper", "cassandra"]))]
    pub(crate) kind: Key<String>,
    /// The directory, not shared, or the file of the database; required.
    #[schemars(extend("x-kinds" = ["kv", "sqlite"]))]
    pub(crate) path: Key<String>,
    /// The [statement](databases.md) that reads a key; required for mysql and postgres.
    #[schemars(extend("x-kinds" = ["sqlite", "mysql", "postgres"], "x-default" = "sqlite: its own tables"))]
    pub(crate) query: Key<String>,
    /// Memory for the store's own read cache, in addition to the total.
    #[schemars(extend("x-kinds" = ["kv", "sqlite"], "default" = "4MiB", "x-min" = "64KiB", "x-max" = "1TiB"))]
    pub(crate) cache_bytes: Key<ByteSize>,
    /// Rows and columns of the matrices.
    #[schemars(extend("x-kinds" = ["compute"], "default" = 32), range(min = 1, max = 1_024))]
    pub(crate) n: Key<u64>,
    /// Length of every value.
    #[schemars(extend("x-kinds" = ["compute", "synthetic"], "default" = "4KiB", "x-min" = "1B", "x-max" = "64MiB"))]
    pub(crate) bytes: Key<ByteSize>,
    /// Time until every answer; any number of calls at a time. Writes are forgotten, though a cache
    /// before it keeps what was written.
    #[schemars(extend("x-kinds" = ["synthetic"], "default" = "5ms", "x-min" = "0s", "x-max" = "10s"))]
    pub(crate) latency: Key<Span>,
    /// Worker threads.
    #[schemars(extend("x-kinds" = ["kv", "sqlite", "compute"], "default" = 2), range(min = 1, max = 64))]
    pub(crate) threads: Key<u64>,
    /// Calls in flight or queued at a time.
    #[schemars(extend("x-kinds" = ["kv", "sqlite", "compute", "memcached", "redis", "http", "mysql", "postgres",
        "dynamodb", "zookeeper", "cassandra"], "default" = 1024), range(min = 1, max = 1_000_000))]
    pub(crate) queued_calls_max: Key<u64>,
    /// Host and port, or for mysql and postgres `unix:` and a path; required.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "mysql", "postgres", "zookeeper", "cassandra"]))]
    pub(crate) address: Key<String>,
    /// The user that logs in; required for mysql and postgres.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "mysql", "postgres", "zookeeper", "cassandra"], "x-default" = "none"))]
    pub(crate) user: Key<String>,
    /// A file of one line with the password.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "mysql", "postgres", "zookeeper", "cassandra"], "x-default" = "no password"))]
    pub(crate) password_file: Key<String>,
    /// An environment variable with the password, instead of `password_file`.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "mysql", "postgres", "zookeeper", "cassandra"], "x-default" = "no password"))]
    pub(crate) password_env: Key<String>,
    /// The request or statement that writes a key.
    #[schemars(extend("x-kinds" = ["http", "mysql", "postgres"], "x-default" = "not possible"))]
    pub(crate) write: Key<String>,
    /// The request or statement that removes a key.
    #[schemars(extend("x-kinds" = ["http", "mysql", "postgres"], "x-default" = "not possible"))]
    pub(crate) delete: Key<String>,
    /// TLS to the server; `tls = {}` is TLS with all defaults. For http and dynamodb the URL
    /// decides.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "zookeeper", "cassandra"],
        "x-default" = "no TLS"))]
    pub(crate) tls: Key<RawTls>,
    /// Connections open at a time; for http and dynamodb requests.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "cassandra"],
        "x-default" = "4; http, dynamodb 16; mysql, postgres 8"), range(min = 1, max = 1_024))]
    pub(crate) connections_max: Key<u64>,
    /// Limit for name resolution, connection, TLS and login, each; for databases all together.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "zookeeper", "cassandra"],
        "default" = "1s", "x-min" = "10ms", "x-max" = "10m"))]
    pub(crate) connect_timeout: Key<Span>,
    /// Silence after which a connection is given up; less than the backend's timeout.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "zookeeper", "cassandra"],
        "default" = "1500ms", "x-min" = "10ms", "x-max" = "10m"))]
    pub(crate) answer_timeout: Key<Span>,
    /// Longest answer to a call, the values of all its keys together.
    #[schemars(extend("x-kinds" = ["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "zookeeper", "cassandra"],
        "default" = "16MiB", "x-min" = "1KiB", "x-max" = "512MiB"))]
    pub(crate) value_max: Key<ByteSize>,
    /// The URL that is read for a key: `{key}`, its parts between `:`, `{key.1}`, `{key.2}`, …; or
    /// with `{keys}` several at once. Required.
    #[schemars(extend("x-kinds" = ["http"]))]
    pub(crate) url: Key<String>,
    /// Headers of every request: a text, or `{ file = "…", prefix = "…" }` for a secret.
    #[schemars(extend("x-kinds" = ["http"], "x-default" = "none"))]
    pub(crate) headers: Key<BTreeMap<String, RawHeader>>,
    /// Prepended to every key.
    #[schemars(extend("x-kinds" = ["memcached", "redis"], "default" = ""))]
    pub(crate) key_prefix: Key<String>,
    /// Number of the database.
    #[schemars(extend("x-kinds" = ["redis"], "default" = 0), range(min = 0, max = 65_535))]
    pub(crate) db: Key<u64>,
    /// `"server"` asks for the lifetime of every value.
    #[schemars(extend("x-kinds" = ["redis"], "enum" = ["server"], "x-default" = "not asked"))]
    pub(crate) ttl: Key<String>,
    /// Time after which written values expire.
    #[schemars(extend("x-kinds" = ["memcached", "redis"], "x-default" = "never", "x-min" = "1s", "x-max" = "30d"))]
    pub(crate) write_ttl: Key<Span>,
    /// The database of the statements; required.
    #[schemars(extend("x-kinds" = ["mysql", "postgres"]))]
    pub(crate) database: Key<String>,
    /// Of databases `"column"`, or `"json"` for the whole row; of dynamodb the type of the value's
    /// attribute, `"binary"` or `"string"`.
    #[schemars(extend("x-kinds" = ["mysql", "postgres", "dynamodb"], "enum" = ["column", "json", "binary", "string"],
        "x-default" = "column; dynamodb binary"))]
    pub(crate) value: Key<String>,
    /// The column with the value's lifetime in seconds.
    #[schemars(extend("x-kinds" = ["mysql", "postgres"], "x-default" = "none"))]
    pub(crate) ttl_column: Key<String>,
    /// The column with the value's tags, separated by `,`.
    #[schemars(extend("x-kinds" = ["mysql", "postgres"], "x-default" = "none"))]
    pub(crate) tags_column: Key<String>,
    /// The table: name or ARN of that of [DynamoDB](dynamodb.md), or name of that of
    /// [Cassandra](cassandra.md); required.
    #[schemars(extend("x-kinds" = ["dynamodb", "cassandra"]))]
    pub(crate) table: Key<String>,
    /// The region of the table; required.
    #[schemars(extend("x-kinds" = ["dynamodb"]))]
    pub(crate) region: Key<String>,
    /// The URL of the service.
    #[schemars(extend("x-kinds" = ["dynamodb"], "x-default" = "AWS's in the region"))]
    pub(crate) endpoint: Key<String>,
    /// Name of the attribute with the key.
    #[schemars(extend("x-kinds" = ["dynamodb"], "default" = "key"))]
    pub(crate) key_attribute: Key<String>,
    /// Name of the attribute with the value.
    #[schemars(extend("x-kinds" = ["dynamodb"], "default" = "value"))]
    pub(crate) value_attribute: Key<String>,
    /// True for strongly consistent reads, at twice the units.
    #[schemars(extend("x-kinds" = ["dynamodb"], "default" = false))]
    pub(crate) consistent: Key<bool>,
    /// The places of AWS credentials.
    #[schemars(extend("x-kinds" = ["dynamodb"], "x-default" = "the variables of AWS's tools"))]
    pub(crate) credentials: Key<RawCredentials>,
    /// The keyspace of the table; required.
    #[schemars(extend("x-kinds" = ["cassandra"]))]
    pub(crate) keyspace: Key<String>,
    /// Path of the node of [ZooKeeper](zookeeper.md) whose children are the items.
    #[schemars(extend("x-kinds" = ["zookeeper"], "default" = "/sherwood"))]
    pub(crate) root: Key<String>,
    /// The [scheduler](tickets.md#a-backend-that-takes-turns) that gives turns to its calls: its
    /// URL, or a table.
    #[schemars(extend("x-default" = "no turns"))]
    pub(crate) tickets: Key<RawTickets>,
}

/// The scheduler of a replica: its URL alone, or with the access to it.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum RawTickets {
    Url(String),
    Access(RawTicketsAccess),
}

impl<'de> Deserialize<'de> for RawTickets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let accepted = "a URL, or { url = \"https://host:port\", token_file = \"run/token\" }";
        Ok(match text_or_table(deserializer, accepted)? {
            TextOrTable::Text(text) => Self::Url(text),
            TextOrTable::Table(table) => Self::Access(table),
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTicketsAccess {
    /// The URL, http or https with host and port, and with the scheduler's name unless that is
    /// `default`.
    #[schemars(extend("x-required" = true))]
    pub(crate) url: String,
    /// A file of one line with a token of the scheduler's node.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) token_file: Option<PathBuf>,
    /// TLS options for https.
    #[schemars(with = "RawTls")]
    pub(crate) tls: TlsOptions,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTls {
    /// PEM file of the authority that signs the server's certificate.
    #[schemars(extend("x-default" = "those that the system trusts"))]
    pub(crate) ca: Key<String>,
    /// PEM file of a client certificate.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) cert: Key<String>,
    /// PEM file of its key.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) key: Key<String>,
    /// The name in the server's certificate.
    #[schemars(extend("x-default" = "the host"))]
    pub(crate) server_name: Key<String>,
}

/// The places of AWS credentials.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCredentials {
    /// The identifier of the key: `{ env = "NAME" }` or `{ file = "PATH" }`.
    #[schemars(extend("x-required" = true), schema_with = "place")]
    pub(crate) access_key_id: Key<Secret>,
    /// The secret, likewise.
    #[schemars(extend("x-required" = true), schema_with = "place")]
    pub(crate) secret_access_key: Key<Secret>,
    /// The token of temporary credentials, likewise.
    #[schemars(schema_with = "place", extend("x-default" = "none"))]
    pub(crate) session_token: Key<Secret>,
}

/// Schema of [`Secret`].
fn place(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": { "env": { "type": "string" }, "file": { "type": "string" } },
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
    })
}

/// Value of a header: literal, or read from a file.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum RawHeader {
    Text(String),
    File(RawHeaderFile),
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let accepted = "a text in quotes, or { file = \"run/token\", prefix = \"Bearer \" }";
        Ok(match text_or_table(deserializer, accepted)? {
            TextOrTable::Text(text) => Self::Text(text),
            TextOrTable::Table(table) => Self::File(table),
        })
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawHeaderFile {
    /// A file of one line.
    pub(crate) file: PathBuf,
    /// Text before what the file contains.
    #[serde(default)]
    pub(crate) prefix: String,
}
