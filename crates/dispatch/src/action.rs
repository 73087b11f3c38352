//! Actions of the dispatcher for its driver, and the outcomes that the driver reports.

use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use crate::slab::Id;
use crate::{FetchError, Waiters};

/// An action for the driver to carry out. Actions come in the order in which they must be carried
/// out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K, V, W> {
    /// Asks a replica for keys. The driver reports the outcome with
    /// [`Dispatch::handle_reply`](crate::Dispatch::handle_reply).
    Call {
        /// The attempt, to be handed back with the reply.
        attempt: AttemptId,
        /// The replica to ask.
        replica: ReplicaId,
        /// At least one key, no key twice; the reply answers in this order.
        keys: Vec<K>,
        /// The most urgent demand (deadline, class) of all waiters of the keys.
        demand: Demand,
        /// The time at which the keys were asked for, or a further attempt was made: the call has
        /// waited since.
        since: Instant,
        /// The rest of the backend's timeout; when it is over an [`Action::Cancel`] follows.
        timeout: Duration,
    },
    /// Ends an attempt whose answer is no longer needed: the driver frees what the call holds. A
    /// reply that still comes is ignored.
    Cancel {
        /// The attempt of an earlier [`Action::Call`].
        attempt: AttemptId,
        /// The replica whose call is ended.
        replica: ReplicaId,
        /// The reason why the answer is no longer needed.
        reason: CancelReason,
    },
    /// Delivers the result of a key to its waiters.
    Deliver {
        /// The key whose result is delivered.
        key: K,
        /// The value, none if the backend has none, or the reason for which it is unknown.
        result: Result<Option<V>, FetchError>,
        /// True for a value or its absence if the key was not invalidated since it was asked for;
        /// only then may it enter the cache.
        is_current: bool,
        /// The most urgent demand (deadline, class) of those who waited for the keys that were
        /// fetched together.
        demand: Demand,
        /// The time at which the key was asked for. The value may have been read at any time since.
        asked_at: Instant,
        /// The waiters of the key.
        waiters: Waiters<W>,
    },
    /// Probes a replica that is down. The driver reports the outcome with
    /// [`Dispatch::handle_probe`](crate::Dispatch::handle_probe).
    Probe {
        /// The replica to probe.
        replica: ReplicaId,
        /// The key to request, as in a call; if no key is known yet, any cheap request will do.
        key: Option<K>,
        /// Time after which the probe has failed and the next one may start.
        timeout: Duration,
    },
}

/// The reason for an [`Action::Cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The backend's timeout is over.
    Timeout,
    /// Another attempt of the fetch has answered.
    Answered,
    /// The replica is not read any more, since it may have older values than others.
    Outdated,
}

/// The id of one attempt, which is one call to one replica of one backend. The id becomes invalid
/// when the attempt ends, so a reply to it may come late, twice or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub(crate) Id);

/// The id of a lease: of a slot of a replica that a connection holds. It becomes invalid when the
/// lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub(crate) Id);

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<V> {
    /// A value, or its absence, for each key of the call in its order. Any other number of values
    /// counts as [`FailureKind::Malformed`].
    Ok(Vec<Option<V>>),
    /// Results of the keys, in the order of the call, of which some failed although the replica
    /// works, for example because a value is too large. Keys that another replica may answer are
    /// retried there once.
    Each(Vec<Result<Option<V>, Failure>>),
    /// The call gave no answer for any key.
    Failed(Failure),
    /// The call was not made, because its answer would have come too late: the schedulers of the
    /// replicas refused it a turn. Says nothing about the replica, and is not retried.
    NotAdmitted {
        /// Time after which the answer would have been expected.
        expected: Duration,
    },
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure, which decides about retries and the replica's health.
    pub kind: FailureKind,
    /// The explanation by the connector that made the call, for people.
    pub reason: Arc<str>,
}

impl Failure {
    /// Creates a failure of `kind`, explained by `reason`.
    #[must_use]
    pub fn new(kind: FailureKind, reason: impl Into<Arc<str>>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

/// The meaning of a failure for the replica's health and for retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The replica could not be reached; the call never started. Safe to retry, counts against the
    /// replica.
    Unreachable,
    /// The connection, or the replica itself, broke while the call was in flight. Safe to retry
    /// since calls only read, counts against the replica.
    Reset,
    /// The replica refused because of overload. Safe to retry. The replica is alive, so this does
    /// not count towards down, which would move all of its load to the others.
    Overloaded,
    /// The replica refused because the rate that is paid for is used up, which replicas of a table
    /// share: a retry at once, at any of them, would be refused as well. Retried after a wait. The
    /// replica is alive.
    Throttled,
    /// The reply is malformed. Not retried, counts against the replica.
    Malformed,
    /// The replica refused the request: a bad query or a missing table, for example. Every replica
    /// would do the same, so it is not retried, and it shows that the replica works.
    Rejected,
}

impl FailureKind {
    /// Returns true if another attempt may be made: the call changed nothing, and another replica,
    /// or the same one later, may answer.
    #[must_use]
    pub fn is_safe_to_retry(self) -> bool {
        match self {
            Self::Unreachable | Self::Reset | Self::Overloaded | Self::Throttled => true,
            Self::Malformed | Self::Rejected => false,
        }
    }
}
