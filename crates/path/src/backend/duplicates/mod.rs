//! Replicated stores: partitions of keys, each with a log of its changes and equal duplicates.

mod disk;
mod layout;
mod parked;
mod place;
mod reads;
mod session;
mod standing;
mod step;
mod steps;

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use sherwood_dispatch::{Acknowledge, Layout, Log, LogCounts, LogOptions, LogRefused};
use sherwood_model::{Instant, PartitionId, ReplicaId, SeededState};

use super::change::Change;
use super::running::LoggedWrite;
use crate::WriteId;
use parked::ParkedReads;
use place::Place;
pub use place::{DUPLICATES_MAX, LayoutError, possible_layouts};
pub use session::{Consistency, Session, SessionError};
pub use standing::{DuplicateStanding, LogsStanding};
pub use step::{DuplicateEvent, DuplicateStep, Logged};

/// Longest wait of a new process for duplicates that it cannot reach.
const START_MAX: Duration = Duration::from_secs(10);

/// The seed of the hash that assigns keys to partitions: the replicas keep them there, so that it
/// never changes.
const PARTITION_SEED: u64 = 0;

/// Settings of a replicated store: its replicas are the duplicates of the first partition, followed
/// by those of the second, and so on. Each of these partitions has a log, whatever the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateOptions {
    /// Number of partitions of the keys, at least 1.
    pub partitions: usize,
    /// Number of equal replicas of each partition, 1 to [`DUPLICATES_MAX`].
    pub duplicates: usize,
    /// The earlier changes that a read reflects.
    pub consistency: Consistency,
    /// Upper bound of the changes in the log of a partition, at least 1.
    pub entries_max: usize,
    /// Upper bound of the bytes of keys and values in the log of a partition.
    pub bytes_max: u64,
    /// The number of this process, greater than that of each process before.
    pub epoch: u64,
}

impl DuplicateOptions {
    /// Returns the partition of a key.
    #[must_use]
    pub fn partition(&self, key: &[u8]) -> usize {
        partition_of(key, self.partitions)
    }

    /// Returns the configured layout.
    fn layout(&self) -> Layout {
        Layout { partitions: self.partitions as u16, duplicates: self.duplicates as u8 }
    }

    /// Returns the options of each partition's log, of a backend with this timeout. A change may
    /// land until a timeout after its connection has ended, as any write. A duplicate leaves the
    /// reads before it would make writes time out.
    fn log(&self, acknowledge: Acknowledge, timeout: Duration) -> LogOptions {
        LogOptions {
            partitions: self.partitions as u16,
            duplicates: self.duplicates,
            acknowledge,
            entries_max: self.entries_max,
            bytes_max: self.bytes_max,
            lag_max: timeout / 4,
            landing: timeout,
            retry: timeout,
            start_max: START_MAX.max(2 * timeout),
        }
    }
}

/// Returns the partition of a key, one of `partitions`, the same on all machines and in all
/// versions: each has an equal range of the keys' hashes, so that one of twice as many is half of
/// one.
#[must_use]
pub fn partition_of(key: &[u8], partitions: usize) -> usize {
    let hash = SeededState::new(PARTITION_SEED).hash_bytes(key);
    ((u128::from(hash) * partitions as u128) >> 64) as usize
}

