//! The log of one partition of a logical store: the order of its changes, at all duplicates.
//!
//! ```text
//!   append ─▶ Entries ──batch, one in flight──▶ Duplicate 0: current   read and written
//!               │                               Duplicate 1: behind    written until it has all
//!               │                               Duplicate 2: lost ─▶ inspected ─▶ behind or copied
//!               ├── applied by enough of them: acknowledged
//!               └── applied by all that are read: settled
//! ```

mod duplicate;
mod entries;
mod files;
mod layout;
mod members;
mod record;
mod repair;
mod sending;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use sherwood_model::{Instant, SeededState};
use thiserror::Error;

use crate::Acknowledge;
use duplicate::Duplicate;
pub use duplicate::{DuplicateState, Marker, MarkerError};
use entries::Entries;
pub use entries::LogEntry;
pub use files::{FrameWrite, LogFiles};
pub use layout::{Layout, LayoutTextError};
pub use record::LogRecord;
use stored::Disk;
pub use stored::{Recovered, StoreEnd};

/// Upper bound of the entries of a batch, which is also how far a duplicate may be behind the last
/// entry when it begins to be read again.
const BATCH_ENTRIES_MAX: usize = 64;

/// Bounds and times of a [`Log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Number of partitions of the store. Duplicates whose markers name another one are not used.
    pub partitions: u16,
    /// Number of duplicates at the start, at least 1.
    pub duplicates: usize,
    /// Number of duplicates that must have applied an entry before it is acknowledged.
    pub acknowledge: Acknowledge,
    /// Upper bound of the entries, at least 1.
    pub entries_max: usize,
    /// Upper bound of the bytes of all entries.
    pub bytes_max: u64,
    /// Age of an entry at which a duplicate that has not applied it is not read any more.
    pub lag_max: Duration,
    /// Time for which a server that answers again may still apply what was sent to it before.
    pub landing: Duration,
    /// Time between attempts at a duplicate that refuses a change, or cannot be reached.
    pub retry: Duration,
    /// Longest wait of a new process for the duplicates that it cannot reach, before it relies on
    /// the others.
    pub start_max: Duration,
}

/// An instruction to the driver. Those about one duplicate are carried out in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAction<K, E> {
    /// Record the marker at a duplicate and then make the changes, in their order and over the one
    /// connection that [`Inspect`](Self::Inspect) opened. Report with [`Log::handle_applied`].
    Apply {
        /// The duplicate to write to.
        duplicate: usize,
        /// The marker to record before the changes.
        marker: Marker,
        /// The changes; none if only the marker is to be recorded.
        entries: Vec<LogEntry<K, E>>,
    },
    /// Open a new connection in place of an earlier one, and read the marker. Report with
    /// [`Log::handle_inspected`].
    Inspect(usize),
    /// Remove the marker of the duplicate `to`, and then make its contents equal to those of
    /// `from`. Report with [`Log::handle_copied`].
    Copy {
        /// The duplicate to read from.
        from: usize,
        /// The duplicate to fill.
        to: usize,
    },
    /// Close the connection of a store that was asked for its marker.
    Close(usize),
    /// Send no more reads to a duplicate that leaves. Those under way may end.
    Retire(usize),
    /// Close the connection of a duplicate that is none any more, and remove its marker and the
    /// partition's contents. Report with [`Log::handle_cleared`].
    Clear(usize),
    /// Send reads to a duplicate, or no longer.
    Read {
        /// The duplicate.
        duplicate: usize,
        /// All entries up to this one are applied there; none if it is not to be read.
        applied: Option<u64>,
    },
    /// Append the records to the log's file, and sync it. Parts of it that have no entry from
    /// `first` on may be removed; everything before is to be removed if the first record begins a
    /// process and does not continue. Report with [`Log::handle_stored`].
    Store {
        /// At least one record.
        records: Vec<LogRecord<K, E>>,
        /// The first entry that is still needed.
        first: u64,
    },
    /// Tell the client that its entry is applied by enough duplicates; with false, that it was
    /// refused and takes no effect.
    Acknowledge(u64, bool),
    /// Tell the client that the outcome of its entry is unknown. It was refused and is not sent
    /// again, but may have been applied before, over a connection that broke.
    Abandon(u64),
    /// All duplicates that are read have applied the entry, which is the last of its key; with
    /// false, it takes no effect, and they have applied those before it.
    Settle(LogEntry<K, E>, bool),
}

