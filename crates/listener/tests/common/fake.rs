//! Backends for tests, whose answers come from functions.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sherwood_cache::{Access, Cache};
use sherwood_listener::{Backends, FetchResult, KeySet, SharedTrust, StoreChange, StoreFailure};
use sherwood_model::{Instant, PartitionId};

/// The answer to a fetch.
pub(crate) type Fetched = BoxFuture<'static, Vec<FetchResult>>;
/// The answer to a change at a store.
pub(crate) type Stored = BoxFuture<'static, Result<(), StoreFailure>>;

type Fetch<S> = fn(&S, PartitionId, Vec<Bytes>, Option<Duration>) -> Fetched;
type Store<S> = fn(&S, PartitionId, Bytes, StoreChange) -> Stored;
type Note<S> = fn(&S, PartitionId, Noted<'_>);

/// A change of a partition of the cache, reported just before it is made.
pub(crate) enum Noted<'a> {
    /// A change of this key.
    Key(&'a [u8]),
    /// A flush of the whole partition as of this time.
    Flush(Instant),
}

/// Backends with a state `S`, which their functions and the test share. They do not fence keys when
/// the cache changes.
pub(crate) struct FakeBackends<S> {
    state: S,
    fetch: Fetch<S>,
    store: Store<S>,
    note: Note<S>,
    trust: Mutex<SharedTrust>,
    /// The keys of shared partitions whose values the last change of several keys has changed.
    changed: Mutex<KeySet>,
    /// The cache whose values are dropped while they are not trusted.
    shared_cache: Option<Arc<Cache>>,
}

impl<S> FakeBackends<S> {
    /// Creates backends whose fetches `fetch` answers. They have no stores.
    pub(crate) fn new(state: S, fetch: Fetch<S>) -> Self {
        let store: Store<S> = |_, _, _, _| now(Err(StoreFailure::Failed("there is no store".to_owned())));
        Self {
            state,
            fetch,
            store,
            note: |_, _, _| (),
            trust: Mutex::default(),
            changed: Mutex::default(),
            shared_cache: None,
        }
    }

    /// Adds stores; `store` answers the changes sent to them.
    pub(crate) fn storing(self, store: Store<S>) -> Self {
        Self { store, ..self }
    }

    /// Adds a function that is called before each change of the cache, except for changes of
    /// several keys at once.
    pub(crate) fn noting(self, note: Note<S>) -> Self {
        Self { note, ..self }
    }

    /// Adds other nodes that cache the values of `cache`, too; [`trust`](Self::trust) tells what
    /// holds for them.
    pub(crate) fn sharing(self, cache: Arc<Cache>) -> Self {
        Self { shared_cache: Some(cache), ..self }
    }

    /// Sets the trust in shared values, of all partitions alike.
    pub(crate) fn trust(&self, trust: SharedTrust) {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = trust;
    }

    /// Returns the keys of shared partitions whose values the last change of several keys has
    /// changed.
    pub(crate) fn changed(&self) -> KeySet {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shares the backends between a test and its listener.
    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

/// Returns a future that is already complete with `answer`.
pub(crate) fn now<T: Send + 'static>(answer: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(answer))
}

impl<S> Deref for FakeBackends<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S: Send + Sync> Backends for FakeBackends<S> {
    fn fetch(&self, partition: PartitionId, keys: Vec<Bytes>, within: Option<Duration>) -> Fetched {
        (self.fetch)(&self.state, partition, keys, within)
    }

    fn store(&self, partition: PartitionId, key: Bytes, change: StoreChange) -> Stored {
        (self.store)(&self.state, partition, key, change)
    }

    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut() -> bool) {
        (self.note)(&self.state, partition, Noted::Key(key));
        change();
    }

    fn refuses_changes(&self, _: PartitionId) -> bool {
        self.shared_trust().refuses_changes
    }

    fn shared_trust(&self) -> SharedTrust {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_untrusted(&self, partition: PartitionId, key: &[u8]) {
        if let Some(cache) = self.shared_cache.as_ref().filter(|_| self.shared_trust().doubts_values) {
            cache.remove(partition, key, &Access::at(Instant::ZERO));
        }
    }

    fn write_all(
        &self,
        _: &[(PartitionId, &[u8])],
        _: &[PartitionId],
        _: Instant,
        change: &mut dyn FnMut() -> KeySet,
    ) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = change();
    }

    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut()) {
        (self.note)(&self.state, partition, Noted::Flush(at));
        change();
    }
}
