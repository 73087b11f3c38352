//! Progress of a write.

use sherwood_model::Instant;

use super::action::Write;
use crate::WriteOutcome;

/// A write between its beginning and its end.
#[derive(Clone, Debug)]
pub(super) struct RunningWrite<K, V> {
    pub(super) write: Write<K, V>,
    pub(super) begun: Instant,
    /// The time at which it ends without answers.
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
    /// Due: the driver has not taken it yet.
    Ready,
    /// The driver has taken it.
    Sent,
}