/// The end of a batch of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd<'a> {
    /// All changes are made, but for those that the duplicate has refused for good or for now:
    /// their numbers, in order.
    Answered(&'a [u64]),
    /// The marker was refused, and no change was made.
    Unmarked,
    /// The connection has ended. All changes up to this number are made, 0 if none is known to be.
    Broken(u64),
}

/// The reason why an entry was not appended; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LogRefused {
    /// Not enough duplicates have been reached since the start.
    #[error(
        "the duplicates of the partition have not been reached since the start; nothing was sent, write again later"
    )]
    NotOpen,
    /// Fewer duplicates are reached than have to acknowledge a change.
    #[error(
        "{reached} of the {duplicates} duplicates of the partition are reached, and {needed} have to acknowledge a write; nothing was sent, write again later"
    )]
    TooFew {
        /// Number of duplicates that are written to.
        reached: usize,
        /// Number of all duplicates.
        duplicates: usize,
        /// Number of duplicates that have to acknowledge a change, at least.
        needed: usize,
    },
    /// The duplicates are those of a store with another number of partitions.
    #[error(
        "the servers have a store of {found} partitions, and {configured} are configured, which would look for its keys elsewhere; nothing was sent, set partitions back to {found} and restart"
    )]
    Partitions {
        /// The number of partitions that a marker names.
        found: u16,
        /// The configured number.
        configured: u16,
    },
    /// The log could not be stored.
    #[error(
        "the log of the partition cannot be written to its disk, as the node's own log says; nothing was sent, write again later"
    )]
    Disk,
    /// The log has no room, since the duplicates that are read have not applied its entries.
    #[error(
        "the log of the partition is full, with {entries} entries of {bytes} bytes; nothing was sent, write again later"
    )]
    Full {
        /// Number of entries.
        entries: usize,
        /// Bytes of all entries.
        bytes: u64,
    },
}

/// Counts of a [`Log`] since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Entries that had no room.
    pub refused: u64,
    /// Times that a duplicate was found to differ by more than entries that the log has.
    pub differs: u64,
    /// Times that a duplicate was repaired, by replay or by copy, and read again.
    pub repaired: u64,
}

/// The log of one partition of a logical store, whose duplicates are unmodified stores.
///
/// It numbers the changes of the partition and has all duplicates make them in this order. Each
/// duplicate has one connection with one batch in flight, so that no change overtakes another.
///
/// # What it guarantees
/// - An entry is acknowledged once, after all before it, when the duplicates that
///   [`Acknowledge`] names have applied it. Except with [`Acknowledge::First`], all have applied it
///   then, or markers record it, so that a process that starts next has the entry, too.
/// - A duplicate that is read has applied every entry up to the number last reported for it, and
///   none out of order since it was first read: a connection that breaks ends its reads. It returns
///   after it has applied again, in order, what it may lack. Until then the entries it needs are
///   kept, unless they do not fit; then it is filled by a copy.
/// - If it is kept on disk ([`keep_on_disk`](Self::keep_on_disk)), an entry is sent to no duplicate
///   before it is stored. A process that starts with the disk of the one before has every
///   duplicate apply the entries there that it lacks, in their order, before it is read.
/// - After [`LogAction::Settle`] every read of the key at a duplicate returns that entry's value or
///   a later one.
///
/// A server that answers over a new connection may still hold commands of the old one, which would
/// undo later changes. So nothing is sent for [`LogOptions::landing`] after its first answer.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`append`](Self::append), the `handle_` functions in any order.
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none.
/// - Wake-ups: [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout).
///
/// # Complexity and memory
/// Each entry is handled once for each duplicate, beside the constant work of an input, which is
/// linear in the duplicates. At most [`LogOptions::entries_max`] entries are held, and copies of at
/// most 64 for each duplicate in actions.
#[derive(Clone, Debug)]
pub struct Log<K, E> {
    options: LogOptions,
    /// The number of this process, greater than that of every process whose markers were found.
    epoch: u64,
    started: Instant,
    /// The number of the last entry when the log was opened, and the marker of duplicates that have
    /// all entries up to it.
    base: (u64, Option<Marker>),
    /// False until the number of the next entry is known.
    is_open: bool,
    /// False once a new process has waited long enough for duplicates that it cannot reach.
    waits: bool,
    /// The number of partitions that markers name if it is another one than that of this store.
    foreign: Option<u16>,
    entries: Entries<K, E>,
    duplicates: Vec<Duplicate>,
    /// The layout that markers name.
    layout: Option<Layout>,
    /// Number of entries that were given up and that a duplicate may have made.
    contested: u64,
    /// All entries up to this one are acknowledged or refused.
    acknowledged: u64,
    /// All duplicates that are read have applied the entries up to this one.
    settled: u64,
    /// Keys with an entry that is not settled, and the number of their last one.
    unsettled: HashMap<K, u64, SeededState>,
    /// The state on disk; none if the log is kept in memory only.
    disk: Option<Disk<K, E>>,
    actions: VecDeque<LogAction<K, E>>,
    counts: LogCounts,
}

