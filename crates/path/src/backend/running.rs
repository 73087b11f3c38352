//! Progress of a write.

use sherwood_dispatch::{Payer, WaitingId};
use sherwood_model::{Instant, ReplicaId};

use super::action::Write;
use super::duplicates::Session;
use crate::WriteOutcome;

/// A write between its beginning and its end.
#[derive(Clone, Debug)]
pub(super) struct RunningWrite<K, V> {
    pub(super) write: Write<K, V>,
    pub(super) begun: Instant,
    /// Time at which the write ends even if answers are missing.
    pub(super) due: Instant,
    pub(super) stage: Stage,
    /// True once no earlier write of its key is in the way.
    pub(super) has_turn: bool,
    /// The number of the write in the queue of its tenant, until the tenant's rate pays for it.
    pub(super) unpaid: Option<WaitingId>,
    /// The source of the units that the write's tenant has paid; none without.
    pub(super) payer: Option<Payer>,
    /// True if a store has declined the write because of its own limits.
    pub(super) is_throttled: bool,
    /// The replicas that the write was sent to, with their answers; empty until it is sent.
    pub(super) answers: Vec<(ReplicaId, Option<WriteOutcome>)>,
    /// True if the write was acknowledged to the client before it ended.
    pub(super) is_acknowledged: bool,
    /// The write's change in the log of its key; none before it is there, or without logs.
    pub(super) logged: Option<LoggedWrite>,
}

/// A write whose change is in a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedWrite {
    pub(super) partition: usize,
    /// Number of the change in the log.
    pub(super) number: u64,
    /// The session of a client that has made the change and nothing else.
    pub(super) session: Session,
    /// The outcome; none while it is open.
    pub(super) end: Option<WriteOutcome>,
}

/// Stages of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The write waits for other writes of its key, or for its tenant's rate.
    Waiting,
    /// The write may be sent, but the driver has not taken it yet.
    Ready,
    /// The driver has taken the write to send it.
    Sent,
}
