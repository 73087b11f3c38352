//! What can happen, and what is asked and answered.

use sherwood_dispatch::{AttemptId, Reply};
use sherwood_model::{ReplicaId, Tags};
use sherwood_path::{Outcome, Query};

/// Whether its number is odd, which is what it begins with; its number; whose it is. One byte would
/// do for what is asked, but pairs like `([u8; 1], u32)`, a key and its slot, are likely
/// miscompiled at `opt-level = 1`, which tests are compiled with (rust-lang/rust#149294): this
/// suite has hung by that.
pub(crate) type Key = [u8; 4];

/// What is stored under the keys of one number: a value, unlike any other that was ever written, or
/// nothing.
pub(crate) type Content = Option<u64>;

/// A backend, by its position.
pub(crate) type At = usize;

/// What happens in the node or to it, when its time has come.
#[derive(Debug)]
pub(crate) enum Event {
    Arrive(Vec<Query<Key>>),
    /// A listener's client reads a number.
    Listen {
        backend: At,
        number: u8,
        tenant: u8,
    },
    Reply(At, AttemptId, Reply<u64>),
    Probe(At, ReplicaId),
    /// A client writes a number, for a tenant.
    Write {
        backend: At,
        number: u8,
        tenant: u8,
        delete: bool,
    },
    /// A replica has answered to a write.
    Written {
        backend: At,
        write: u64,
        replica: usize,
        outcome: Outcome,
    },
    /// A write has waited long enough for its turn.
    TurnDue {
        backend: At,
        write: u64,
    },
    /// The time of a write is over.
    WriteDue {
        backend: At,
        write: u64,
    },
    /// A replica dies or returns.
    Flip(At, usize),
    /// Somebody else changes a backend's store.
    Foreign {
        backend: At,
        number: u8,
    },
    /// A listener's client changes a number at the store itself, and then in its tenant's cache.
    Change {
        backend: At,
        number: u8,
        tenant: u8,
        delete: bool,
    },
    /// The node ends and starts again, with a snapshot or without.
    Restart {
        warm: bool,
    },
    /// A client invalidates some of a backend.
    Invalidate {
        backend: At,
        which: Which,
    },
    /// A walk through the cache goes on.
    Walk(usize),
}

impl Event {
    /// Whether it comes to nothing when the node ends that waits for it.
    pub(crate) fn ends_with_the_node(&self) -> bool {
        match self {
            Self::Reply(..)
            | Self::Probe(..)
            | Self::Written { .. }
            | Self::TurnDue { .. }
            | Self::WriteDue { .. }
            | Self::Walk(_) => true,
            Self::Arrive(_)
            | Self::Listen { .. }
            | Self::Write { .. }
            | Self::Flip(..)
            | Self::Foreign { .. }
            | Self::Change { .. }
            | Self::Restart { .. }
            | Self::Invalidate { .. } => false,
        }
    }
}

/// What is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// The keys of one number, by their names.
    One(u8),
    /// Keys that begin with this: odd numbers or even ones.
    Beginning(u8),
    /// What has this tag: the same.
    Tag(u8),
}

impl Which {
    /// Whether it means this number.
    pub(crate) fn means(self, number: u8) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => number == one,
            Self::Beginning(odd) | Self::Tag(odd) => number & 1 == odd,
        }
    }
}

/// What happens at the stores, whose clocks do not stand still when the node's process does.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A write arrives at a replica, which answers after so many milliseconds, if anybody hears of
    /// it.
    Land { backend: At, write: u64, replica: usize, number: u8, content: Content, answer_after: Option<u64> },
    /// What the primary did arrives at a replica that copies from it.
    Copy { backend: At, replica: usize, number: u8, content: Content },
}

pub(crate) const TENANTS: u8 = 2;

/// What the values of a number may be invalidated by.
pub(crate) fn tags(number: u8) -> Tags {
    [&[number & 1][..], b"any"].into_iter().collect()
}

pub(crate) fn key(number: u8, tenant: u8) -> Key {
    [number & 1, number, tenant, 0]
}

/// The number and the tenant of a key.
pub(crate) fn parts([_, number, tenant, _]: Key) -> (u8, u8) {
    (number, tenant)
}
