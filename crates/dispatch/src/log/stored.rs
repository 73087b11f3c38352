//! The log on disk: what is stored before it is sent, and how a process goes on from it.

use std::collections::VecDeque;
use std::hash::Hash;

use sherwood_model::Instant;

use super::duplicate::{DuplicateState, Marker, NUMBER_MAX};
use super::entries::Entries;
use super::record::LogRecord;
use super::{Log, LogAction};

/// Bytes of keys and values at which no further entry is added to a frame.
const STORE_BYTES_MAX: u64 = 1 << 20;
/// Upper bound of the processes whose markers a log on disk can be replayed from.
const EPOCHS_MAX: usize = 64;

/// The end of a [`LogAction::Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEnd {
    /// The records are on disk, and stay there whatever fails.
    Stored,
    /// None of the records is on disk, nor will be. The log tries again.
    NotStored,
    /// The records may be on disk. The log stores nothing more.
    Unknown,
}

/// A process that has written to a log on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Epoch {
    number: u64,
    /// Number of its last entry.
    last: u64,
    /// A duplicate whose marker says that this entry was sent may have made a change that takes no
    /// effect; [`u64::MAX`] if there is none.
    contested: u64,
}

/// The contents of a log on disk when a process starts.
#[derive(Clone, Debug)]
pub struct Recovered<K, E> {
    entries: Entries<K, E>,
    bytes_max: u64,
    epochs: VecDeque<Epoch>,
}

impl<K, E> Recovered<K, E> {
    /// Creates the contents of an empty log. Of those that are added the last ones are kept, within
    /// the bounds of the log.
    #[must_use]
    pub fn new(entries_max: usize, bytes_max: u64) -> Self {
        Self { entries: Entries::new(entries_max, bytes_max), bytes_max, epochs: VecDeque::new() }
    }

    /// Adds the next record, whose key and value have `bytes` bytes. Returns false if it does not
    /// follow those before it.
    #[must_use]
    pub fn take(&mut self, record: LogRecord<K, E>, bytes: u64) -> bool {
        match record {
            LogRecord::Begin { epoch, last, .. } if epoch.max(last) > NUMBER_MAX => return false,
            LogRecord::Begin { epoch, last, continues } => {
                if self.epochs.is_empty() || !continues {
                    self.epochs.clear();
                    self.entries.restart_after(last);
                }
                if last != self.entries.last() {
                    return false;
                }
                if self.epochs.back().is_none_or(|before| before.number < epoch) {
                    self.epochs.push_back(Epoch { number: epoch, last, contested: u64::MAX });
                    self.epochs.drain(..self.epochs.len().saturating_sub(EPOCHS_MAX));
                }
            }
            LogRecord::Change(entry) => {
                let number = entry.number;
                let Some(epoch) = self.epochs.back_mut() else { return false };
                if number != self.entries.last() + 1 {
                    return false;
                }
                epoch.last = number;
                self.entries.append(Instant::ZERO, entry.key, entry.change, bytes);
                if bytes > self.bytes_max {
                    self.entries.restart_after(number);
                }
            }
            LogRecord::Void { number, may_be_made } => {
                if let Some(kept) = self.entries.get_mut(number) {
                    kept.is_void = true;
                }
                if may_be_made {
                    contest(&mut self.epochs, number);
                }
            }
        }
        true
    }

    /// Returns true if the log has nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Returns the number of entries kept.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if a process may go on from the log where duplicates have these markers. It may
    /// not if a later process than the log knows has changed one of them, or if one was sent more
    /// than the log has: the log is from an earlier time.
    fn may_continue(&self, markers: impl Iterator<Item = Marker>) -> bool {
        let Some(last) = self.epochs.back() else { return false };
        let latest = markers.map(|marker| (marker.epoch, marker.sent)).max();
        latest.map_or(self.entries.len() > 0, |latest| latest <= (last.number, last.last))
    }
}

/// Notes that duplicates which were sent an entry may have made it, and must not.
fn contest(epochs: &mut VecDeque<Epoch>, number: u64) {
    epochs.iter_mut().for_each(|epoch| epoch.contested = epoch.contested.min(number));
}

/// An entry that takes no effect, as long as that is not stored.
#[derive(Clone, Copy, Debug)]
struct Voided {
    number: u64,
    may_be_made: bool,
    /// True if the client is told that the outcome is unknown.
    is_unknown: bool,
}

/// Records that are being stored.
#[derive(Clone, Copy, Debug)]
struct Storing {
    /// The last entry.
    last: u64,
    /// Number of voids.
    voids: usize,
    /// The number under which the process begins or has begun.
    epoch: u64,
}

