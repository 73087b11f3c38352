//! Duplicates that are lost, found again, repaired and read again.

use std::cmp::Reverse;
use std::hash::Hash;

use sherwood_model::Instant;

use super::duplicate::{Duplicate, DuplicateState, Marker};
use super::{BATCH_ENTRIES_MAX, Log, LogAction};

impl<K: Clone + Eq + Hash, E: Clone> Log<K, E> {
    /// Sets the state of a duplicate, and tells the driver if it is read now, or no longer.
    pub(super) fn set_state(&mut self, duplicate: usize, state: DuplicateState) {
        let one = &mut self.duplicates[duplicate];
        let was_read = one.state == DuplicateState::Current;
        one.state = state;
        let is_read = state == DuplicateState::Current;
        if was_read && !is_read {
            self.actions.push_back(LogAction::Read { duplicate, applied: None });
            self.spoil_copies_of(duplicate);
        } else if is_read && !was_read {
            self.counts.repaired += 1;
            self.actions.push_back(LogAction::Read { duplicate, applied: Some(one.applied) });
        }
    }

    /// Gives up the connection of a duplicate, which is inspected next.
    pub(super) fn lose(&mut self, duplicate: usize) {
        self.set_state(duplicate, DuplicateState::Lost);
        let one = &mut self.duplicates[duplicate];
        (one.in_flight, one.marker) = (None, None);
        one.refused.clear();
        self.inspect(duplicate, false);
    }

    pub(super) fn inspect(&mut self, duplicate: usize, has_landed: bool) {
        let one = &mut self.duplicates[duplicate];
        (one.state, one.due) = (DuplicateState::Inspected(has_landed), Instant::NEVER);
        self.actions.push_back(LogAction::Inspect(duplicate));
    }

    /// Opens the log of a new process once its duplicates are known, and goes on from the one that
    /// is known to have applied most, not from one that was sent more and may have refused it. If
    /// none has a marker, they are new and equal.
    pub(super) fn open_if_ready(&mut self, now: Instant) {
        let known = |state: DuplicateState| state == DuplicateState::Found;
        let present = self.duplicates.iter().filter(|one| known(one.state)).count();
        let waits = now < self.started + self.options.start_max;
        if self.is_open || present == 0 || (waits && present < self.duplicates.len()) {
            return;
        }
        self.is_open = true;
        let of_present = self.duplicates.iter().enumerate().filter(|(_, one)| known(one.state));
        let has = |marker: Marker| (marker.epoch, marker.applied, marker.sent);
        let furthest = of_present.max_by_key(|(index, one)| (one.marker.map(has), Reverse(*index)));
        let (source, marker) = furthest.map_or((0, None), |(index, one)| (index, one.marker));
        let last = marker.map_or(0, |marker| marker.sent);
        self.base = (last, marker.map(|marker| Marker { applied: last, ..marker }));
        self.entries.restart_after(last);
        (self.acknowledged, self.settled) = (last, last);
        for duplicate in 0..self.duplicates.len() {
            let one = &mut self.duplicates[duplicate];
            if !known(one.state) {
                continue;
            }
            if duplicate == source || one.marker == self.base.1 {
                (one.applied, one.opened_with) = (last, Some(one.marker));
                self.set_state(duplicate, DuplicateState::Current);
            } else {
                self.resume(duplicate);
            }
        }
        self.counts.repaired = 0;
    }

    /// Has an inspected duplicate apply what it lacks, or be copied if the log does not have that.
    pub(super) fn resume(&mut self, duplicate: usize) {
        let one = &mut self.duplicates[duplicate];
        let is_ours = |marker: &Marker| marker.epoch == self.epoch && marker.sent <= self.entries.last();
        let has_base =
            one.opened_with == Some(one.marker) || (one.marker.is_some() && one.marker == self.base.1);
        let of_ours = one.marker.filter(is_ours).map(|marker| marker.applied);
        let applied = if has_base { Some(self.base.0) } else { of_ours };
        match applied.filter(|applied| applied + 1 >= self.entries.first() && !one.differs) {
            Some(applied) => {
                one.applied = applied;
                (one.state, one.due) = (DuplicateState::Behind, Instant::NEVER);
            }
            None => self.need_copy(duplicate),
        }
    }

    /// Has a duplicate filled from another one, since the log cannot repair it.
    pub(super) fn need_copy(&mut self, duplicate: usize) {
        self.counts.differs += 1;
        self.set_state(duplicate, DuplicateState::Copying { from: None, base: None });
        let one = &mut self.duplicates[duplicate];
        (one.applied, one.differs, one.due) = (0, true, Instant::NEVER);
    }