impl<K: Clone + Eq + Hash, E: Clone> Log<K, E> {
    /// Creates a log at the start of its process, whose number `epoch` is greater than that of each
    /// process before. It takes no entries before the duplicates have been inspected.
    #[must_use]
    pub fn new(options: LogOptions, epoch: u64, now: Instant, hash: SeededState) -> Self {
        let mut log = Self {
            options,
            epoch,
            started: now,
            base: (0, None),
            is_open: false,
            waits: true,
            foreign: None,
            entries: Entries::new(options.entries_max, options.bytes_max),
            duplicates: vec![Duplicate::new(now); options.duplicates],
            layout: None,
            contested: 0,
            acknowledged: 0,
            settled: 0,
            unsettled: HashMap::with_hasher(hash),
            disk: None,
            actions: VecDeque::new(),
            counts: LogCounts::default(),
        };
        log.handle_timeout(now);
        log
    }

    /// Appends a change of `bytes` bytes and returns its number.
    ///
    /// # Errors
    /// If the log has no room or is not open. Nothing follows then.
    pub fn append(&mut self, now: Instant, key: K, change: E, bytes: u64) -> Result<u64, LogRefused> {
        self.check(bytes)?;
        let number = self.entries.append(now, key.clone(), change, bytes);
        self.unsettled.insert(key, number);
        self.send_to_all(now);
        Ok(number)
    }

    /// Checks if a change of this size could be appended now. A refusal is counted.
    ///
    /// # Errors
    /// As those of [`append`](Self::append).
    pub fn check(&mut self, bytes: u64) -> Result<(), LogRefused> {
        if let Some(found) = self.foreign {
            return Err(LogRefused::Partitions { found, configured: self.options.partitions });
        }
        if !self.is_open {
            return Err(LogRefused::NotOpen);
        }
        let (duplicates, needed) = (self.voters().count(), self.needed_at_least());
        let reached = self.voters().filter(|one| one.state.is_written()).count();
        if reached < needed {
            self.counts.refused += 1;
            return Err(LogRefused::TooFew { reached, duplicates, needed });
        }
        if self.disk_fails() {
            self.counts.refused += 1;
            return Err(LogRefused::Disk);
        }
        if !self.entries.fits(bytes, self.droppable()) {
            self.counts.refused += 1;
            return Err(LogRefused::Full { entries: self.entries.len(), bytes: self.entries.bytes() });
        }
        Ok(())
    }

    /// Takes the end of a batch. Ignored if none is in flight.
    pub fn handle_applied(&mut self, now: Instant, duplicate: usize, end: BatchEnd<'_>) {
        let one = &mut self.duplicates[duplicate];
        if one.state == DuplicateState::Leaving && matches!(end, BatchEnd::Broken(_)) {
            return self.fail_reads_of_leaving(duplicate);
        }
        let Some(last) = one.in_flight.take() else { return };
        match end {
            BatchEnd::Broken(made) => {
                if one.state.is_written() {
                    one.applied = one.applied.max(made);
                }
                self.lose(duplicate);
            }
            BatchEnd::Answered(refused) => {
                (one.marker, one.opened_with, one.must_mark) = (Some(one.marking), None, false);
                self.take_answer(now, duplicate, refused, last);
            }
            BatchEnd::Unmarked => {
                let sent = self.entries.after(one.applied).filter(|kept| !kept.is_void);
                let sent = sent.map(|kept| kept.entry.number).take_while(|number| *number <= last);
                match sent.collect::<Vec<u64>>() {
                    // Without a change to refuse, only a new connection tells what the server has.
                    sent if sent.is_empty() => self.lose(duplicate),
                    sent => self.take_answer(now, duplicate, &sent, last),
                }
            }
        }
        let one = &self.duplicates[duplicate];
        if one.state == DuplicateState::Current {
            self.actions.push_back(LogAction::Read { duplicate, applied: Some(one.applied) });
        }
        self.advance(now);
    }

