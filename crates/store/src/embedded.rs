//! Stores that run in this process: the [`Store`] trait over a pool of threads with one session
//! each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::clock::{Clock, MachineClock};
use crate::pool::{Job, Pool, Reply};
use crate::remote::{self, DynamoDb, Http, Memcached, Redis};
use crate::session::Session;
use crate::synthetic::Synthetic;
use crate::{
    Attempt, BoxFuture, Cause, ComputeOptions, Found, Limit, LimitError, Limits, OpenCause, OpenError, Store,
    StoreError, StoreKind, StoreOptions, ValueBytes, compute, kv, sqlite,
};

/// Opens the store that `options` describe, under the name of its backend.
///
/// An embedded one reads and writes files and starts threads, so this blocks: call it before the
/// runtime serves requests. Dropping the last reference joins the threads, which takes as long as
/// the calls they are in. A connector only reads the files of its secrets and certificates; its
/// server need not be reachable yet. Its calls have to be made in a task of a tokio runtime.
///
/// # Errors
/// [`OpenError`] names store, path, cause and remedy.
///
/// # Examples
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use sherwood_store::{ComputeOptions, StoreOptions, open};
/// let store = open("prices", &StoreOptions::Compute(ComputeOptions { bytes: 100, ..Default::default() })).unwrap();
/// let values = store.get_many(vec!["a".into(), "b".into()]).await.unwrap();
/// assert_eq!(values[0].as_ref().unwrap().value.len(), 100);
/// assert_ne!(values[0], values[1]);
/// assert!(store.put("a".into(), "1".into()).await.is_err());
/// # });
/// ```
pub fn open(name: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, OpenError> {
    let failed = |cause| open_error(name, None, cause);
    options.check_built().map_err(failed)?;
    Ok(match options {
        StoreOptions::Synthetic(options) => Arc::new(Synthetic::open(name, options).map_err(failed)?),
        StoreOptions::Memcached(options) => Arc::new(Memcached::open(name, options).map_err(failed)?),
        StoreOptions::Redis(options) => Arc::new(Redis::open(name, options).map_err(failed)?),
        StoreOptions::Http(options) => Arc::new(Http::open(name, options).map_err(failed)?),
        StoreOptions::MySql(options) => remote::open_mysql(name, options).map_err(failed)?,
        StoreOptions::Postgres(options) => remote::open_postgres(name, options).map_err(failed)?,
        StoreOptions::DynamoDb(options) => Arc::new(DynamoDb::open(name, options).map_err(failed)?),
        #[cfg(feature = "cassandra")]
        StoreOptions::Cassandra(options) => remote::open_cassandra(name, options).map_err(failed)?,
        #[cfg(feature = "zookeeper")]
        StoreOptions::Zookeeper(options) => remote::open_zookeeper(name, options).map_err(failed)?,
        embedded => Arc::new(Embedded::open(name, embedded, Arc::new(MachineClock::new()))?),
    })
}

/// Opens a compute store whose values have the lengths given by `bytes`, instead of the fixed one
/// in `options`.
///
/// # Errors
/// As [`open`].
pub fn open_compute(
    name: &str,
    options: &ComputeOptions,
    bytes: ValueBytes,
) -> Result<Arc<dyn Store>, OpenError> {
    let clock = Arc::new(MachineClock::new());
    Ok(Arc::new(Embedded::open_compute(name, options, bytes, clock)?))
}

/// A store that runs in this process, on threads of its own.
pub(crate) struct Embedded {
    name: Arc<str>,
    kind: StoreKind,
    /// The reason why writes are refused, if the store is read-only. Kept here so that a write is
    /// refused without waiting for a thread.
    read_only: Option<Cause>,
    pool: Pool,
}

impl Embedded {
    pub(crate) fn open(name: &str, options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        match options {
            StoreOptions::Kv(kv) => {
                let failed = |cause| open_error(name, Some(&kv.path), cause);
                let sessions = kv::sessions(kv).map_err(failed)?;
                Self::start(name, StoreKind::Kv, sessions, kv.queued_calls_max, clock).map_err(failed)
            }
            StoreOptions::Sqlite(sqlite) => {
                let failed = |cause| open_error(name, Some(&sqlite.path), cause);
                let sessions = sqlite::sessions(sqlite).map_err(failed)?;
                Self::start(name, StoreKind::Sqlite, sessions, sqlite.queued_calls_max, clock).map_err(failed)
            }
            StoreOptions::Compute(compute) => {
                Self::open_compute(name, compute, ValueBytes::Fixed(compute.bytes), clock)
            }
            StoreOptions::Synthetic(_)
            | StoreOptions::Memcached(_)
            | StoreOptions::Redis(_)
            | StoreOptions::Http(_)
            | StoreOptions::MySql(_)
            | StoreOptions::Postgres(_)
            | StoreOptions::DynamoDb(_)
            | StoreOptions::Zookeeper(_)
            | StoreOptions::Cassandra(_) => {
                unreachable!("stores without threads are opened as what they are")
            }
        }
    }

    fn open_compute(
        name: &str,
        options: &ComputeOptions,
        bytes: ValueBytes,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let failed = |cause| open_error(name, None, cause);
        let sessions = compute::sessions(options, &bytes).map_err(failed)?;
        Self::start(name, StoreKind::Compute, sessions, options.queued_calls_max, clock).map_err(failed)
    }

    fn start(
        name: &str,
        kind: StoreKind,
        sessions: Vec<Box<dyn Session>>,
        queued_calls_max: u32,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenCause> {
        let read_only = sessions.first().and_then(|session| session.read_only());
        let pool = Pool::start(name, sessions, queued_calls_max as usize, clock)
            .map_err(|source| OpenCause::Threads { source })?;
        Ok(Self { name: name.into(), kind, read_only, pool })
    }

    /// Queues the call for a thread of the store, and waits for its answer; `job` makes the call
    /// from the channel for the answer.
    async fn call<T>(&self, attempt: Attempt, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let answered = match self.pool.submit(job(reply)) {
            Ok(()) => answer.await.unwrap_or(Err(Cause::Closed)),
            Err(cause) => Err(cause),
        };
        answered.map_err(|cause| self.error(attempt, cause))
    }

    async fn change(&self, attempt: Attempt, job: impl FnOnce(Reply<()>) -> Job) -> Result<(), StoreError> {
        match &self.read_only {
            Some(cause) => Err(self.error(attempt, cause.clone())),
            None => self.call(attempt, job).await,
        }
    }

    fn error(&self, attempt: Attempt, cause: Cause) -> StoreError {
        StoreError::new(Arc::clone(&self.name), self.kind, attempt, cause)
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Store for Embedded {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        self.kind
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        // A call without keys is queued as well: its answer shows that a thread of the store is
        // available.
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move {
            let values = self.call(attempt, |reply| Job::Get { keys, reply }).await?;
            Ok(values.into_iter().map(|value| value.map(Found::from)).collect())
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.change(Attempt::Put, |reply| Job::Put { key, value, reply }))
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.change(Attempt::Delete, |reply| Job::Delete { key, reply }))
    }

    fn limits(&self) -> Limits {
        self.pool.limits()
    }

    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        limit.validate()?;
        self.pool.set_limit(limit);
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.pool.cpu_time()
    }
}

pub(crate) fn open_error(name: &str, path: Option<&Path>, cause: OpenCause) -> OpenError {
    OpenError { store: name.to_owned(), path: path.map(Path::to_owned), cause }
}

#[cfg(test)]
mod tests;