    /// Takes the duplicate with the latest marker as right, if none has kept its data or can be
    /// repaired: none is left to copy from. It makes the changes again that the log still has.
    fn adopt_if_all_differ(&mut self) {
        let waits = |one: &Duplicate| matches!(one.state, DuplicateState::Copying { from: None, .. });
        if !self.is_open || !self.duplicates.iter().all(waits) {
            return;
        }
        let latest =
            self.duplicates.iter_mut().enumerate().max_by_key(|(index, one)| (one.marker, Reverse(*index)));
        if let Some((_, one)) = latest {
            one.applied = self.entries.first() - 1;
            (one.state, one.due, one.differs) = (DuplicateState::Behind, Instant::NEVER, false);
        }
    }

    /// Begins the copies that wait for a duplicate to copy from.
    pub(super) fn begin_copies(&mut self) {
        self.adopt_if_all_differ();
        let current = self.duplicates.iter().position(|one| one.state == DuplicateState::Current);
        let Some(from) = current else { return };
        let base = self.duplicates[from].applied;
        for (to, one) in self.duplicates.iter_mut().enumerate() {
            if matches!(one.state, DuplicateState::Copying { from: None, .. }) && one.due == Instant::NEVER {
                one.state = DuplicateState::Copying { from: Some(from), base: Some(base) };
                self.actions.push_back(LogAction::Copy { from, to });
            }
        }
    }

    /// Has the copies of a duplicate that is not read any more count as failed: it may have lost
    /// its data.
    fn spoil_copies_of(&mut self, duplicate: usize) {
        for one in &mut self.duplicates {
            if let DuplicateState::Copying { from: Some(from), base } = &mut one.state
                && *from == duplicate
            {
                *base = None;
            }
        }
    }

    /// Reads the duplicates again that have caught up, and those no longer that are too far behind,
    /// but for the last one that is read.
    pub(super) fn choose_read(&mut self, now: Instant) {
        for duplicate in 0..self.duplicates.len() {
            let one = &self.duplicates[duplicate];
            let lags = self.lags_from(duplicate).is_some_and(|from| from <= now);
            let is_near = self.entries.last() - one.applied <= BATCH_ENTRIES_MAX as u64;
            let is_done = one.in_flight.is_none() && one.due == Instant::NEVER;
            if one.state == DuplicateState::Behind
                && is_done
                && is_near
                && !(lags && self.others_are_current(duplicate))
            {
                self.set_state(duplicate, DuplicateState::Joining(self.settled));
            }
            if let DuplicateState::Joining(until) = self.duplicates[duplicate].state
                && self.duplicates[duplicate].applied >= until
            {
                self.set_state(duplicate, DuplicateState::Current);
            }
        }
        for duplicate in 0..self.duplicates.len() {
            let lags = self.lags_from(duplicate).is_some_and(|from| from <= now);
            if lags && self.duplicates[duplicate].state.holds_back() && self.others_are_current(duplicate) {
                self.set_state(duplicate, DuplicateState::Behind);
            }
        }
    }

    /// Takes the changes of a batch that a duplicate has refused. The first of them takes no effect
    /// anywhere if no other duplicate is read, it was refused whenever it was sent, and it is
    /// neither acknowledged nor settled. Otherwise this duplicate is read no longer, and tried
    /// again later.
    pub(super) fn take_refusal(&mut self, now: Instant, duplicate: usize, refused: &[u64]) {
        let one = &mut self.duplicates[duplicate];
        one.note_refused(refused);
        let Some(&number) = refused.first() else { return };
        let is_open = number > self.acknowledged.max(self.settled);
        let is_nowhere = is_open && one.refused.contains(&number);
        if is_nowhere && !self.others_are_current(duplicate) {
            return self.void(number, duplicate);
        }
        self.set_state(duplicate, DuplicateState::Behind);
        self.duplicates[duplicate].due = now + self.options.retry;
    }

    /// Has an entry take no effect, since the last duplicate that is read has refused it. One that
    /// may have applied it has to be copied.
    fn void(&mut self, number: u64, refused_by: usize) {
        if let Some(kept) = self.entries.get_mut(number) {
            kept.is_void = true;
        }
        self.actions.push_back(LogAction::Acknowledge(number, false));
        for other in 0..self.duplicates.len() {
            let one = &mut self.duplicates[other];
            let differs = other != refused_by && one.may_have(number);
            match one.state {
                DuplicateState::Copying { from: None, .. } => {}
                state if state.is_written() && differs => self.need_copy(other),
                DuplicateState::Behind => one.due = Instant::NEVER,
                _ => one.differs |= differs,
            }
        }
    }

    /// Returns true if another duplicate than this one is read.
    pub(super) fn others_are_current(&self, duplicate: usize) -> bool {
        let mut others = self.duplicates.iter().enumerate().filter(|(other, _)| *other != duplicate);
        others.any(|(_, one)| one.state == DuplicateState::Current)
    }
}
