//! Options of stores, as in the configuration file.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;

use crate::range::{self, check};
use crate::{
    AwsCredentials, CassandraOptions, DynamoDbOptions, HttpOptions, MemcachedOptions, OpenCause,
    RedisOptions, RemoteOptions, SqlOptions, StoreKind, ZookeeperOptions,
};

/// Options of one store, as in the configuration file: `kind` selects the variant.
///
/// ```
/// use sherwood_store::StoreOptions;
/// let options: StoreOptions = serde_json::from_str(r#"{"kind": "kv", "path": "/var/lib/catalog"}"#).unwrap();
/// let StoreOptions::Kv(kv) = options else { panic!() };
/// assert_eq!(kv.cache_bytes, 4 << 20);
/// assert!(serde_json::from_str::<StoreOptions>(r#"{"kind": "kv", "path": "/x", "cashe_bytes": 1}"#).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StoreOptions {
    /// Options of a key-value store on disk.
    Kv(KvOptions),
    /// Options of a store in an SQLite file.
    Sqlite(SqliteOptions),
    /// Options of a store whose values are matrix products.
    Compute(ComputeOptions),
    /// Options of a store whose values are made from their keys, after a fixed time.
    Synthetic(SyntheticOptions),
    /// Options of a store on a memcached server.
    Memcached(MemcachedOptions),
    /// Options of a store on a Redis or Valkey server.
    Redis(RedisOptions),
    /// Options of a store behind an HTTP service.
    Http(HttpOptions),
    /// Options of a store on a MySQL or MariaDB server.
    #[serde(rename = "mysql")]
    MySql(SqlOptions),
    /// Options of a store on a PostgreSQL server.
    Postgres(SqlOptions),
    /// Options of a store in a table of DynamoDB.
    #[serde(rename = "dynamodb")]
    DynamoDb(DynamoDbOptions),
    /// Options of a store on a ZooKeeper server.
    Zookeeper(ZookeeperOptions),
    /// Options of a store in a table of Cassandra.
    Cassandra(CassandraOptions),
}

impl StoreOptions {
    /// Range of the bytes that a store on disk keeps in memory.
    pub const CACHE_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 40;
    /// Range of the number of threads of an embedded store.
    pub const THREADS: RangeInclusive<u16> = 1..=64;
    /// Range of the number of calls that may wait for a thread of the store.
    pub const QUEUED_CALLS_MAX: RangeInclusive<u32> = range::QUEUED_CALLS_MAX;

