//! Progress of a write.

use sherwood_model::Instant;

use super::action::Write;
use crate::WriteOutcome;

/// A write between its beginning and its end.
#[derive(Clone, Debug)]
pub(super) struct RunningWrite<K, V> {
    pub(super) write: Write<K, V>,
    pub(super) begun: Instant,
    /// The moment at which it ends by itself.
    pub(super) due: Instant,
    pub(super) stage: Stage,
    /// The answer of each replica that it goes to.
    pub(super) answers: Vec<Option<WriteOutcome>>,
}

/// Progress of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Other writes of the key precede it.
    Waiting,
    /// Its turn has come, and the driver has not taken it yet.
    Ready,
    /// The driver has taken it.
    Sent,
}
