//! Batches to the duplicates, and what follows from what these have applied.

use std::hash::Hash;

use sherwood_model::Instant;

use crate::Acknowledge;

use super::duplicate::{DuplicateState, Marker};
use super::{BATCH_ENTRIES_MAX, Log, LogAction, LogEntry};

impl<K: Clone + Eq + Hash, E: Clone> Log<K, E> {
    /// Draws the conclusions from any input.
    pub(super) fn advance(&mut self, now: Instant) {
        self.choose_read(now);
        self.acknowledge();
        self.settle();
        self.begin_copies();
        self.send_to_all(now);
    }

    /// Sends a batch to each duplicate that has none in flight and lacks something.
    pub(super) fn send_to_all(&mut self, now: Instant) {
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
        let one = &mut self.duplicates[duplicate];
        let batch: Vec<_> = self.entries.after(one.applied).take(BATCH_ENTRIES_MAX).collect();
        let last = batch.last().map_or(one.applied, |kept| kept.entry.number);
        let marker = Marker { epoch: self.epoch, sent: last, applied: one.applied };
        if batch.is_empty() && one.marker == Some(marker) {
            return;
        }
        one.note_sent(last, marker);
        let effective = batch.into_iter().filter(|kept| !kept.is_void);
        let entries: Vec<LogEntry<K, E>> = effective.map(|kept| kept.entry.clone()).collect();
        self.actions.push_back(LogAction::Apply { duplicate, marker, entries });
    }

    /// Acknowledges the entries that enough duplicates have applied.
    fn acknowledge(&mut self) {
        let current = || self.duplicates.iter().filter(|one| one.state == DuplicateState::Current);
        let Some(furthest) = current().map(|one| one.applied).max() else { return };
        let until = match self.options.acknowledge {
            Acknowledge::First => furthest,
            Acknowledge::Majority => {
                self.applied_by(Acknowledge::Majority.needed(self.duplicates.len())).min(furthest)
            }
            Acknowledge::All => self.applied_where_read().unwrap_or(0),
        };
        for number in self.acknowledged + 1..=until {
            if !self.entries.get(number).is_some_and(|kept| kept.is_void) {
                self.actions.push_back(LogAction::Acknowledge(number, true));
            }
        }
        self.acknowledged = self.acknowledged.max(until);
    }

    /// Returns the number up to which this many duplicates have applied all entries.
    fn applied_by(&self, count: usize) -> u64 {
        let written = self.duplicates.iter().filter(|one| one.state.is_written());
        let mut applied: Vec<u64> = written.map(|one| one.applied).collect();
        applied.sort_unstable_by(|a, b| b.cmp(a));
        applied.get(count - 1).copied().unwrap_or(0)
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
        let held_back = self.duplicates.iter().filter(|one| one.state.holds_back());
        let marked = held_back.map(|one| one.marker.map_or(0, |marker| marker.applied));
        marked.min().unwrap_or(0).min(self.acknowledged)
    }

    /// Returns the time from which a duplicate is too far behind to be read; none if it has all.
    pub(super) fn lags_from(&self, duplicate: usize) -> Option<Instant> {
        let missing = self.entries.get(self.duplicates[duplicate].applied + 1)?;
        Some(missing.appended + self.options.lag_max)
    }
}