    /// The kind of store these options open.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        match self {
            Self::Kv(_) => StoreKind::Kv,
            Self::Sqlite(_) => StoreKind::Sqlite,
            Self::Compute(_) => StoreKind::Compute,
            Self::Synthetic(_) => StoreKind::Synthetic,
            Self::Memcached(_) => StoreKind::Memcached,
            Self::Redis(_) => StoreKind::Redis,
            Self::Http(_) => StoreKind::Http,
            Self::MySql(_) => StoreKind::MySql,
            Self::Postgres(_) => StoreKind::Postgres,
            Self::DynamoDb(_) => StoreKind::DynamoDb,
            Self::Zookeeper(_) => StoreKind::Zookeeper,
            Self::Cassandra(_) => StoreKind::Cassandra,
        }
    }

    /// Returns true if the node can keep such stores equal by an ordered log of their changes.
    #[must_use]
    pub fn can_be_duplicate(&self) -> bool {
        matches!(self, Self::Memcached(_) | Self::Redis(_) | Self::Zookeeper(_) | Self::Cassandra(_))
    }

    /// Bytes of memory the store keeps for data it has read. It is outside the memory budget of the
    /// node's cache.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        match self {
            Self::Kv(kv) => kv.cache_bytes,
            Self::Sqlite(sqlite) => sqlite.cache_bytes,
            Self::Compute(_) | Self::Synthetic(_) => 0,
            Self::Memcached(_) | Self::Redis(_) | Self::Http(_) => 0,
            Self::MySql(_) | Self::Postgres(_) | Self::DynamoDb(_) => 0,
            Self::Zookeeper(_) | Self::Cassandra(_) => 0,
        }
    }

    /// Most connections of the store to its server; 0 for an embedded store.
    #[must_use]
    pub fn connections_max(&self) -> u16 {
        match self {
            Self::Kv(_) | Self::Sqlite(_) | Self::Compute(_) | Self::Synthetic(_) => 0,
            Self::Memcached(memcached) => memcached.remote.connections_max,
            Self::Redis(redis) => redis.remote.connections_max,
            Self::Http(http) => http.remote.connections_max,
            Self::DynamoDb(dynamo_db) => dynamo_db.remote.connections_max,
            Self::Cassandra(cassandra) => cassandra.remote.connections_max,
            // Calls share one.
            Self::Zookeeper(_) => 1,
            // As many connections again may be cancelling statements.
            Self::MySql(sql) | Self::Postgres(sql) => sql.remote.connections_max.saturating_mul(2),
        }
    }

    /// The options that determine the values read from the store, with defaults for all others:
    /// bounds, times, threads, TLS, consistency and the places of secrets. Stores with equal
    /// sources have the same values.
    #[must_use]
    pub fn source(&self) -> Self {
        let mut source = self.clone();
        match &mut source {
            Self::Kv(kv) => *kv = KvOptions::new(&kv.path),
            Self::Sqlite(sqlite) => {
                *sqlite = SqliteOptions { query: sqlite.query.take(), ..SqliteOptions::new(&sqlite.path) };
            }
            Self::Compute(ComputeOptions { n, bytes, threads, queued_calls_max }) => {
                let default = ComputeOptions { n: *n, bytes: *bytes, ..ComputeOptions::default() };
                (*threads, *queued_calls_max) = (default.threads, default.queued_calls_max);
            }
            Self::Memcached(MemcachedOptions { password, remote, .. })
            | Self::Redis(RedisOptions { password, remote, .. })
            | Self::MySql(SqlOptions { password, remote, .. })
            | Self::Postgres(SqlOptions { password, remote, .. })
            | Self::Zookeeper(ZookeeperOptions { password, remote, .. })
            | Self::Cassandra(CassandraOptions { password, remote, .. }) => {
                (*password, *remote) = (None, RemoteOptions::default());
            }
            Self::Synthetic(synthetic) => synthetic.latency_us = default_latency_us(),
            Self::Http(http) => http.remote = RemoteOptions::default(),
            Self::DynamoDb(DynamoDbOptions { consistent, credentials, remote, .. }) => {
                (*consistent, *credentials) = (false, AwsCredentials::default());
                *remote = RemoteOptions::default();
            }
        }
        source
    }

    /// Checks everything that needs neither a file nor a server: ranges, addresses and templates.
    ///
    /// # Errors
    /// The first option that cannot be used, with its remedy.
    pub fn validate(&self) -> Result<(), OpenCause> {
        self.check_built()?;
        match self {
            Self::Kv(kv) => kv.validate(),
            Self::Sqlite(sqlite) => sqlite.validate(),
            Self::Compute(compute) => compute.validate(),
            Self::Synthetic(synthetic) => synthetic.validate(),
            Self::Memcached(memcached) => memcached.validate(),
            Self::Redis(redis) => redis.validate(),
            Self::Http(http) => http.validate(),
            Self::DynamoDb(dynamo_db) => dynamo_db.validate(),
            Self::Zookeeper(zookeeper) => zookeeper.validate(),
            Self::Cassandra(cassandra) => cassandra.validate(),
            Self::MySql(sql) | Self::Postgres(sql) => sql.validate(self.kind()),
        }
    }

    /// Checks that this program contains the connector.
    pub(crate) fn check_built(&self) -> Result<(), OpenCause> {
        let is_built = self.kind() != StoreKind::Zookeeper || cfg!(feature = "zookeeper");
        let is_built = is_built && (self.kind() != StoreKind::Cassandra || cfg!(feature = "cassandra"));
        if is_built {
            return Ok(());
        }
        Err(OpenCause::Remote {
            option: "kind",
            detail: format!("this program is built without the connector of {} stores", self.kind()),
            remedy: "build it with the Cargo feature of the kind's name, such as `cargo build --release -p sherwood --features zookeeper`",
        })
    }

    /// True if the store runs in this process, false if it is a connector to a server.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        matches!(self, Self::Kv(_) | Self::Sqlite(_) | Self::Compute(_) | Self::Synthetic(_))
    }
}

/// Options of a key-value store on disk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvOptions {
    /// Directory of the store, created if it is absent.
    pub path: PathBuf,
    /// Block cache in bytes, 64 KiB to 1 TiB; 4 MiB by default. Writes need up to three write
    /// buffers of 4 MiB in addition.
    #[serde(default = "default_cache_bytes")]
    pub cache_bytes: u64,
    /// Threads that read and write, 1 to 64; 2 by default.
    #[serde(default = "default_threads")]
    pub threads: u16,
    /// Calls that may wait for a thread, 1 to 1,000,000; 1,024 by default. One more is refused.
    #[serde(default = "default_queued_calls_max")]
    pub queued_calls_max: u32,
}

impl KvOptions {
    /// Defaults for a store at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache_bytes: default_cache_bytes(),
            threads: default_threads(),
            queued_calls_max: default_queued_calls_max(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { path: _, cache_bytes, threads, queued_calls_max } = self;
        check_cache_bytes(*cache_bytes)?;
        check_calls(*threads, *queued_calls_max)
    }
}

