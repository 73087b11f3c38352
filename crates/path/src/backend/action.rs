//! Inputs and outputs of the state machine of a backend.

use std::time::Duration;

use sherwood_dispatch::{AttemptId, CancelReason, FetchError, LogRecord, Waiters};
use sherwood_model::{Demand, Instant, PartitionId, ReplicaId, TenantId};

use super::change::Change;
use super::duplicates::{DuplicateStep, Logged, Session};
use super::key::FetchKey;
use crate::{ChangedKeys, WriteId, WriteOutcome};

/// An instruction to the driver. The driver may carry it out late: fills and removals have been
/// made by then, by the input that caused them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K, V, W> {
    /// Ask a replica for keys, then report with [`Backend::handle_reply`].
    ///
    /// [`Backend::handle_reply`]: super::Backend::handle_reply
    Call {
        /// The id of this call, to report the reply with.
        attempt: AttemptId,
        /// The replica to ask.
        replica: ReplicaId,
        /// At least one key, none twice. The reply answers in this order.
        keys: Vec<FetchKey<K>>,
        /// The most urgent demand (deadline, class) of all waiters of the keys.
        demand: Demand,
        /// The time at which the keys were asked for, or a further attempt was made: the call has
        /// waited since.
        since: Instant,
        /// Time left for the reply. After it an [`Action::Cancel`] follows.
        timeout: Duration,
    },
    /// End a call and free what it holds. A reply that still comes is ignored.
    Cancel {
        /// The attempt of an earlier [`Action::Call`].
        attempt: AttemptId,
        /// The replica that the call went to.
        replica: ReplicaId,
        /// The reason why the reply is no longer needed.
        reason: CancelReason,
    },
    /// Ask a replica that is down for one key, then report with [`Backend::handle_probe`].
    ///
    /// [`Backend::handle_probe`]: super::Backend::handle_probe
    Probe {
        /// The replica to ask.
        replica: ReplicaId,
        /// The key to ask for. None while no key is known: then any cheap request will do.
        key: Option<FetchKey<K>>,
        /// Time after which the probe has failed.
        timeout: Duration,
    },
    /// Tell the waiters how a fetch of the key ended.
    Deliver {
        /// The key whose fetch has ended.
        key: FetchKey<K>,
        /// The value, none if the backend has none; or the error of the fetch.
        result: Result<Option<V>, FetchError>,
        /// The waiters of the key, each in one delivery.
        waiters: Waiters<W>,
    },
    /// Carry out a step at a duplicate of a partition, in the order of that duplicate's steps.
    Duplicate {
        /// The partition.
        partition: usize,
        /// The replica.
        replica: ReplicaId,
        /// The step, whose end is reported with [`Backend::handle_duplicate`].
        ///
        /// [`Backend::handle_duplicate`]: super::Backend::handle_duplicate
        step: DuplicateStep<K, V>,
    },
    /// Append records to the log of a partition on disk, as [`LogAction::Store`] says, and report
    /// with [`Backend::handle_stored`].
    ///
    /// [`LogAction::Store`]: sherwood_dispatch::LogAction::Store
    /// [`Backend::handle_stored`]: super::Backend::handle_stored
    StoreLog {
        /// The partition.
        partition: usize,
        /// At least one record.
        records: Vec<LogRecord<K, Logged<V>>>,
        /// The first entry that is still needed.
        first: u64,
    },
    /// Send a write whose turn has come: take it with [`Backend::take_write`].
    ///
    /// [`Backend::take_write`]: super::Backend::take_write
    StartWrite(WriteId),
    /// Announce to the other nodes that a key has changed, or may still change: with
    /// [`Peers::announce`], before the actions that follow.
    ///
    /// [`Peers::announce`]: crate::Peers::announce
    Announce(ChangedKeys<K>),
    /// Tell the client how its write ended.
    EndWrite {
        /// The write that [`Backend::handle_write`] accepted. Its id is no longer valid.
        ///
        /// [`Backend::handle_write`]: super::Backend::handle_write
        write: WriteId,
        /// The combined outcome of all replicas.
        outcome: WriteOutcome,
        /// True if the write was taken with [`Backend::take_write`] or is in a log. If not, it
        /// waited too long for an earlier write of its key.
        ///
        /// [`Backend::take_write`]: super::Backend::take_write
        sent: bool,
        /// The session of a client that has made this write to a replicated store; none if it is
        /// not acknowledged.
        session: Option<Session>,
    },
}

/// A change that a client wants made to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<K, V> {
    /// The key to change.
    pub key: K,
    /// The change to make to the key's value.
    pub change: Change<V>,
    /// The partition to cache the value in: the writing tenant's. The other tenants' partitions
    /// drop the key. A write without one is no tenant's, and no rate pays for it.
    pub partition: Option<PartitionId>,
    /// The tenant of the write, and what the cache keeps of it.
    pub options: WriteOptions,
}

/// The tenant of a write, and what the cache keeps of it.
///
/// The default is a write of the default tenant, whose value the cache keeps once the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The tenant whose rate pays for the write.
    pub tenant: TenantId,
    /// True if the cache shows the value before the store has it. A write that fails removes it, so
    /// readers may have seen a value that never was in the store.
    pub cache_first: bool,
    /// True if the cache keeps the value of a key that it does not have. A key that it has always
    /// gets the new value.
    pub admit: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { tenant: TenantId(0), cache_first: false, admit: true }
    }
}

/// A write to send to replicas. The answer of each is reported with
/// [`Backend::handle_write_reply`].
///
/// [`Backend::handle_write_reply`]: super::Backend::handle_write_reply
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOrder<K, V> {
    /// The id of the write, to report the replicas' answers with.
    pub write: WriteId,
    /// The replicas to send the write to, at once.
    pub replicas: Vec<ReplicaId>,
    /// The key to change.
    pub key: K,
    /// The change to make to the key's value.
    pub change: Change<V>,
    /// Time at which the write ends. Nothing of it may be sent later.
    pub deadline: Instant,
}

/// Keys whose cached and fetched values are no longer to be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation<'a, K> {
    /// A key in one tenant's partition.
    Key(&'a FetchKey<K>),
    /// The keys with this prefix, in all partitions.
    Prefix(&'a [u8]),
    /// The values with some tag, in all partitions. The tags of a value in flight are not known, so
    /// that all keys are fenced (no fetched value is cached for a while).
    Tag,
    /// All keys, in all partitions. The cache is cold then, and the dispatcher's ramp, which limits
    /// the misses sent to the backend, begins anew.
    All,
}
