//! Why a key has no answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::FailureKind;

/// Why a key could not be fetched. Cheap to clone: every waiter of the key may keep one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// No answer in time. The backend's fault, or the time-out's; asking again later can help.
    #[error(
        "fetching the key failed: timeout: no answer within {timeout:?}, the backend's time-out; see whether the server is overloaded or \
         hangs, or raise the backend's `timeout`"
    )]
    Timeout {
        /// The backend's time-out.
        timeout: Duration,
    },
    /// Refused before anything was sent, because a bound was reached. Asking again later can help.
    #[error(
        "fetching the key was refused: {bound} reached their limit of {limit}; slow down or raise the limit"
    )]
    Overloaded {
        /// Which bound.
        bound: Bound,
        /// Its value.
        limit: u32,
    },
    /// Refused before anything was sent, because the [`Route`](crate::Route) wanted none of the
    /// replicas.
    #[error(
        "fetching the key was refused: the route admits no call to any of {replicas} usable replicas; slow down"
    )]
    NotAdmitted {
        /// Replicas the route could have chosen.
        replicas: usize,
    },
    /// Refused before anything was sent, because every replica that may be asked for the key is
    /// down. They are probed and used again by themselves.
    #[error(
        "fetching the key was refused: {} (last failure: {reason}), and probed until one answers",
        if *replicas == 1 { "the backend's only replica is down".to_owned() } else { format!("all {replicas} replicas of the backend are down") }
    )]
    Unavailable {
        /// How many those are: all of the backend's, or the one that it was asked of.
        replicas: usize,
        /// The latest failure that took a replica down.
        reason: Arc<str>,
    },
    /// The call failed, after retries where they were safe and affordable.
    #[error("fetching the key failed after {attempts} attempt{}: {reason}", if *attempts == 1 { "" } else { "s" })]
    Failed {
        /// What kind of failure the last attempt met.
        kind: FailureKind,
        /// What the connector said.
        reason: Arc<str>,
        /// Calls made, the first included.
        attempts: u32,
    },
}

/// A bound that can refuse a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Options::waiters_max`](crate::Options::waiters_max).
    Waiters,
    /// The keys that the [ramp](crate::RampOptions) lets be out at a time at the moment.
    Ramp,
    /// [`Options::queued_calls_max`](crate::Options::queued_calls_max), on every replica that is
    /// up.
    QueuedCalls,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiters => "waiters of the backend (`waiters_max`)",
            Self::Ramp => "misses of a cold cache that its backend may have at a time (`ramp`)",
            Self::QueuedCalls => "queued calls of every usable replica (`queued_calls_max`)",
        })
    }
}
