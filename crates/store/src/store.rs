//! What every backend offers, embedded or remote.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use sherwood_model::Tags;

use crate::{Attempt, Limit, LimitError, Limits, StoreError};

/// A future on the heap, so that stores of different kinds fit behind one trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A backend: answers reads of many keys, and takes writes where its kind allows them.
///
/// The futures do nothing until polled. Dropping one abandons the call: work not yet started is
/// skipped, work under way ends and its answer is thrown away, so an abandoned write may or may not
/// have happened.
pub trait Store: Send + Sync + 'static {
    /// The name of the backend this store answers for, as used in logs and errors.
    fn name(&self) -> &str;

    /// What does the work.
    fn kind(&self) -> Kind;

    /// Reads `keys` in one call. The answer has one entry per key, in the order of the keys; `None`
    /// means that the store holds no such key.
    ///
    /// A call for no keys answers none, but takes the way of any other call: through the queue, the
    /// limits and a thread of the store, or to the server, which may be asked for a key that need
    /// not be there. So it is how to ask whether the store still answers.
    ///
    /// # Errors
    /// The whole call fails or none of it: see [`StoreError::fault`] for whether trying again can
    /// help.
    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>>;

    /// As [`get_many`](Self::get_many), but where the store can tell which keys have no answer, the
    /// others have theirs: of values too large to be taken, say, or of what a service fails at or
    /// declines key by key. By default it cannot.
    ///
    /// # Errors
    /// As of [`get_many`](Self::get_many), for what befalls the call as a whole. Those of a key say
    /// nothing of the store, whatever their [`Fault`](crate::Fault): it works.
    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<KeyAnswer>, StoreError>> {
        Box::pin(async move { Ok(self.get_many(keys).await?.into_iter().map(Ok).collect()) })
    }

    /// Stores `value` under `key`, replacing what was there. Once acknowledged, later reads of this
    /// store answer it, as durably as the kind keeps anything.
    ///
    /// # Errors
    /// When the kind cannot be written to, or the call failed; [`StoreError::fault`] says whether
    /// it may have been done.
    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Removes `key`; removing an absent key succeeds.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Whether a read of a key that was just written finds what was written, byte for byte, and the
    /// store says nothing more of it. Then a cache may keep what was written; else it has to ask.
    fn answers_as_written(&self) -> bool {
        true
    }

    /// The limits in force; by default none, as of a store whose work is done elsewhere.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Changes one limit, from now on: calls already running are not interrupted, calls that wait
    /// see it at once.
    ///
    /// # Errors
    /// When the value is out of range, or no limit of ours reaches to where the work is done, which
    /// is the default.
    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        limit.validate()?;
        Err(LimitError::Remote)
    }

    /// Processor time that the store's own threads have used since it was opened; zero when none of
    /// its work is done by threads of its own. Costs a system call or two for each of them.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    /// A first look: whether the store answers, and what it is. By default a call for no keys.
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

/// What a first look at a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Product and version of what answered.
    pub server: String,
    /// What else is to be known, a line each: the way to it, its database.
    pub details: Vec<String>,
}

/// What became of one key of a call that was answered: what the store has for it, or why it alone
/// has no answer.
pub type KeyAnswer = Result<Option<Found>, StoreError>;

/// What a store has for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The value.
    pub value: Bytes,
    /// The 32 bits that clients of memcached keep beside a value; 0 in other stores.
    pub flags: u32,
    /// How long the store says that the value is good for, zero for not beyond this answer; none
    /// where it says nothing.
    pub good_for: Option<Duration>,
    /// What it may be invalidated by, beside its key.
    pub tags: Tags,
}

impl From<Bytes> for Found {
    /// A value of which the store says nothing more.
    fn from(value: Bytes) -> Self {
        Self { value, ..Self::default() }
    }
}

/// What does the work of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A log-structured merge tree on disk.
    Kv,
    /// An indexed join in an SQLite file.
    Sqlite,
    /// A matrix product.
    Compute,
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
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kv => "kv",
            Self::Sqlite => "sqlite",
            Self::Compute => "compute",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
            Self::Http => "http",
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
        })
    }
}
