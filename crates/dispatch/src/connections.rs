//! Connections of clients to a tier, and what the driver does for them.

use std::collections::VecDeque;

use sherwood_model::ReplicaId;
use smallvec::SmallVec;

use crate::leased::Leased;
use crate::slab::{Id, Slab};
use crate::{FetchError, LeaseId};

/// The connections of a backend. Memory is proportional to their leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    pub(crate) open: Slab<Connection>,
    pub(crate) actions: VecDeque<ConnectionAction>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Leases that wait or hold a slot.
    pub(crate) leases: SmallVec<[LeaseId; 2]>,
    pub(crate) calls: Leased,
}

/// The id of a connection. It becomes invalid when the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) Id);

/// A step that the driver makes for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionAction {
    /// Sends a call to a replica over a leased slot, and reports its end with
    /// [`end_call`](crate::Dispatch::end_call).
    Call {
        /// The connection.
        connection: ConnectionId,
        /// The lease of the slot.
        lease: LeaseId,
        /// The replica of the slot.
        replica: ReplicaId,
        /// The call, as it was [asked](crate::Dispatch::ask) for.
        call: u64,
    },
    /// Tells the client that its call has failed at all replicas.
    Fail {
        /// The connection.
        connection: ConnectionId,
        /// The call.
        call: u64,
    },
    /// Closes a connection whose leases have all ended: they have expired, or no replica that
    /// could serve them is left.
    End {
        /// The connection, which is no longer valid.
        connection: ConnectionId,
        /// The reason.
        error: FetchError,
    },
}

#[cfg(test)]
impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}
