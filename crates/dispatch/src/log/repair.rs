//! Duplicates that are lost, found again, repaired and read again.

use std::cmp::Reverse;
use std::hash::Hash;

use sherwood_model::Instant;

use super::duplicate::{Duplicate, DuplicateState, Marker};
use super::{BATCH_ENTRIES_MAX, Log, LogAction};
use crate::Acknowledge;

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
            self.counts.repaired += u64::from(!one.is_new);
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
        self.waits &= now < self.started + self.options.start_max;
        if self.is_open || !self.are_enough_found() {
            return;
        }
        let known = |state: DuplicateState| state == DuplicateState::Found;
        self.is_open = true;
        for duplicate in 0..self.duplicates.len() {
            if self.duplicates[duplicate].is_candidate {
                self.dismiss(duplicate);
            }
        }
        if self.open_from_disk(now) {
            return;
        }
        let of_present = self.duplicates.iter().enumerate().filter(|(_, one)| known(one.state));
        let furthest = of_present.max_by_key(|(index, one)| (one.marker, Reverse(*index)));
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
        self.begin_on_disk(false);
    }

    /// Returns true if the duplicates that were found may have the log opened: all of them, or,
    /// after [`LogOptions::start_max`](super::LogOptions::start_max), so many with a marker that
    /// one of them has what a majority has acknowledged. One without a marker may have been
    /// emptied: it does not stand for those that cannot be reached.
    fn are_enough_found(&self) -> bool {
        let found = || self.duplicates.iter().filter(|one| one.state == DuplicateState::Found);
        let (all, present) = (self.voters().count(), found().count());
        if present == all && !self.waits_for_candidates() {
            return present > 0;
        }
        let least = match self.options.acknowledge {
            Acknowledge::Majority => all + 1 - self.needed_at_least(),
            Acknowledge::First | Acknowledge::All => 1,
        };
        !self.waits && found().filter(|one| one.marker.is_some()).count() >= least
    }

    /// Takes a later number than a process whose marker was found, as after a clock went back: a
    /// next process must prefer the markers of this one. They are all recorded anew.
    pub(super) fn overtake(&mut self, found: u64) {
        if found < self.epoch || (found == self.epoch && self.is_open) {
            return;
        }
        self.epoch = found + 1;
        if self.is_open {
            self.duplicates.iter_mut().for_each(|one| one.marker = None);
        }
    }

    /// Has an inspected duplicate apply what it lacks, or be copied if the log does not have that.
    pub(super) fn resume(&mut self, duplicate: usize) {
        let one = &self.duplicates[duplicate];
        let is_ours = |marker: &Marker| marker.epoch == self.epoch && marker.sent <= self.entries.last();
        let has_base =
            one.opened_with == Some(one.marker) || (one.marker.is_some() && one.marker == self.base.1);
        let of_ours = one.marker.filter(is_ours).map(|marker| marker.applied);
        let of_disk = || self.replayed_from(one.marker?);
        let applied = if has_base { Some(self.base.0) } else { of_ours.or_else(of_disk) };
        let applied = applied.filter(|applied| applied + 1 >= self.entries.first() && !one.differs);
        let Some(applied) = applied else { return self.need_copy(duplicate) };
        let one = &mut self.duplicates[duplicate];
        one.applied = applied;
        one.sent.0 = one.sent.0.max(one.marker.map_or(0, |marker| marker.sent));
        (one.state, one.due) = (DuplicateState::Behind, Instant::NEVER);
    }

    /// Has a duplicate filled from another one, since the log cannot repair it.
    pub(super) fn need_copy(&mut self, duplicate: usize) {
        let one = &self.duplicates[duplicate];
        self.counts.differs += u64::from(!one.is_new);
        self.set_state(duplicate, DuplicateState::Copying { from: None, base: None });
        let one = &mut self.duplicates[duplicate];
        (one.applied, one.differs, one.due) = (0, true, Instant::NEVER);
    }

    /// Takes the duplicate with the latest marker as right, if none has kept its data or can be
    /// repaired: none is left to copy from. It makes the changes again that the log still has.
    fn adopt_if_all_differ(&mut self) {
        let waits = |one: &Duplicate| matches!(one.state, DuplicateState::Copying { from: None, .. });
        let mut all = self.duplicates.iter().filter(|one| one.was_complete());
        if !self.is_open || !all.all(waits) {
            return;
        }
        let all = self.duplicates.iter_mut().enumerate();
        let all = all.filter(|(_, one)| one.was_complete());
        let latest = all.max_by_key(|(index, one)| (one.marker, Reverse(*index)));
        if let Some((_, one)) = latest {
            one.applied = self.entries.first() - 1;
            (one.state, one.due, one.differs) = (DuplicateState::Behind, Instant::NEVER, false);
        }
    }

    /// Begins the copies that wait for a duplicate to copy from.
    pub(super) fn begin_copies(&mut self) {
        self.adopt_if_all_differ();
        if !self.may_mark() {
            return;
        }
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
    pub(super) fn spoil_copies_of(&mut self, duplicate: usize) {
        for one in &mut self.duplicates {
            if let DuplicateState::Copying { from: Some(from), base } = &mut one.state
                && *from == duplicate
            {
                *base = None;
            }
        }
    }

    /// Reads the duplicates again that have caught up, and those no longer that are too far behind,
    /// but for the last one that is read. A duplicate may have entries after those that it is known
    /// to have applied, and its values go back when it applies these again; it is read afterwards.
    /// With a log on disk its marker has to be recorded, too: a process that starts next could not
    /// tell what it has, and the others may have lost their data.
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
            let one = &self.duplicates[duplicate];
            if let DuplicateState::Joining(until) = one.state
                && one.applied >= until.max(one.sent.0)
                && (!one.is_new || self.is_layout_recorded())
                && (self.disk.is_none() || one.marker.is_some())
            {
                self.set_state(duplicate, DuplicateState::Current);
                self.duplicates[duplicate].is_new = false;
            }
        }
        for duplicate in 0..self.duplicates.len() {
            let lags = self.lags_from(duplicate).is_some_and(|from| from <= now);
            if lags && self.duplicates[duplicate].state.holds_back() && self.others_are_current(duplicate) {
                self.set_state(duplicate, DuplicateState::Behind);
            }
        }
    }

    /// Takes the changes that a duplicate has refused, of a batch up to the entry `last`. They are
    /// not sent again if no other duplicate is read, and they are neither acknowledged nor settled,
    /// nor kept by one that comes back. Otherwise this duplicate is read no longer, and tried again
    /// later.
    pub(super) fn take_refusal(&mut self, now: Instant, duplicate: usize, refused: &[u64], last: u64) {
        self.duplicates[duplicate].note_refused(refused);
        for (index, &number) in refused.iter().enumerate() {
            let is_open = number > self.acknowledged.max(self.settled) || self.may_drop(now, number);
            if !is_open || self.others_are_current(duplicate) || self.is_kept(now, duplicate, number) {
                self.set_state(duplicate, DuplicateState::Behind);
                self.duplicates[duplicate].due = now + self.options.retry;
                return;
            }
            self.void(number, duplicate);
            // Those that follow it are made, and sent again they would undo each other.
            let made = refused.get(index + 1).map_or(last, |next| next - 1);
            self.duplicates[duplicate].applied = made;
        }
    }

    /// Returns true if another duplicate than this one has made the change of an entry and has not
    /// lost it, for all that is known. Clients may have read its value there, and must not read an
    /// older one, at least until the other one has had time to come back.
    fn is_kept(&self, now: Instant, duplicate: usize, number: u64) -> bool {
        let is_overdue = |from: Instant| now >= from + 2 * self.options.start_max;
        if self.entries.get(number).is_none_or(|kept| is_overdue(kept.appended)) {
            return false;
        }
        let mut others = self.duplicates.iter().enumerate().filter(|(other, _)| *other != duplicate);
        others.any(|(_, one)| one.was_complete() && !one.differs && one.applied >= number)
    }

    /// Has an entry sent to no duplicate any more, since the only one that could be read has
    /// refused it. The others have to be copied from that one if they may differ from it: it does
    /// not have the entry if it has refused it whenever it was sent, and may have it otherwise.
    fn void(&mut self, number: u64, refused_by: usize) {
        if let Some(kept) = self.entries.get_mut(number) {
            kept.is_void = true;
        }
        let is_nowhere = self.duplicates[refused_by].refused.contains(&number) && !self.is_recovered(number);
        let differs =
            |(other, one): (usize, &Duplicate)| other != refused_by && (!is_nowhere || one.may_have(number));
        let differ: Vec<bool> = self.duplicates.iter().enumerate().map(differs).collect();
        // A duplicate that is not reached, and has made it, must not pass for equal later.
        let may_be_made = differ.contains(&true);
        self.contested += u64::from(may_be_made);
        self.tell_void(number, is_nowhere, may_be_made);
        for (other, differs) in differ.into_iter().enumerate() {
            let one = &mut self.duplicates[other];
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