/// Options of an SQLite store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqliteOptions {
    /// The database file. It is created, with the default tables, if it is absent and there is no
    /// `query`.
    pub path: PathBuf,
    /// The read statement, for existing tables; without it the store creates and joins two tables
    /// of its own.
    ///
    /// Two forms. With one parameter `?1`, the key: it runs once per key and returns one column,
    /// the value. With the word `:keys` in an `IN (:keys)`: it runs once per up to 256 keys and
    /// returns two columns, key and value. Keys are always bound, as text when they are valid
    /// UTF-8, never inserted into its text. A store with a `query` is read-only.
    ///
    /// With `:keys`, a row answers each key that SQLite considers equal to its key column: the row
    /// `3` of an INTEGER column answers `03`, and `abc` of a NOCASE column `ABC`. Keys that are
    /// spelled differently from their row may take further statements, at most two for each key.
    #[serde(default)]
    pub query: Option<String>,
    /// Page caches of all connections together, in bytes, 64 KiB to 1 TiB; 4 MiB by default.
    #[serde(default = "default_cache_bytes")]
    pub cache_bytes: u64,
    /// Threads, each with a read connection of its own, 1 to 64; 2 by default. They share one more
    /// connection for writing.
    #[serde(default = "default_threads")]
    pub threads: u16,
    /// Calls that may wait for a thread, 1 to 1,000,000; 1,024 by default. One more is refused.
    #[serde(default = "default_queued_calls_max")]
    pub queued_calls_max: u32,
}

impl SqliteOptions {
    /// Defaults for a store at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            query: None,
            cache_bytes: default_cache_bytes(),
            threads: default_threads(),
            queued_calls_max: default_queued_calls_max(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { path: _, query: _, cache_bytes, threads, queued_calls_max } = self;
        check_cache_bytes(*cache_bytes)?;
        check_calls(*threads, *queued_calls_max)
    }
}

/// Options of a compute store, whose values are matrix products.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeOptions {
    /// Rows and columns of the matrices, 1 to 1,024; 32 by default. A key costs `n`³
    /// multiplications.
    #[serde(default = "default_n")]
    pub n: u16,
    /// Length of every value in bytes, 1 to 64 MiB; 4 KiB by default.
    #[serde(default = "default_bytes")]
    pub bytes: u32,
    /// Threads that multiply, 1 to 64; 2 by default.
    #[serde(default = "default_threads")]
    pub threads: u16,
    /// Calls that may wait for a thread, 1 to 1,000,000; 1,024 by default. One more is refused.
    #[serde(default = "default_queued_calls_max")]
    pub queued_calls_max: u32,
}

impl Default for ComputeOptions {
    fn default() -> Self {
        Self {
            n: default_n(),
            bytes: default_bytes(),
            threads: default_threads(),
            queued_calls_max: default_queued_calls_max(),
        }
    }
}

impl ComputeOptions {
    /// Range of `n`, the rows and columns of the matrices.
    pub const N: RangeInclusive<u16> = 1..=1_024;
    /// Range of the length of a value in bytes.
    pub const BYTES: RangeInclusive<u32> = 1..=64 << 20;

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { n, bytes, threads, queued_calls_max } = self;
        check("n", *n, &Self::N)?;
        check("bytes", *bytes, &Self::BYTES)?;
        check_calls(*threads, *queued_calls_max)
    }
}

/// Options of a synthetic store, whose values are made from their keys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticOptions {
    /// Length of every value in bytes, 1 to 64 MiB; 4 KiB by default.
    #[serde(default = "default_bytes")]
    pub bytes: u32,
    /// Time until every answer in microseconds, 0 to 10,000,000; 5,000 by default.
    #[serde(default = "default_latency_us")]
    pub latency_us: u64,
}

impl Default for SyntheticOptions {
    fn default() -> Self {
        Self { bytes: default_bytes(), latency_us: default_latency_us() }
    }
}

impl SyntheticOptions {
    /// Range of the time until an answer, microseconds.
    pub const LATENCY_US: RangeInclusive<u64> = 0..=10_000_000;

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { bytes, latency_us } = self;
        check("bytes", *bytes, &ComputeOptions::BYTES)?;
        check("latency_us", *latency_us, &Self::LATENCY_US)
    }
}

fn check_cache_bytes(cache_bytes: u64) -> Result<(), OpenCause> {
    check("cache_bytes", cache_bytes, &StoreOptions::CACHE_BYTES)
}

fn check_calls(threads: u16, queued_calls_max: u32) -> Result<(), OpenCause> {
    check("threads", threads, &StoreOptions::THREADS)?;
    check("queued_calls_max", queued_calls_max, &StoreOptions::QUEUED_CALLS_MAX)
}

