//! Batches and missed keys, as they come and go.

use std::time::Duration;

use crate::{Instant, PartitionId};

/// Time after which a missed key is no longer expected to be refilled. Chosen: longer than the
/// timeouts of most queries.
pub const REFILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A missed key: its partition, and a hash of its name that clients cannot predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissedKey {
    /// The partition, which belongs to one tenant.
    pub partition: PartitionId,
    /// The hash of the name.
    pub hash: u64,
}

/// An answered batch, some of whose keys were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredBatch {
    /// The client's connection, a number of its own.
    pub client: u64,
    /// Time at which its first byte was read.
    pub began: Instant,
    /// Time at which its last answer was written.
    pub answered: Instant,
    /// Number of the class of requests that it belongs to, if any; the caller's own.
    pub class: Option<u16>,
}

/// A batch that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedBatch {
    /// The partition whose key was refilled last, or missed last if none was.
    pub blocking: PartitionId,
    /// Time from the first byte to the last refill, or to the last answer if no key was refilled.
    pub latency: Duration,
    /// The time at which it was over, which is later if a key was not refilled.
    pub at: Instant,
    /// The class that it was answered with.
    pub class: Option<u16>,
}

/// A missed key that was refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The time from the answer to the refill, which the miss cost the application.
    pub cost: Duration,
    /// The batch, if it was the last of its keys.
    pub finished: Option<FinishedBatch>,
}
