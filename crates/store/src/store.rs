//! The interface of all stores, embedded and remote.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use sherwood_model::Tags;

use crate::{Attempt, Duplicate, Limit, LimitError, Limits, StoreError};

/// A boxed future, so that stores of all kinds share one trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A backend: answers reads of many keys, and accepts writes if its kind allows them.
///
/// The futures do nothing until polled. Dropping one abandons the call: work not started is
/// skipped, work in progress ends and its answer is discarded, so an abandoned write may or may not
/// have happened.
pub trait Store: Send + Sync + 'static {
    /// The name of the store's backend, as used in logs and errors.
    fn name(&self) -> &str;

    /// The kind of the store.
    fn kind(&self) -> StoreKind;

    /// Reads `keys` in one call. The answer has one entry per key, in the order of the keys; `None`
    /// means that the store holds no such key.
    ///
    /// A call without keys returns an empty answer, but is executed like any other call: it passes
    /// the queue, the limits and a thread of the store, or goes to the server, which may be asked
    /// for a key that need not exist. It can be used to check that the store works.
    ///
    /// # Errors
    /// The call fails as a whole. [`StoreError::fault`] tells if a retry can help.
    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>>;

    /// Like [`get_many`](Self::get_many), but keys can fail individually: because their values are
    /// too large, for example, or because a service fails or refuses them one by one. The default
    /// implementation fails as a whole.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many), for failures of the whole call. An error of a single key
    /// does not mean that the store has failed, whatever its [`Fault`](crate::Fault).
    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        Box::pin(async move {
            let each: Vec<KeyAnswer> = self.get_many(keys).await?.into_iter().map(Ok).collect();
            Ok(each.into())
        })
    }

    /// Stores `value` under `key`, replacing an existing value. Once acknowledged, later reads of
    /// this store return it, with the durability of its kind.
    ///
    /// # Errors
    /// When the kind is read-only, or the call failed; [`StoreError::fault`] tells if it may have
    /// been done.
    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Removes `key`; removing an absent key succeeds.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// True if a read of a key returns the written value, byte for byte, without any other
    /// properties. A cache may then keep the written value; otherwise it has to read it.
    /// The answer is the same for the life of the store.
    fn answers_as_written(&self) -> bool {
        true
    }

    /// The limits in force; none by default, as for a connector.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Changes one limit at once. Running calls are not interrupted; the limit applies to waiting
    /// calls.
    ///
    /// # Errors
    /// When the value is out of range, or the store has no limits, which is the default.
    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        limit.validate()?;
        Err(LimitError::Remote)
    }

    /// Processor time of the store's threads since it was opened; zero for a store without threads
    /// of its own. Takes one or two system calls per thread.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The capacity units that the store's answers have reported since it was opened; none for a
    /// store whose kind reports none, which is the default. Calls that were dropped before their
    /// answer are not included.
    fn consumed_units(&self) -> Option<ConsumedUnits> {
        None
    }

    /// The store as a duplicate of a replicated logical store; none, which is the default, if its
    /// kind cannot be one.
    fn as_duplicate(&self) -> Option<&dyn Duplicate> {
        None
    }

    /// Checks that the store answers, and identifies it. By default a call without keys.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        Box::pin(async move {
            let asked = self.get_many(Vec::new()).await;
            asked.map_err(|error| {
                StoreError::new(self.name(), self.kind(), Attempt::Check, error.cause().clone())
            })?;
            Ok(Report { server: format!("{} in this process", self.kind()), details: Vec::new() })
        })
    }
}

/// The result of [`Store::check`], which identifies the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Product and version of the server or embedded engine.
    pub server: String,
    /// More information, one line each: the connection, the database.
    pub details: Vec<String>,
}

/// The result of one key of a call that succeeded: the value if the key exists, or the error of
/// this key alone.
pub type KeyAnswer = Result<Option<Found>, StoreError>;

/// The answer to a call of [`Store::get_each`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyAnswers {
    /// The results of the keys, in their order.
    pub each: Vec<KeyAnswer>,
    /// Units of read capacity that the call consumed, by the store's answer; none if the store
    /// reports none.
    pub units: Option<f64>,
}

impl From<Vec<KeyAnswer>> for KeyAnswers {
    /// Makes an answer of a store that does not report units.
    fn from(each: Vec<KeyAnswer>) -> Self {
        Self { each, units: None }
    }
}

/// Units of capacity consumed, as a store reports them: in DynamoDB, a read unit is 4 KiB of an
/// item, or half of one with eventual consistency, and a write unit 1 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConsumedUnits {
    /// Units of reads.
    pub reads: f64,
    /// Units of writes and removals.
    pub writes: f64,
}

/// A value that a store returned, with its properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The value's bytes, as the store returned them.
    pub value: Bytes,
    /// The client flags of memcached, 32 bits; 0 in other stores.
    pub flags: u32,
    /// The time, stated by the store, for which the value is fresh and may be reused; zero if it
    /// must not be reused, none if the store states none.
    pub good_for: Option<Duration>,
    /// The tags by which the value may be invalidated, besides its key.
    pub tags: Tags,
}

impl From<Bytes> for Found {
    /// Makes a value without flags, freshness lifetime and tags.
    fn from(value: Bytes) -> Self {
        Self { value, ..Self::default() }
    }
}

/// The kind of a store: its engine, or the protocol of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreKind {
    /// A key-value store on disk, in a log-structured merge tree.
    Kv,
    /// Two joined tables in an SQLite file.
    Sqlite,
    /// Values that are matrix products, computed for each read.
    Compute,
    /// Values made from their keys, after a fixed time.
    Synthetic,
    /// A memcached server.
    Memcached,
    /// A Redis or Valkey server.
    Redis,
    /// An HTTP service.
    Http,
    /// A MySQL or MariaDB server.
    MySql,
    /// A PostgreSQL server.
    Postgres,
    /// A table of DynamoDB.
    DynamoDb,
    /// A ZooKeeper server.
    Zookeeper,
    /// A table of Cassandra.
    Cassandra,
}

impl StoreKind {
    /// True for a store in this process, which can be limited.
    #[must_use]
    pub fn is_embedded(self) -> bool {
        matches!(self, Self::Kv | Self::Sqlite | Self::Compute | Self::Synthetic)
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kv => "kv",
            Self::Sqlite => "sqlite",
            Self::Compute => "compute",
            Self::Synthetic => "synthetic",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
            Self::Http => "http",
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
            Self::DynamoDb => "dynamodb",
            Self::Zookeeper => "zookeeper",
            Self::Cassandra => "cassandra",
        })
    }
}