fn default_cache_bytes() -> u64 {
    4 << 20
}

fn default_threads() -> u16 {
    2
}

fn default_queued_calls_max() -> u32 {
    1024
}

fn default_latency_us() -> u64 {
    5_000
}

fn default_n() -> u16 {
    32
}

fn default_bytes() -> u32 {
    4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_every_kind_are_read_with_defaults() {
        let read = |text: &str| serde_json::from_str::<StoreOptions>(text).unwrap();
        assert_eq!(read(r#"{"kind":"kv","path":"/x"}"#), StoreOptions::Kv(KvOptions::new("/x")));
        assert_eq!(read(r#"{"kind":"sqlite","path":"/x"}"#), StoreOptions::Sqlite(SqliteOptions::new("/x")));
        assert_eq!(read(r#"{"kind":"compute"}"#), StoreOptions::Compute(ComputeOptions::default()));
        let synthetic = StoreOptions::Synthetic(SyntheticOptions { bytes: 9, latency_us: 5_000 });
        assert_eq!(read(r#"{"kind":"synthetic","bytes":9}"#), synthetic);
        let remote = r#"{"kind":"memcached","address":"a:1"}"#;
        assert_eq!(read(remote), StoreOptions::Memcached(MemcachedOptions::new("a:1")));
        assert_eq!(read(r#"{"kind":"redis","address":"a"}"#), StoreOptions::Redis(RedisOptions::new("a")));
        assert_eq!(
            read(r#"{"kind":"http","url":"http://a"}"#),
            StoreOptions::Http(HttpOptions::new("http://a"))
        );
    }

    #[test]
    fn stores_that_differ_in_bounds_and_secrets_have_the_same_source() {
        let source = |text: &str| serde_json::from_str::<StoreOptions>(text).unwrap().source();
        for (one, same, other) in [
            (
                r#"{"kind":"kv","path":"/x"}"#,
                r#"{"kind":"kv","path":"/x","threads":5,"cache_bytes":65536}"#,
                r#"{"kind":"kv","path":"/y"}"#,
            ),
            (
                r#"{"kind":"sqlite","path":"/x","query":"q"}"#,
                r#"{"kind":"sqlite","path":"/x","query":"q","queued_calls_max":5}"#,
                r#"{"kind":"sqlite","path":"/x","query":"r"}"#,
            ),
            (
                r#"{"kind":"compute","n":9}"#,
                r#"{"kind":"compute","n":9,"threads":7}"#,
                r#"{"kind":"compute","n":8}"#,
            ),
            (
                r#"{"kind":"synthetic","bytes":9}"#,
                r#"{"kind":"synthetic","bytes":9,"latency_us":0}"#,
                r#"{"kind":"synthetic","bytes":8}"#,
            ),
            (
                r#"{"kind":"http","url":"http://a"}"#,
                r#"{"kind":"http","url":"http://a","remote":{"connections_max":3}}"#,
                r#"{"kind":"http","url":"http://a","headers":{"accept":"x"}}"#,
            ),
            (
                r#"{"kind":"dynamodb","table":"ttt","region":"r"}"#,
                r#"{"kind":"dynamodb","table":"ttt","region":"r","consistent":true}"#,
                r#"{"kind":"dynamodb","table":"ttt","region":"r","value_attribute":"v"}"#,
            ),
            (
                r#"{"kind":"mysql","address":"a","user":"u","database":"d","query":"q"}"#,
                r#"{"kind":"mysql","address":"a","user":"u","database":"d","query":"q","password":{"env":"P"}}"#,
                r#"{"kind":"mysql","address":"a","user":"v","database":"d","query":"q"}"#,
            ),
        ] {
            assert_eq!(source(one), source(same), "{same}");
            assert_ne!(source(one), source(other), "{other}");
        }
    }

    #[test]
    fn unknown_store_kinds_and_option_names_are_refused() {
        let refused = |text: &str| serde_json::from_str::<StoreOptions>(text).unwrap_err().to_string();
        assert!(refused(r#"{"kind":"rediss"}"#).contains("unknown variant `rediss`"));
        assert!(refused(r#"{"kind":"redis"}"#).contains("missing field `address`"));
        assert!(refused(r#"{"kind":"compute","m":3}"#).contains("unknown field `m`"));
    }

    #[test]
    fn error_of_an_option_out_of_range_names_the_range() {
        let cause = ComputeOptions { n: 0, ..ComputeOptions::default() }.validate().unwrap_err();
        assert_eq!(
            cause.to_string(),
            "`n` is 0, where 1 to 1024 is accepted; change it in the store's options"
        );
    }
}
