//! What the machine asks of its driver, and what the driver reports back.

use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Demand, ReplicaId};

use crate::slab::Id;
use crate::{FetchError, Waiters};

/// One thing for the driver to do. Actions come in the order they must be carried out.
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
        /// The most urgent demand of the waiters.
        demand: Demand,
        /// The rest of the backend's timeout; when it is over an [`Action::Cancel`] follows.
        timeout: Duration,
    },
    /// Ends an attempt whose answer is no longer needed: the driver frees what the call holds. A
    /// reply that still comes is ignored.
    Cancel {
        /// The attempt of an earlier [`Action::Call`].
        attempt: AttemptId,
        /// The replica that was asked.
        replica: ReplicaId,
    },
    /// Tell these waiters how the key ended, and fill the cache once if asked to.
    Deliver {
        /// The key.
        key: K,
        /// Its value, that the backend has none, or why nobody knows.
        result: Result<Option<V>, FetchError>,
        /// Whether the result, a value or that there is none, may enter the cache: not when the key
        /// was invalidated meanwhile.
        fill: bool,
        /// Whom to tell.
        waiters: Waiters<W>,
    },
    /// Ask a replica that is down whether it is back, then report with
    /// [`Dispatch::handle_probe`](crate::Dispatch::handle_probe).
    Probe {
        /// Whom to ask.
        replica: ReplicaId,
        /// What to ask it for, as a call would; none where no key is known yet, and any cheap way
        /// will do.
        key: Option<K>,
        /// A probe that takes longer has failed; the next one may start then.
        timeout: Duration,
    },
}

/// The id of one attempt: one call to one replica of one backend. The id of an attempt that has
/// ended names nothing, so it may come back late, twice or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub(crate) Id);

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<V> {
    /// A value, or that there is none, for each key of the call in its order. Any other number of
    /// values counts as [`FailureKind::Malformed`].
    Ok(Vec<Option<V>>),
    /// The same, but some keys have no answer though the replica works: one too large to be taken,
    /// say. Those that another replica may answer are asked for once more there.
    Each(Vec<Result<Option<V>, Failure>>),
    /// No answer.
    Failed(Failure),
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// For people: what the connector saw.
    pub reason: Arc<str>,
}

impl Failure {
    /// A failure of this kind, explained by `reason`.
    #[must_use]
    pub fn new(kind: FailureKind, reason: impl Into<Arc<str>>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

/// What a failure says about the replica and about trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The replica could not be reached; the call never started. Safe to retry, counts against the
    /// replica.
    Unreachable,
    /// The connection, or the replica itself, broke while the call was under way. Safe to retry
    /// since calls only read, counts against the replica.
    Reset,
    /// The replica declined for want of room. Safe to retry; the replica is alive, so it is no step
    /// towards down, where all of its load would fall on the others.
    Overloaded,
    /// The replica answered what cannot be an answer. Not retried, counts against the replica.
    Malformed,
    /// The replica understood and said no: a bad query, a missing table. Every replica would say
    /// the same, so it is not retried, and shows that the replica works.
    Rejected,
}

impl FailureKind {
    /// Whether another replica may be asked: the call changed nothing and another one may do
    /// better.
    #[must_use]
    pub fn is_safe_to_retry(self) -> bool {
        match self {
            Self::Unreachable | Self::Reset | Self::Overloaded => true,
            Self::Malformed | Self::Rejected => false,
        }
    }
}
