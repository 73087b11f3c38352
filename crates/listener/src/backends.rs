//! The backends from which listeners fetch misses, and which learn of changes of the cache.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sherwood_model::{Instant, PartitionId};

/// A value that a backend returned for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedValue {
    /// The value that the backend returned.
    pub value: Bytes,
    /// Flags: the 32 bits that memcached's clients store with a value; 0 from other backends.
    pub flags: u32,
}

impl From<Bytes> for FetchedValue {
    /// Creates a value with flags of 0.
    fn from(value: Bytes) -> Self {
        Self { value, flags: 0 }
    }
}

/// Backends of the listeners that share a cache: they answer misses and learn of changes.
pub trait Backends: Send + Sync {
    /// Fetches `keys` of a read-through partition and fills the cache: one result per key, in their
    /// order. A failure is returned as text and answered as a miss, since `get` has no error for a
    /// single key.
    ///
    /// At most [`FETCH_KEYS_MAX`](super::FETCH_KEYS_MAX) keys come at once; the callee applies a
    /// timeout.
    fn fetch(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
    ) -> BoxFuture<'static, Vec<Result<Option<FetchedValue>, String>>>;

    /// Calls `change`, which stores or removes `key` in the cache, exactly once, and fences the
    /// key: afterwards no value fetched before can fill the cache.
    ///
    /// The change is made inside this call because a fetch in flight could still fill the cache
    /// between a removal and a later notification. Implementations mark the fetches in flight and
    /// call `change` under the lock that fills hold. `change` locks one shard of the cache and
    /// nothing else.
    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut());

    /// Calls `change` like [`write`](Self::write), for a flush of the whole partition as of the
    /// time `at`, which may be now or later: no value fetched before `at` fills the partition after
    /// it.
    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut());
}
