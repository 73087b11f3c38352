//! The backends from which listeners fetch misses, and which learn of changes of the cache.

use std::collections::HashSet;
use std::time::Duration;

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

/// The reason why a backend has returned no answer for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The fetch was refused at once, because its answer was expected too late.
    Rejected {
        /// The time after which the answer was expected.
        expected: Duration,
    },
    /// The fetch was refused at once for this reason, which tells the client when to try again.
    Refused(String),
    /// A bound was reached, with the reason for people.
    Overloaded(String),
    /// The backend did not answer in time, with the reason for people.
    TimedOut(String),
    /// The fetch has failed, with the reason for people.
    Failed(String),
}

/// The result of a key's fetch: its value, none if the backend has none.
pub type FetchResult = Result<Option<FetchedValue>, FetchFailure>;

impl FetchFailure {
    /// Returns the text for the client if the fetch was rejected or refused. Other failures are
    /// answered as misses.
    pub(crate) fn rejection(&self) -> Option<String> {
        match self {
            Self::Rejected { expected } => {
                let ms = expected.as_micros() as f64 / 1e3;
                Some(format!("the answer is expected after {ms} ms, too late"))
            }
            Self::Refused(reason) => Some(reason.clone()),
            Self::Overloaded(_) | Self::TimedOut(_) | Self::Failed(_) => None,
        }
    }
}

/// The reason why a store has not acknowledged a change, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The change was refused at once because of its client's rate. The text tells when to try
    /// again.
    Refused(String),
    /// The backend did not answer in time.
    TimedOut(String),
    /// The change has failed.
    Failed(String),
}

/// A change that a client of a write-through listener makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// Stores a value.
    Put {
        /// The value.
        value: Bytes,
        /// The time until which the cache may keep the value; the store keeps it for ever.
        expires: Option<Instant>,
    },
    /// Deletes the key.
    Delete,
}

/// Keys of partitions.
pub type KeySet = HashSet<(PartitionId, Bytes)>;

/// The present trust in the values of partitions that other nodes cache, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTrust {
    /// True if changes of other nodes may be missing in cached values, so that
    /// [`Backends::drop_untrusted`] has to be called for each key that is read.
    pub doubts_values: bool,
    /// True if some changes are refused, so that [`Backends::refuses_changes`] has to be asked for
    /// each.
    pub refuses_changes: bool,
}

/// Backends of the listeners that share a cache: they answer misses and learn of changes.
pub trait Backends: Send + Sync {
    /// Fetches `keys` of a read-through partition and fills the cache: one result per key, in their
    /// order. `within` is the time within which the client wants the values, if it has said so;
    /// they are also used later. memcached's `get` answers a key that failed as a miss, since it
    /// has no error for a single key, unless it was rejected or refused and the command has no
    /// other keys; Redis' commands answer the error in its place.
    ///
    /// At most [`FETCH_KEYS_MAX`](super::FETCH_KEYS_MAX) keys come at once; the callee applies a
    /// timeout.
    fn fetch(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
        within: Option<Duration>,
    ) -> BoxFuture<'static, Vec<FetchResult>>;

    /// Returns true if keys may have deadlines of which their clients do not know, which
    /// [`within`](Self::within) returns. Asked once, when a listener starts.
    fn have_deadlines(&self) -> bool {
        false
    }

    /// Returns the time within which a key of a partition is wanted if its client states none.
    fn within(&self, partition: PartitionId, key: &[u8]) -> Option<Duration> {
        let _ = (partition, key);
        None
    }

    /// Makes a change at the store of a write-through partition, and in the cache. Ends within the
    /// backend's timeout. If the store has not acknowledged the change, the cache does not have the
    /// key, and the error is the reason.
    fn store(
        &self,
        partition: PartitionId,
        key: Bytes,
        change: StoreChange,
    ) -> BoxFuture<'static, Result<(), StoreFailure>> {
        let _ = (partition, key, change);
        Box::pin(std::future::ready(Err(StoreFailure::Failed("there is no store".to_owned()))))
    }

    /// Calls `change`, which stores or removes `key` in the cache, exactly once, and fences the
    /// key: afterwards no value fetched before can fill the cache.
    ///
    /// The change is made inside this call because a fetch in flight could still fill the cache
    /// between a removal and a later notification. Implementations mark the fetches in flight and
    /// call `change` under the lock that fills hold. `change` locks one shard of the cache and
    /// nothing else. It returns false if the value has stayed, as when only its lifetime changes.
    fn write(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut() -> bool);

    /// Calls `change` like [`write`](Self::write), which stores `key` if the cache does not have
    /// it: the client has read the value from its store, and has not changed that.
    fn fill(&self, partition: PartitionId, key: &[u8], change: &mut dyn FnMut() -> bool) {
        self.write(partition, key, change);
    }

    /// Returns true while clients may not change a shared partition, since the other nodes would
    /// miss the change and go on with older values.
    fn refuses_changes(&self, partition: PartitionId) -> bool;

    /// Returns the trust in shared partitions now. An answer may be used for all commands received
    /// before it was asked: a value that a read may use which begins now, an earlier read may use,
    /// too. A change by such a command may also be made: if a reason to refuse it arises meanwhile,
    /// it counts as made before. So a listener asks once for each input, and again for each portion
    /// of a long command.
    fn shared_trust(&self) -> SharedTrust;

    /// Drops the cached value of a key if other nodes cache the partition, too, and their changes
    /// may be missing, so that it may not be used.
    fn drop_untrusted(&self, partition: PartitionId, key: &[u8]);

    /// Calls `change`, which may change the keys `written` and flushes the partitions `flushed` as
    /// of the time `at`, exactly once, and fences all of them like [`write`](Self::write) and
    /// [`flush`](Self::flush). It returns those keys of shared partitions whose values have not
    /// stayed.
    ///
    /// `change` is called under the locks of all backends concerned, taken in an order that is the
    /// same for all callers. It locks shards of the cache in ascending order and nothing else.
    fn write_all(
        &self,
        written: &[(PartitionId, &[u8])],
        flushed: &[PartitionId],
        at: Instant,
        change: &mut dyn FnMut() -> KeySet,
    );

    /// Calls `change` like [`write`](Self::write), for a flush of the whole partition as of the
    /// time `at`, which may be now or later: no value fetched before `at` fills the partition after
    /// it.
    fn flush(&self, partition: PartitionId, at: Instant, change: &mut dyn FnMut());
}
