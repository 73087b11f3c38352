//! What the machine asks of its driver, and what the driver reports back.

use std::sync::Arc;
use std::time::Duration;

use sherwood_model::ReplicaId;

use crate::slab::Id;
use crate::{FetchError, Waiters};

/// One thing for the driver to do. Actions come in the order they must be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K, V, W> {
    /// Ask a replica for keys, then report with
    /// [`Dispatch::handle_reply`](crate::Dispatch::handle_reply).
    Call {
        /// To be given back with the reply.
        call: CallId,
        /// Whom to ask.
        replica: ReplicaId,
        /// At least one key, no key twice; the reply answers in this order.
        keys: Vec<K>,
        /// What remains of the time-out; after it a [`Action::Cancel`] follows.
        timeout: Duration,
    },
    /// Nobody waits for this call any more: free what it holds. A reply that still comes is
    /// ignored.
    Cancel {
        /// The call of an earlier [`Action::Call`].
        call: CallId,
        /// Whom it went to.
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

/// Names one call to one replica of one backend. An id whose call has ended names nothing, so it
/// may come back late, twice or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) Id);

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
