//! Events of the simulated world, and the keys and values in it.

use std::time::Duration;

use sherwood_model::{PartitionId, ReplicaId};

use crate::faults::Fault;
use crate::servers::Seat;

/// A key: its number in the first byte. One byte would be enough, but pairs like `([u8; 1], u32)`
/// are likely miscompiled at `opt-level = 1`, which tests are compiled with
/// (rust-lang/rust#149294).
pub(crate) type Key = [u8; 4];

/// Number of keys.
pub(crate) const KEYS: usize = 8;

/// For each key the place of a write in the order of the key's writes, from 1 on; 0 for none.
pub(crate) type View = [u64; KEYS];

/// A value: the number of its write, which no other write has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) [u8; 8]);

impl Version {
    pub(crate) fn new(number: u64) -> Self {
        Self(number.to_le_bytes())
    }

    pub(crate) fn number(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

/// The partition of the cache.
pub(crate) const PARTITION: PartitionId = PartitionId(0);

/// The backend's timeout, and the time for which commands may land after their connection's end.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(100);

/// Duration of the part of a run in which faults occur, and of the part with clients.
pub(crate) const FAULTY: Duration = Duration::from_millis(1_500);
pub(crate) const BUSY: Duration = Duration::from_millis(1_800);

/// Duration of an outage, and the part of it after which a new process goes on without a server
/// that it cannot reach.
pub(crate) const OUTAGE: Duration = Duration::from_secs(12);
pub(crate) const ALONE_AFTER: Duration = Duration::from_secs(11);

pub(crate) fn key(number: usize) -> Key {
    [number as u8, 0, 0, 0]
}

pub(crate) fn number_of([number, ..]: Key) -> usize {
    number.into()
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// An event of the world.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A client begins its next read or write.
    Act(usize),
    /// A server carries out a command.
    Serve(usize),
    /// The driver gives up a task at a server, if it still goes on.
    GiveUp { seat: Seat, task: u64 },
    /// The driver notices the end of a connection, if that is still the latest one.
    Notice { seat: Seat, connection: u64 },
    /// A server reads the keys of a call.
    Read(u64),
    /// The answer of a call arrives.
    Answer(u64),
    /// The answer of a probe arrives.
    Probe(ReplicaId),
    /// The layout of the store is changed.
    Change,
    /// A write of a log to the disk ends, if the process that began it still runs.
    Synced { partition: usize, process: u64 },
    /// Something fails.
    Fail(Fault),
    /// No fault occurs from now on, and all servers work.
    Heal,
}