/// The state of a log that is kept on disk.
#[derive(Clone, Debug)]
pub(super) struct Disk<K, E> {
    /// The contents that were found at the start, until the log is open.
    recovered: Option<Recovered<K, E>>,
    /// The entries up to this one were found at the start.
    recovered_until: u64,
    /// The earlier processes from whose markers the log can be replayed.
    epochs: VecDeque<Epoch>,
    /// The number under which this process has begun, once that is stored; `continues` says how.
    begun: Option<u64>,
    continues: bool,
    /// The entries up to this one are stored.
    stored: u64,
    storing: Option<Storing>,
    voids: Vec<Voided>,
    /// The time of the next attempt after a failure; [`Instant::NEVER`] if there is none.
    due: Option<Instant>,
}

impl<K: Clone + Eq + Hash, E: Clone> Log<K, E> {
    /// Has the log kept on disk, and go on from what is there. Must precede all inputs. The number
    /// of this process becomes greater than those on disk.
    pub fn keep_on_disk(&mut self, recovered: Recovered<K, E>) {
        let last = recovered.epochs.back().map_or(0, |last| last.number);
        self.epoch = self.epoch.max(last + 1);
        self.disk = Some(Disk {
            recovered: Some(recovered),
            recovered_until: 0,
            epochs: VecDeque::new(),
            begun: None,
            continues: false,
            stored: 0,
            storing: None,
            voids: Vec::new(),
            due: None,
        });
    }

    /// Takes the end of a [`LogAction::Store`]. Ignored if none is in flight.
    pub fn handle_stored(&mut self, now: Instant, end: StoreEnd) {
        let Some(disk) = &mut self.disk else { return };
        let Some(Storing { last, voids, epoch }) = disk.storing.take() else { return };
        if end == StoreEnd::Stored {
            (disk.begun, disk.continues) = (Some(epoch), true);
            for number in disk.stored + 1..=last {
                // The duplicates lag from now on.
                self.entries.get_mut(number).into_iter().for_each(|kept| kept.appended = now);
            }
            disk.stored = last;
            let told = disk.voids.drain(..voids).map(|void| {
                let Voided { number, is_unknown, .. } = void;
                if is_unknown { LogAction::Abandon(number) } else { LogAction::Acknowledge(number, false) }
            });
            self.actions.extend(told);
        } else {
            let is_final = end == StoreEnd::Unknown;
            disk.due = Some(if is_final { Instant::NEVER } else { now + self.options.retry });
            self.drop_unstored(if is_final { last } else { 0 });
        }
        self.advance(now);
    }

    /// Drops the entries that are not stored, and tells their clients: the outcome of those up to
    /// `unknown_until` is unknown, and the others take no effect.
    fn drop_unstored(&mut self, unknown_until: u64) {
        let stored = self.stored();
        for entry in self.entries.truncate_after(stored) {
            let number = entry.number;
            self.actions.push_back(if number <= unknown_until {
                LogAction::Abandon(number)
            } else {
                LogAction::Acknowledge(number, false)
            });
            if self.unsettled(&entry.key) != Some(number) {
                continue;
            }
            let earlier = self.entries.after(self.settled).filter(|kept| kept.entry.key == entry.key).last();
            match earlier.map(|kept| kept.entry.number) {
                Some(earlier) => {
                    self.unsettled.insert(entry.key, earlier);
                }
                None => {
                    self.unsettled.remove(&entry.key);
                    self.actions.push_back(LogAction::Settle(entry, false));
                }
            }
        }
        // A copy may count as having entries that were appended, but never sent.
        self.duplicates.iter_mut().for_each(|one| one.sent.0 = one.sent.0.min(stored));
    }

    /// Has everything stored that is not, unless a store is in flight or has failed lately.
    pub(super) fn store_next(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        if !self.is_open || disk.storing.is_some() || disk.due.is_some() {
            return;
        }
        let (epoch, last) = (self.epoch, disk.stored);
        let begin = LogRecord::Begin { epoch, last, continues: disk.continues };
        let mut records: Vec<_> = (disk.begun != Some(epoch)).then_some(begin).into_iter().collect();
        let voids = disk.voids.iter();
        records
            .extend(voids.map(|&Voided { number, may_be_made, .. }| LogRecord::Void { number, may_be_made }));
        let (mut last, mut bytes) = (disk.stored, 0);
        for kept in self.entries.after(disk.stored) {
            if bytes >= STORE_BYTES_MAX {
                break;
            }
            (last, bytes) = (kept.entry.number, bytes + kept.bytes);
            records.push(LogRecord::Change(kept.entry.clone()));
        }
        if !records.is_empty() {
            disk.storing = Some(Storing { last, voids: disk.voids.len(), epoch });
            self.actions.push_back(LogAction::Store { records, first: self.entries.first() });
        }
    }

    /// The number up to which entries are stored, as far as they have to be.
    pub(super) fn stored(&self) -> u64 {
        self.disk.as_ref().map_or(u64::MAX, |disk| disk.stored)
    }

