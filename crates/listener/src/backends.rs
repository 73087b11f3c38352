//! The backends behind a listener's cache.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sherwood_model::{Instant, PartitionId};

/// A value that a backend has for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedValue {
    /// The value.
    pub value: Bytes,
    /// The 32 bits that clients of memcached keep beside a value; 0 from other backends.
    pub flags: u32,
}

impl From<Bytes> for FetchedValue {
    /// Creates a value with flags of 0.
    fn from(value: Bytes) -> Self {
        Self { value, flags: 0 }
    }
}

/// The way to the backends, for listeners that share the cache with it.
pub trait Backends: Send + Sync {
    /// Fetches `keys` of a partition whose listener reads through: one result for each key, in
    /// their order. It fills the cache itself. A failure is told in words, and answered as a miss:
    /// inside one `get` the protocol has no error for a single key.
    ///
    /// At most [`FETCH_KEYS_MAX`](super::FETCH_KEYS_MAX) keys come at once; the time-out is the
    /// callee's.
    fn fetch(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
    ) -> BoxFuture<'static, Vec<Result<Option<FetchedValue>, String>>>;

    /// Calls `change`, which stores or removes `key` in the cache, exactly once, and sees to it
    /// that no value fetched before fills the cache afterwards.
    ///
    /// It is a call around the change and not a notice after it: between a removal and a notice a
    /// fetch in flight could still fill. Whoever marks the fetches in flight and calls `change`
    /// under the lock that fills are made under, has done it. `change` locks one shard of the cache
    /// and nothing else.
    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut());

    /// The same for a `change` that flushes the whole partition from the time `at` on, which may be
    /// now or later: no value fetched before `at` fills the partition after it.
    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut());
}