    /// Takes in which changes of a batch up to the entry `last` a duplicate has refused.
    fn take_answer(&mut self, now: Instant, duplicate: usize, refused: &[u64], last: u64) {
        let one = &mut self.duplicates[duplicate];
        if one.state.is_written() {
            one.applied = one.applied.max(refused.first().map_or(last, |first| first - 1));
            if !refused.is_empty() {
                self.take_refusal(now, duplicate, refused, last);
            }
        }
    }

    /// Takes in that the connection of a duplicate has ended while nothing was in flight.
    pub fn handle_broken(&mut self, now: Instant, duplicate: usize) {
        use DuplicateState::{Copying, Found};
        let state = self.duplicates[duplicate].state;
        if state == DuplicateState::Leaving {
            self.fail_reads_of_leaving(duplicate);
        }
        if state.is_written() || matches!(state, Found | Copying { .. }) {
            self.lose(duplicate);
            self.advance(now);
        }
    }

    /// Takes the marker of a duplicate, none if it has none, or the failure of the inspection.
    pub fn handle_inspected(&mut self, now: Instant, duplicate: usize, marker: Result<Option<Marker>, ()>) {
        let DuplicateState::Inspected(has_landed) = self.duplicates[duplicate].state else { return };
        let mut marker = marker;
        if let Ok(Some(found)) = marker {
            if found.partitions == self.options.partitions {
                self.overtake(found.epoch);
            } else {
                // A server that takes the place of another one leaves an open log as it is.
                self.foreign = self.foreign.or((!self.is_open).then_some(found.partitions));
                marker = Err(());
            }
        }
        let one = &mut self.duplicates[duplicate];
        match marker {
            Ok(None) if one.is_candidate => self.dismiss(duplicate),
            Ok(Some(_)) => one.is_candidate = false,
            _ => {}
        }
        let one = &mut self.duplicates[duplicate];
        match marker {
            Err(()) => (one.state, one.due) = (DuplicateState::Lost, now + self.options.retry),
            Ok(_) if one.state == DuplicateState::Gone => {}
            Ok(_) if !has_landed => {
                (one.state, one.due) = (DuplicateState::Landing, now + self.options.landing);
            }
            Ok(marker) => {
                one.marker = marker;
                (one.state, one.due) = (DuplicateState::Found, Instant::NEVER);
                if self.is_open {
                    self.resume(duplicate);
                }
            }
        }
        self.open_if_ready(now);
        self.advance(now);
    }

    /// Takes the end of a copy; false if it has failed.
    pub fn handle_copied(&mut self, now: Instant, duplicate: usize, is_done: bool) {
        let one = &mut self.duplicates[duplicate];
        let DuplicateState::Copying { from: Some(_), base } = one.state else { return };
        match base.filter(|base| is_done && base + 1 >= self.entries.first()) {
            Some(base) => {
                (one.applied, one.state) = (base, DuplicateState::Behind);
                (one.marker, one.differs) = (None, false);
                // The source went on meanwhile, so that the copy may have later entries, too.
                one.sent.0 = one.sent.0.max(self.entries.last());
                one.refused.clear();
            }
            None => {
                one.state = DuplicateState::Copying { from: None, base: None };
                one.due = now + self.options.retry;
            }
        }
        self.advance(now);
    }