    /// Returns true if duplicates may be sent markers: those of a process of which the disk does
    /// not know would have the next one disregard what is there, and those that cover an entry
    /// without effect would have it applied at the others alone.
    pub(super) fn may_mark(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.begun == Some(self.epoch) && disk.voids.is_empty())
    }

    /// Returns true if nothing can be stored for now.
    pub(super) fn disk_fails(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.due.is_some())
    }

    /// The time of the next attempt to store.
    pub(super) fn disk_due(&self) -> Option<Instant> {
        self.disk.as_ref()?.due.filter(|due| *due < Instant::NEVER)
    }

    /// Ends the time without attempts to store, if it is over.
    pub(super) fn retry_disk(&mut self, now: Instant) {
        if let Some(disk) = &mut self.disk {
            disk.due = disk.due.filter(|due| *due > now);
        }
    }

    /// Tells the client of an entry that takes no effect, as soon as that is stored. Its outcome
    /// is unknown if any duplicate may have made it: a process that starts next cannot tell which.
    pub(super) fn tell_void(&mut self, number: u64, is_nowhere: bool, may_be_made: bool) {
        match &mut self.disk {
            Some(disk) => {
                let is_unknown = !is_nowhere || may_be_made;
                disk.voids.push(Voided { number, may_be_made, is_unknown });
                if may_be_made {
                    contest(&mut disk.epochs, number);
                }
            }
            None if is_nowhere && !may_be_made => {
                self.actions.push_back(LogAction::Acknowledge(number, false))
            }
            None => self.actions.push_back(LogAction::Abandon(number)),
        }
    }

    /// Returns true if an entry that was found at the start, and may have been acknowledged, need
    /// not be applied although no duplicate has taken it: they have had time to.
    pub(super) fn may_drop(&self, now: Instant, number: u64) -> bool {
        self.is_recovered(number) && now >= self.started + 2 * self.options.start_max
    }

    /// Returns true if an entry was found on disk at the start.
    pub(super) fn is_recovered(&self, number: u64) -> bool {
        self.disk.as_ref().is_some_and(|disk| number <= disk.recovered_until)
    }

    /// Has it stored that this process has begun, after the last entry there is.
    pub(super) fn begin_on_disk(&mut self, continues: bool) {
        let last = self.entries.last();
        if let Some(disk) = &mut self.disk {
            (disk.recovered, disk.continues, disk.stored) = (None, continues, last);
        }
    }

    /// Opens the log with the entries that were on disk, and has the inspected duplicates apply
    /// what they lack. Returns false if there are none, or they are not to be used.
    pub(super) fn open_from_disk(&mut self, now: Instant) -> bool {
        let found = self.duplicates.iter().filter(|one| one.state == DuplicateState::Found);
        let markers: Vec<Marker> = found.filter_map(|one| one.marker).collect();
        let Some(disk) = &mut self.disk else { return false };
        let recovered = disk.recovered.take();
        let Some(recovered) = recovered.filter(|of| of.may_continue(markers.iter().copied())) else {
            return false;
        };
        (self.entries, disk.epochs) = (recovered.entries, recovered.epochs);
        let last = self.entries.last();
        disk.recovered_until = last;
        self.entries.set_appended(now);
        (self.acknowledged, self.settled) = (last, last);
        self.begin_on_disk(true);
        self.forgive_one(&markers);
        for duplicate in 0..self.duplicates.len() {
            if self.duplicates[duplicate].state == DuplicateState::Found {
                self.resume(duplicate);
            }
        }
        true
    }

    /// Takes the duplicate that is furthest ahead as right if all that could be replayed may have
    /// made a change that takes no effect: the others are copied from it.
    fn forgive_one(&mut self, markers: &[Marker]) {
        let Some(disk) = &self.disk else { return };
        let is_known = |marker: &&Marker| disk.epochs.iter().any(|epoch| epoch.number == marker.epoch);
        let furthest = markers.iter().filter(is_known).max().copied();
        if markers.iter().any(|marker| self.replayed_from(*marker).is_some()) {
            return;
        }
        let chosen = self.duplicates.iter_mut().find(|one| furthest.is_some() && one.marker == furthest);
        if let (Some(one), Some(marker)) = (chosen, furthest) {
            one.opened_with = Some(Some(marker));
            self.base.0 = marker.applied;
        }
    }

    /// Returns the number of the entry up to which a duplicate with a marker of an earlier process
    /// has all entries, if the log on disk goes on from there.
    pub(super) fn replayed_from(&self, marker: Marker) -> Option<u64> {
        let mut epochs = self.disk.as_ref()?.epochs.iter();
        let epoch = epochs.find(|epoch| epoch.number == marker.epoch)?;
        (marker.sent <= epoch.last && marker.sent < epoch.contested).then_some(marker.applied)
    }
}
