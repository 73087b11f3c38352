//! Steps at a duplicate, and their ends.

use sherwood_dispatch::{BatchEnd, LogEntry, Marker};
use sherwood_model::{PartitionId, ReplicaId};

use crate::backend::change::Change;

/// A change in the log of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged<V> {
    /// The change to make to the key's value.
    pub change: Change<V>,
    /// The partition of the cache that keeps the value once all duplicates that are read have it.
    pub(super) keep_in: Option<PartitionId>,
    /// The number of the change among all changes of the store.
    pub(super) stamp: u64,
}

/// An instruction about one duplicate, that is a replica as the place of one partition: the others
/// that it has are not touched. The steps of a duplicate are carried out in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DuplicateStep<K, V> {
    /// Record the marker there and then make the changes, in their order, over the one connection
    /// that [`Inspect`](Self::Inspect) opened. Report with [`DuplicateEvent::Applied`].
    Apply {
        /// The marker to record before the changes.
        marker: Marker,
        /// The changes; none if only the marker is to be recorded.
        entries: Vec<LogEntry<K, Logged<V>>>,
    },
    /// Open a new connection in place of an earlier one, and read the marker. Report with
    /// [`DuplicateEvent::Inspected`].
    Inspect,
    /// Remove the marker, and make the contents equal to those of another replica. Report with
    /// [`DuplicateEvent::Copied`].
    Copy {
        /// The replica to read from.
        from: ReplicaId,
    },
    /// Close the connection.
    Close,
    /// Close the connection, and remove the marker and then the keys of the partition. Report with
    /// [`DuplicateEvent::Cleared`].
    Clear,
}

/// The end of a step at a duplicate, or of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateEvent<'a> {
    /// A batch has ended.
    Applied(BatchEnd<'a>),
    /// The connection has ended while nothing was in flight.
    Broken,
    /// The marker was read, none if there is none; or it could not be read.
    Inspected(Result<Option<Marker>, ()>),
    /// The copy has ended; false if it has failed.
    Copied(bool),
    /// The marker and the keys are removed; false if that has failed.
    Cleared(bool),
}