    /// Does what is due: inspections, further attempts, and the end of reads at duplicates that are
    /// too far behind.
    pub fn handle_timeout(&mut self, now: Instant) {
        for duplicate in 0..self.duplicates.len() {
            let one = &mut self.duplicates[duplicate];
            match one.state {
                DuplicateState::Lost if one.due <= now => self.inspect(duplicate, false),
                DuplicateState::Landing if one.due <= now => self.inspect(duplicate, true),
                DuplicateState::Leaving if one.due <= now => {
                    one.due = Instant::NEVER;
                    self.actions.push_back(LogAction::Clear(duplicate));
                }
                DuplicateState::Behind | DuplicateState::Copying { from: None, .. } if one.due <= now => {
                    one.due = Instant::NEVER;
                }
                _ => {}
            }
        }
        self.retry_disk(now);
        self.open_if_ready(now);
        self.advance(now);
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout); none while nothing will
    /// be due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let start = (!self.is_open && self.waits).then(|| self.started + self.options.start_max);
        let start = start.filter(|_| self.duplicates.iter().any(|one| one.state == DuplicateState::Found));
        let due = self.duplicates.iter().enumerate().filter_map(|(duplicate, one)| match one.state {
            state if state.holds_back() && self.others_are_current(duplicate) => self.lags_from(duplicate),
            _ => Some(one.due).filter(|due| *due < Instant::NEVER),
        });
        due.chain(start).chain(self.disk_due()).min()
    }

    /// Returns the next action for the driver; none until the next input.
    pub fn poll_action(&mut self) -> Option<LogAction<K, E>> {
        let action = self.actions.pop_front()?;
        Some(match action {
            LogAction::Read { duplicate, .. } if self.foreign.is_some() => {
                LogAction::Read { duplicate, applied: None }
            }
            action => action,
        })
    }

    /// Returns the keys of the actions [`LogAction::Settle`] that were not polled yet.
    pub fn settling(&self) -> impl Iterator<Item = &K> {
        self.actions.iter().filter_map(|action| match action {
            LogAction::Settle(entry, _) => Some(&entry.key),
            _ => None,
        })
    }

    /// Returns the number of the last entry of a key that is not settled. A read of the key returns
    /// the value of that entry or of one before; one that must not is sent to a duplicate that has
    /// applied it.
    #[must_use]
    pub fn unsettled(&self, key: &K) -> Option<u64> {
        self.unsettled.get(key).copied()
    }

    /// Returns the number that a duplicate must have applied so that a read of `key` there reflects
    /// all entries for which `is_meant` holds, which precede all others; 0 if any duplicate that is
    /// read will do. O(log entries).
    pub fn needed(&self, key: &K, is_meant: impl Fn(&E) -> bool) -> u64 {
        let Some(last) = self.unsettled(key) else { return 0 };
        last.min(self.entries.last_meant(is_meant))
    }

    /// Returns true if a duplicate that is read has applied all entries up to this one.
    #[must_use]
    pub fn is_readable(&self, number: u64) -> bool {
        let has = |one: &Duplicate| one.state == DuplicateState::Current && one.applied >= number;
        self.duplicates.iter().any(has)
    }

    /// Number of the last entry; 0 before the first.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.entries.last()
    }

    /// Returns the state of each duplicate that was ever added, with the number of entries that it
    /// has not applied. A store that is only asked if it is one counts as gone.
    pub fn standing(&self) -> impl Iterator<Item = (DuplicateState, u64)> + '_ {
        let state = |one: &Duplicate| if one.is_candidate { DuplicateState::Gone } else { one.state };
        self.duplicates.iter().map(move |one| (state(one), self.entries.last().saturating_sub(one.applied)))
    }

    /// Returns the entries held, and their bytes.
    #[must_use]
    pub fn held(&self) -> (usize, u64) {
        (self.entries.len(), self.entries.bytes())
    }

    /// Returns the number of this process, which grows if the marker of a later one is found.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes over other times, as from a configuration that was read again. What was sent before
    /// may still land as late as it could then.
    pub fn set_times(&mut self, times: &LogOptions) {
        let LogOptions { lag_max, retry, start_max, .. } = *times;
        let landing = self.options.landing.max(times.landing);
        self.options = LogOptions { lag_max, retry, start_max, landing, ..self.options };
    }

    /// Returns the number of partitions that a duplicate's marker names, if it is another one than
    /// that of the store: the servers belong to another store, or its configuration was changed.
    #[must_use]
    pub fn foreign(&self) -> Option<u16> {
        self.foreign
    }

    /// Has the log refuse all entries and reads, since another partition has found such a
    /// duplicate.
    pub fn refuse_foreign(&mut self, partitions: u16) {
        self.foreign = Some(partitions);
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        self.counts
    }
}