/// The logs of a replicated store, and the writes and reads that wait for them.
#[derive(Clone, Debug)]
pub(super) struct Duplicates<K, V, W> {
    options: DuplicateOptions,
    logs: Vec<Log<K, Logged<V>>>,
    /// The replicas of each log.
    places: Vec<Place>,
    /// The layout that the store has, or is on its way to.
    target: Layout,
    /// The number of the process in sessions, and the first that it had: it grows with those of the
    /// logs.
    epoch: (u64, u64),
    /// Number of changes that were appended to all logs so far.
    stamp: u64,
    /// Writes that are not acknowledged, by partition and number in its log.
    writes: HashMap<(usize, u64), WriteId, SeededState>,
    /// Wake-ups of the logs, by their times.
    dues: BTreeSet<(Instant, usize)>,
    /// The entry of each log in `dues`.
    due_of: Vec<Option<Instant>>,
    parked: ParkedReads<K, W>,
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Duplicates<K, V, W> {
    pub(super) fn new(
        options: DuplicateOptions,
        acknowledge: Acknowledge,
        timeout: Duration,
        now: Instant,
        hash: SeededState,
    ) -> Self {
        let log = || Log::new(options.log(acknowledge, timeout), options.epoch, now, hash);
        // Their first steps are taken when they are woken up, at once.
        let dues = (0..options.partitions).map(|partition| (now, partition)).collect();
        let mut duplicates = Self {
            options,
            logs: (0..options.partitions).map(|_| log()).collect(),
            places: (0..options.partitions).map(|of| Place::new(options.layout(), of)).collect(),
            target: options.layout(),
            epoch: (options.epoch, options.epoch),
            stamp: 0,
            writes: HashMap::with_hasher(hash),
            dues,
            due_of: vec![Some(now); options.partitions],
            parked: ParkedReads::default(),
        };
        (0..options.partitions).for_each(|partition| duplicates.ask_candidates(now, partition));
        duplicates
    }

    /// Checks if a change of this size could be appended to the log of a key.
    pub(super) fn check(&mut self, key: &K, bytes: u64) -> Result<(), LogRefused> {
        let partition = self.options.partition(key.as_ref());
        self.logs[partition].check(bytes)
    }

    /// Appends the change of a write to the log of its key.
    pub(super) fn append(
        &mut self,
        now: Instant,
        write: WriteId,
        key: K,
        change: Change<V>,
        keep_in: Option<PartitionId>,
        bytes: u64,
    ) -> Result<LoggedWrite, LogRefused> {
        let partition = self.options.partition(key.as_ref());
        let stamp = self.stamp + 1;
        let number = self.logs[partition].append(now, key, Logged { change, keep_in, stamp }, bytes)?;
        self.stamp = stamp;
        self.writes.insert((partition, number), write);
        Ok(LoggedWrite { partition, number, session: self.session(), end: None })
    }

    /// Returns the write of an entry, which waits for it no longer.
    pub(super) fn take_write(&mut self, partition: usize, number: u64) -> Option<WriteId> {
        self.writes.remove(&(partition, number))
    }

    /// True if a duplicate that is read may not have the last change of the key.
    pub(super) fn is_unsettled(&self, key: &K) -> bool {
        self.logs[self.options.partition(key.as_ref())].unsettled(key).is_some()
    }

    /// Returns the number of a replica in the log of a partition; none if it is not one of its
    /// duplicates.
    fn duplicate(&self, partition: usize, replica: ReplicaId) -> Option<usize> {
        self.places.get(partition)?.replicas.iter().position(|known| *known == replica)
    }

    /// Returns the logs whose wake-up is due, or the next one.
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        self.dues.first().filter(|(due, _)| *due <= now).map(|(_, partition)| *partition)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let log = self.dues.first().map(|(due, _)| *due);
        log.into_iter().chain(self.parked.next_due()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, partition: usize) {
        self.logs[partition].handle_timeout(now);
    }

    /// Notes when a log has to be woken up, after it had an input.
    pub(super) fn rearm(&mut self, partition: usize) {
        self.arm(partition, self.logs[partition].next_timeout());
    }

    /// Sets the time at which a log is woken up.
    fn arm(&mut self, partition: usize, due: Option<Instant>) {
        if let Some(before) = std::mem::replace(&mut self.due_of[partition], due) {
            self.dues.remove(&(before, partition));
        }
        self.dues.extend(due.map(|due| (due, partition)));
    }

    /// Takes over the timeout of the backend.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        let times = self.options.log(Acknowledge::default(), timeout);
        self.logs.iter_mut().for_each(|log| log.set_times(&times));
    }

    /// Counts of all logs since the start.
    pub(super) fn counts(&self) -> LogCounts {
        self.logs.iter().map(Log::counts).fold(LogCounts::default(), |all, one| LogCounts {
            refused: all.refused + one.refused,
            differs: all.differs + one.differs,
            repaired: all.repaired + one.repaired,
        })
    }
}

#[cfg(test)]
mod tests;
