//! Batches to the duplicates, and what follows from what these have applied.

use std::hash::Hash;

use sherwood_model::Instant;

use crate::Acknowledge;

use super::duplicate::{Duplicate, DuplicateState, Marker};
use super::{BATCH_ENTRIES_MAX, Log, LogAction, LogEntry};

impl<K: Clone + Eq + Hash, E: Clone> Log<K, E> {
    /// Draws the conclusions from any input.
    pub(super) fn advance(&mut self, now: Instant) {
        self.choose_read(now);
        self.acknowledge();
        self.settle();
        self.let_leave(now);
        self.begin_copies();
        self.send_to_all(now);
    }

    /// Sends a batch to each duplicate that has none in flight and lacks something.
    pub(super) fn send_to_all(&mut self, now: Instant) {
        self.store_next();
        if !self.may_mark() {
            return;
        }
        for duplicate in 0..self.duplicates.len() {
            let one = &self.duplicates[duplicate];
            if !one.state.is_written() || one.in_flight.is_some() || one.due > now && one.due < Instant::NEVER
            {
                continue;
            }
            if one.applied + 1 < self.entries.first() {
                self.need_copy(duplicate);
                self.begin_copies();
                continue;
            }
            self.send(duplicate);
        }
    }

    fn send(&mut self, duplicate: usize) {
        let stored = self.stored();
        let one = &mut self.duplicates[duplicate];
        let batch = self.entries.after(one.applied).take_while(|kept| kept.entry.number <= stored);
        let batch: Vec<_> = batch.take(BATCH_ENTRIES_MAX).collect();
        let last = batch.last().map_or(one.applied, |kept| kept.entry.number);
        let marker = Marker {
            epoch: self.epoch,
            sent: last,
            applied: one.applied,
            contested: self.contested,
            partitions: self.options.partitions,
            layout: self.layout,
        };
        if batch.is_empty() && one.marker == Some(marker) && !one.must_mark {
            return;
        }
        one.note_sent(last, marker);
        let effective = batch.into_iter().filter(|kept| !kept.is_void);
        let entries: Vec<LogEntry<K, E>> = effective.map(|kept| kept.entry.clone()).collect();
        self.actions.push_back(LogAction::Apply { duplicate, marker, entries });
    }

    /// Acknowledges the entries that enough duplicates have applied.
    fn acknowledge(&mut self) {
        let current = || self.voters().filter(|one| one.state == DuplicateState::Current);
        let Some(furthest) = current().map(|one| one.applied).max() else { return };
        let until = match self.options.acknowledge {
            Acknowledge::First => furthest,
            Acknowledge::Majority => self.recorded_by_majority().max(self.applied_everywhere()).min(furthest),
            Acknowledge::All => self.recorded_where_read().max(self.applied_everywhere()).min(furthest),
        };
        for number in self.acknowledged + 1..=until {
            if !self.entries.get(number).is_some_and(|kept| kept.is_void) {
                self.actions.push_back(LogAction::Acknowledge(number, true));
            }
        }
        self.acknowledged = self.acknowledged.max(until);
    }

    /// Returns the least number of duplicates that acknowledge an entry.
    pub(super) fn needed_at_least(&self) -> usize {
        match self.options.acknowledge {
            Acknowledge::Majority => Acknowledge::Majority.needed(self.voters().count()),
            Acknowledge::First | Acknowledge::All => 1,
        }
    }

    /// Returns the number up to which all that may have a marker have applied all entries; 0 while
    /// one is absent. Whichever a next process goes on from has these. One that leaves does not
    /// count once the markers of the others are later than any of its own.
    fn applied_everywhere(&self) -> u64 {
        let recorded = self.recorded_by_voters();
        let counts = |one: &&Duplicate| match one.state {
            DuplicateState::Gone => false,
            DuplicateState::Leaving => one.sent.0 > recorded,
            _ => true,
        };
        let counted = self.duplicates.iter().filter(counts);
        let applied = counted.map(|one| if one.state.is_written() { one.applied } else { 0 });
        applied.min().unwrap_or(0)
    }

    /// Returns the number up to which the markers of more than half of the duplicates say that all
    /// entries are applied. A next process goes on from one whose marker says so.
    fn recorded_by_majority(&self) -> u64 {
        let written = self.voters().filter(|one| one.state.is_written());
        let mut recorded: Vec<u64> = written.map(Duplicate::recorded).collect();
        recorded.sort_unstable_by(|a, b| b.cmp(a));
        recorded.get(self.needed_at_least() - 1).copied().unwrap_or(0)
    }

    /// Returns the number up to which the markers of all duplicates that are read, or join them,
    /// say that all entries are applied.
    fn recorded_where_read(&self) -> u64 {
        let held_back = self.duplicates.iter().filter(|one| one.state.holds_back());
        held_back.map(Duplicate::recorded).min().unwrap_or(0)
    }

    /// Returns the number up to which all duplicates that are read, or join them, have applied all
    /// entries; none if there is no such duplicate. One that joins is read while it still lacks
    /// entries that were appended since it began to.
    fn applied_where_read(&self) -> Option<u64> {
        let held_back = self.duplicates.iter().filter(|one| one.state.holds_back());
        held_back.map(|one| one.applied).min()
    }

    /// Settles the keys of the entries that all duplicates which are read, or join them, have.
    fn settle(&mut self) {
        let Some(until) = self.applied_where_read() else { return };
        for number in self.settled + 1..=until {
            let Some(kept) = self.entries.get(number) else { continue };
            if self.unsettled.get(&kept.entry.key) == Some(&number) {
                self.unsettled.remove(&kept.entry.key);
                self.actions.push_back(LogAction::Settle(kept.entry.clone(), !kept.is_void));
            }
        }
        self.settled = self.settled.max(until);
    }

    /// Returns the number up to which entries may be dropped: they are acknowledged, and every
    /// duplicate that is read, or joins those, has a marker that says that they are applied.
    pub(super) fn droppable(&self) -> u64 {
        self.recorded_where_read().min(self.acknowledged)
    }

    /// Returns the time from which a duplicate is too far behind to be read; none if it has all.
    pub(super) fn lags_from(&self, duplicate: usize) -> Option<Instant> {
        let missing = self.entries.get(self.duplicates[duplicate].applied + 1)?;
        (missing.entry.number <= self.stored()).then(|| missing.appended + self.options.lag_max)
    }
}
