//! Events of the simulated world, and the keys and values in it.

use std::time::Duration;

use sherwood_dispatch::{AttemptId, Reply};
use sherwood_model::{ReplicaId, Tags};
use sherwood_path::{Action, Query, WriteOutcome};

use crate::reads::Waiter;

/// A key: the parity of its number, which is its prefix, and the number. One byte would be enough,
/// but pairs like `([u8; 1], u32)`, a key and its slot, are likely miscompiled at `opt-level = 1`,
/// which tests are compiled with (rust-lang/rust#149294): this suite has hung because of it.
pub(crate) type Key = [u8; 4];

/// The content stored under a number: a value that was written once in the whole run, or nothing.
pub(crate) type Content = Option<u64>;

/// A backend, by its index.
pub(crate) type At = usize;

/// A value as a backend answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The content of the value, which no other value has.
    pub(crate) bytes: [u8; 8],
    /// The lifetime that the store allows, if it does.
    pub(crate) good_for: Option<Duration>,
    pub(crate) tags: Tags,
}

impl Stored {
    pub(crate) fn new(value: u64, number: u8, good_for: Option<Duration>) -> Self {
        Self { bytes: value.to_le_bytes(), good_for, tags: tags(number) }
    }

    pub(crate) fn value(self) -> u64 {
        u64::from_le_bytes(self.bytes)
    }
}

/// An event in the node.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request arrives.
    Arrive(Vec<Query<Key>>),
    /// A listener's client reads the key of a number.
    Listen { backend: At, number: u8, tenant: u8 },
    /// A replica answers a call of the dispatcher.
    Reply(At, AttemptId, Reply<Stored>),
    /// A replica that was down answers a probe.
    Probe(At, ReplicaId),
    /// A client writes the key of a number, for a tenant.
    Write { backend: At, number: u8, tenant: u8, delete: bool },
    /// A replica answers a write, which is named by the version it writes.
    Written { backend: At, write: u64, replica: usize, outcome: WriteOutcome },
    /// The driver carries an action out late.
    CarryOut(At, Action<Key, Stored, Waiter>),
    /// A replica dies, or a dead one returns.
    Flip(At, usize),
    /// Another program changes a backend's store.
    Foreign { backend: At, number: u8 },
    /// A listener's client changes a number at the store itself, and then in its tenant's cache.
    Change { backend: At, number: u8, tenant: u8, delete: bool },
    /// The node ends and starts again, with a snapshot or without.
    Restart { warm: bool },
    /// A client invalidates a part of a backend.
    Invalidate { backend: At, which: Which },
    /// The tenants of a backend get other rates.
    Rates(At),
    /// A client flushes a backend, as of some time later.
    Flush { backend: At, after: Duration },
    /// An invalidation's walk through the cache takes its next step.
    Walk(usize),
}

impl Event {
    /// Returns true if the event is dropped when the node that waits for it ends.
    pub(crate) fn ends_with_the_node(&self) -> bool {
        match self {
            Self::Reply(..) | Self::Probe(..) | Self::Written { .. } | Self::CarryOut(..) | Self::Walk(_) => {
                true
            }
            Self::Arrive(_)
            | Self::Listen { .. }
            | Self::Write { .. }
            | Self::Flip(..)
            | Self::Foreign { .. }
            | Self::Change { .. }
            | Self::Restart { .. }
            | Self::Invalidate { .. }
            | Self::Rates(_)
            | Self::Flush { .. } => false,
        }
    }
}

/// The part of a backend's keys that is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// The keys of one number, by name.
    One(u8),
    /// The keys with this prefix: odd numbers or even ones.
    Beginning(u8),
    /// The values with this tag: odd numbers or even ones.
    Tag(u8),
}

impl Which {
    /// Returns true if the keys and values of this number are invalidated.
    pub(crate) fn means(self, number: u8) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => number == one,
            Self::Beginning(odd) | Self::Tag(odd) => number & 1 == odd,
        }
    }
}

/// An event at the stores, whose clocks go on while the node's process is suspended.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A write arrives at a replica, which answers after this many milliseconds, or never.
    Land { backend: At, write: u64, replica: usize, number: u8, content: Content, answer_after: Option<u64> },
    /// A change of the primary arrives at a replica that copies from it.
    Copy { backend: At, replica: usize, number: u8, content: Content },
}

pub(crate) const TENANTS: u8 = 2;

/// The tags of a number's values.
pub(crate) fn tags(number: u8) -> Tags {
    [&[number & 1][..], b"any"].into_iter().collect()
}

pub(crate) fn key(number: u8) -> Key {
    [number & 1, number, 0, 0]
}

/// The number of a key.
pub(crate) fn number_of([_, number, _, _]: Key) -> u8 {
    number
}
