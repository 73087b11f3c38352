//! The errors of keys that have no answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::{FailureKind, TenantRefusal};

/// The reason why a key could not be fetched. Cheap to clone: every waiter of the key may keep one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The backend gave no answer in time. It is overloaded or hangs, or the timeout is too short;
    /// asking again later can help.
    #[error(
        "fetching the key failed: timeout: no answer within {timeout:?}, the backend's time-out; see whether the server is overloaded or \
         hangs, or raise the backend's `timeout`"
    )]
    Timeout {
        /// The backend's timeout.
        timeout: Duration,
    },
    /// A bound was reached, so the key was refused before anything was sent. Asking again later can
    /// help.
    #[error(
        "fetching the key was refused: {bound} reached their limit of {limit}; slow down or raise the limit"
    )]
    Overloaded {
        /// The bound that was reached, such as the number of waiters.
        bound: Bound,
        /// The value of the bound that was reached.
        limit: u32,
    },
    /// The admission rule refused the key before anything was sent: it would have come too late, or
    /// made others come too late. Asking again later, or with a later deadline, can help.
    #[error(
        "fetching the key was refused: an answer is expected after {expected:?}, later than the dispatch rules admit; slow down or wait longer"
    )]
    Rejected {
        /// The time after which the answer would have been expected.
        expected: Duration,
    },
    /// The rate at which the key's tenant may read from the backend is used, and the wait would be
    /// too long. Nothing was sent.
    #[error("fetching the key was refused because of the tenant's rate of reads from the backend: {0}")]
    OverRate(TenantRefusal),
    /// The balancer picked no replica, or no replica has applied the write that the read depends
    /// on. Nothing was sent. A later retry can succeed.
    #[error(
        "fetching the key was refused: the dispatch rules admit no call to any of {replicas} usable replicas; slow down"
    )]
    NotAdmitted {
        /// The number of replicas that were up and had room for a call.
        replicas: usize,
    },
    /// Every replica that may be asked for the key is down, so it was refused before anything was
    /// sent. Replicas are probed and used again without intervention.
    #[error(
        "fetching the key was refused: {} (last failure: {reason}), and probed until one answers",
        if *replicas == 1 { "the backend's only replica is down".to_owned() } else { format!("all {replicas} replicas of the backend are down") }
    )]
    Unavailable {
        /// The number of those replicas: all of the backend's, or the only one that may be asked.
        replicas: usize,
        /// The latest failure that took a replica down.
        reason: Arc<str>,
    },
    /// All attempts failed, retries included where they were safe and affordable.
    #[error("fetching the key failed after {attempts} attempt{}: {reason}", if *attempts == 1 { "" } else { "s" })]
    Failed {
        /// The kind of the last attempt's failure.
        kind: FailureKind,
        /// The explanation by the connector that made the last call, for people.
        reason: Arc<str>,
        /// Number of attempts that were started, the first included.
        attempts: u32,
    },
}

impl FetchError {
    /// Returns the time after which an answer would have been expected, if the key was refused
    /// because of that.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        match self {
            Self::Rejected { expected } => Some(*expected),
            Self::Timeout { .. }
            | Self::Overloaded { .. }
            | Self::OverRate(_)
            | Self::NotAdmitted { .. }
            | Self::Unavailable { .. }
            | Self::Failed { .. } => None,
        }
    }
}

/// The bounds that can refuse a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Waiters of all keys together, at most [`Options::waiters_max`](crate::Options::waiters_max).
    Waiters,
    /// The window of the [ramp](crate::RampOptions): keys that may be in flight at present.
    Ramp,
    /// Calls queued for each replica that is up, at most
    /// [`Options::queued_calls_max`](crate::Options::queued_calls_max).
    QueuedCalls,
    /// Leases that wait or hold a slot, at most
    /// [`Options::queued_calls_max`](crate::Options::queued_calls_max).
    Leases,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiters => "waiters of the backend (`waiters_max`)",
            Self::Ramp => "misses of a cold cache that its backend may have at a time (`ramp`)",
            Self::QueuedCalls => "queued calls of every usable replica (`queued_calls_max`)",
            Self::Leases => "clients that hold or wait for slots of replicas (`queued_calls_max`)",
        })
    }
}
