//! A store over a client that takes one request about one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::connection::Requested;
use super::{Requests, ends, get_all};
use crate::remote::{CHECK_KEY, Each, RemoteOptions, all, named_each};
use crate::{
    Attempt, BoxFuture, Cause, ChangeConnection, CopyConnection, Duplicate, Found, KeyAnswers, KeyChange,
    KeyPages, Report, Store, StoreError, StoreKind,
};

/// Opens connections to one server.
pub(crate) trait Opener: Send + Sync + 'static {
    /// The requests over a connection.
    type Connection: Requests + Clone;

    /// Opens the connection of calls.
    fn open(&self) -> impl Future<Output = Result<Self::Connection, Cause>> + Send;

    /// Opens a connection for changes, a copy or a walk.
    fn open_own(&self) -> impl Future<Output = Result<Self::Connection, Cause>> + Send {
        self.open()
    }

    /// Identifies the server.
    fn report(&self, connection: &Self::Connection) -> impl Future<Output = Result<Report, Cause>> + Send;

    /// Begins a walk through the keys of the store called `name`.
    fn walk(&self, name: Arc<str>, connection: Self::Connection) -> Box<dyn KeyPages>;
}

/// A store whose calls share one connection. When it ends, the next call opens another one.
pub(crate) struct RequestStore<O: Opener> {
    name: Arc<str>,
    opener: O,
    current: Mutex<Current<O::Connection>>,
    /// Calls that may be in flight or wait for a connection.
    calls: Semaphore,
    queued_calls_max: usize,
    value_bytes_max: u64,
}

/// The connection of calls.
struct Current<R> {
    shared: Option<Shared<R>>,
    /// The last failure to open one, and its time. Calls that waited for that attempt fail with it.
    failure: Option<(Instant, Cause)>,
}

/// A connection that calls share.
#[derive(Clone)]
struct Shared<R> {
    requests: R,
    /// True once a request has failed in a way that ends the connection.
    has_failed: Arc<AtomicBool>,
}

impl<O: Opener> RequestStore<O> {
    const KIND: StoreKind = <O::Connection as Requests>::KIND;

    pub(crate) fn new(name: &str, opener: O, options: &RemoteOptions) -> Self {
        let queued_calls_max = options.queued_calls_max as usize;
        Self {
            name: name.into(),
            opener,
            current: Mutex::new(Current { shared: None, failure: None }),
            calls: Semaphore::new(queued_calls_max),
            queued_calls_max,
            value_bytes_max: options.value_bytes_max,
        }
    }

    /// Returns the connection of calls, which is opened if there is none.
    async fn shared(&self) -> Result<Shared<O::Connection>, Cause> {
        let began = Instant::now();
        let mut current = self.current.lock().await;
        let is_usable = |shared: &&Shared<O::Connection>| {
            shared.requests.is_open() && !shared.has_failed.load(Ordering::Relaxed)
        };
        if let Some(shared) = current.shared.as_ref().filter(is_usable) {
            return Ok(shared.clone());
        }
        current.shared = None;
        if let Some((_, cause)) = current.failure.as_ref().filter(|(at, _)| *at >= began) {
            return Err(cause.clone());
        }
        match self.opener.open().await {
            Ok(requests) => {
                let shared = Shared { requests, has_failed: Arc::default() };
                current.shared = Some(shared.clone());
                Ok(shared)
            }
            Err(cause) => {
                current.failure = Some((Instant::now(), cause.clone()));
                Err(cause)
            }
        }
    }

    /// Executes a call over the connection of calls.
    async fn call<T, F: Future<Output = Result<T, Cause>>>(
        &self,
        work: impl FnOnce(O::Connection) -> F,
    ) -> Result<T, Cause> {
        let full = |_| Cause::Overloaded { queued_calls_max: self.queued_calls_max };
        let _permit = self.calls.try_acquire().map_err(full)?;
        let shared = self.shared().await?;
        let result = work(shared.requests).await;
        if result.as_ref().is_err_and(ends) {
            shared.has_failed.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn read(&self, keys: Vec<Bytes>) -> Result<Vec<Each>, Cause> {
        self.call(|requests| async move {
            if keys.is_empty() {
                return match requests.get(&CHECK_KEY.into()).await {
                    // The check key is not among the user's keys, but others may be.
                    Ok(_) | Err(Cause::Forbidden { .. }) => Ok(Vec::new()),
                    Err(cause) => Err(cause),
                };
            }
            let values = get_all(&requests, &keys, self.value_bytes_max).await;
            // The end of the connection concerns all keys.
            if let Some(Err(cause)) = values.iter().find(|value| value.as_ref().is_err_and(ends)) {
                return Err(cause.clone());
            }
            Ok(values.into_iter().map(|value| Ok(value?.map(Found::from))).collect())
        })
        .await
    }

    async fn change(&self, key: Bytes, value: Option<Bytes>) -> Result<(), Cause> {
        self.call(|requests| async move { requests.make(KeyChange { key, value }).await }).await
    }

    async fn report(&self) -> Result<Report, Cause> {
        self.read(Vec::new()).await?;
        self.call(|requests| async move { self.opener.report(&requests).await }).await
    }

    fn named<T>(&self, attempt: Attempt, result: Result<T, Cause>) -> Result<T, StoreError> {
        result.map_err(|cause| StoreError::new(Arc::clone(&self.name), Self::KIND, attempt, cause))
    }

    /// Opens a connection that calls do not use.
    async fn own(&self) -> Result<O::Connection, StoreError> {
        self.named(Attempt::Connect, self.opener.open_own().await)
    }

    async fn requested(&self) -> Result<Requested<O::Connection>, StoreError> {
        Ok(Requested::new(&self.name, self.own().await?, self.value_bytes_max))
    }
}

impl<O: Opener> Store for RequestStore<O> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        Self::KIND
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move { self.named(attempt, self.read(keys).await.and_then(all)) })
    }

    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move {
            Ok(named_each(&self.name, Self::KIND, self.named(attempt, self.read(keys).await)?))
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Put, self.change(key, Some(value)).await) })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Delete, self.change(key, None).await) })
    }

    fn as_duplicate(&self) -> Option<&dyn Duplicate> {
        Some(self)
    }

    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        Box::pin(async move { self.named(Attempt::Check, self.report().await) })
    }
}

impl<O: Opener> Duplicate for RequestStore<O> {
    fn connect(&self, partition: u32) -> BoxFuture<'_, Result<Box<dyn ChangeConnection>, StoreError>> {
        Box::pin(async move {
            let requested = self.requested().await?.for_partition(partition);
            Ok(Box::new(requested) as Box<dyn ChangeConnection>)
        })
    }

    fn connect_for_copy(&self) -> BoxFuture<'_, Result<Box<dyn CopyConnection>, StoreError>> {
        Box::pin(async move { Ok(Box::new(self.requested().await?) as Box<dyn CopyConnection>) })
    }

    fn walk(&self) -> BoxFuture<'_, Result<Box<dyn KeyPages>, StoreError>> {
        Box::pin(async move {
            let connection = self.own().await?;
            Ok(self.opener.walk(Arc::clone(&self.name), connection))
        })
    }
}
