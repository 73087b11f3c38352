//! The logs and duplicates of a replicated store, as an operator sees them.

use sherwood_dispatch::{DuplicateState, Layout, LogCounts};
use sherwood_model::ReplicaId;

/// A duplicate of a replicated store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateStanding {
    /// The replica.
    pub replica: ReplicaId,
    /// The partition of the keys that it has.
    pub partition: usize,
    /// The state.
    pub state: DuplicateState,
    /// Number of changes in the log of its partition that it has not applied.
    pub lag: u64,
    /// Number of the last change of the partition.
    pub last: u64,
}

/// The logs of a replicated store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsStanding {
    /// Changes in all logs.
    pub entries: usize,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Counts since the start.
    pub counts: LogCounts,
    /// The layout that the store has, or is on its way to; none if there are no logs.
    pub layout: Option<Layout>,
    /// True if it has that layout.
    pub is_settled: bool,
    /// The duplicates, by partition.
    pub duplicates: Vec<DuplicateStanding>,
}
