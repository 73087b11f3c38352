//! Duplicates that join the log and leave it, while it is in use.

use std::hash::Hash;

use sherwood_model::Instant;

use super::duplicate::{Duplicate, DuplicateState};
use super::layout::Layout;
use super::{Log, LogAction};

impl<K: Clone + Eq + Hash, E: Clone> Log<K, E> {
    /// Adds a duplicate: one that has left, or the next number. Before the log is open it counts as
    /// one that may have all entries. Afterwards it is filled by a copy, and acknowledges changes
    /// once it is read. Ignored for one that has not left.
    ///
    /// # Panics
    /// If `duplicate` is greater than the number of those that were ever added.
    pub fn join(&mut self, now: Instant, duplicate: usize) {
        if duplicate == self.duplicates.len() {
            self.duplicates.push(Duplicate::new(now));
        } else if self.duplicates[duplicate].state == DuplicateState::Gone {
            self.duplicates[duplicate] = Duplicate::new(now);
        } else {
            self.duplicates[duplicate].is_candidate = false;
            return;
        }
        let one = &mut self.duplicates[duplicate];
        (one.is_new, one.differs) = (self.is_open, self.is_open);
        self.inspect(duplicate, false);
        self.advance(now);
    }

    /// Asks a store before the log is open if it was a duplicate; its number is the next. If it has
    /// a marker it is one; otherwise [`LogAction::Close`] follows, at the latest when the log is
    /// open.
    pub fn ask(&mut self, now: Instant) {
        let duplicate = self.duplicates.len();
        self.join(now, duplicate);
        self.duplicates[duplicate].is_candidate = true;
    }

    /// Returns true if a candidate may still turn out to have entries that others lack: those have
    /// markers otherwise, which would name its layout.
    pub(super) fn waits_for_candidates(&self) -> bool {
        let is_marked = |one: &Duplicate| one.state == DuplicateState::Found && one.marker.is_some();
        !self.voters().all(is_marked) && self.duplicates.iter().any(|one| one.is_candidate)
    }

    /// Gives up a candidate.
    pub(super) fn dismiss(&mut self, duplicate: usize) {
        let one = &mut self.duplicates[duplicate];
        (one.state, one.is_candidate, one.due) = (DuplicateState::Gone, false, Instant::NEVER);
        self.actions.extend([LogAction::Retire(duplicate), LogAction::Close(duplicate)]);
    }

    /// Takes a duplicate out of the log, once the markers of all others say that they have every
    /// entry which is acknowledged by now. From now on it does not count for acknowledgements. It
    /// stays if one of the others is not read any more before that.
    /// [`LogAction::Retire`] follows, and when reads that were sent to it before have ended,
    /// [`LogAction::Clear`]; report with [`handle_cleared`](Self::handle_cleared).
    pub fn leave(&mut self, now: Instant, duplicate: usize) {
        self.duplicates[duplicate].leaves_after = Some(self.acknowledged);
        // One that has just been lost, unnoticed, does not answer a new marker.
        for one in &mut self.duplicates {
            one.must_mark |= one.is_voter();
        }
        self.advance(now);
    }

    /// Takes out the duplicates that may leave.
    pub(super) fn let_leave(&mut self, now: Instant) {
        if self.voters().any(|one| one.state != DuplicateState::Current) {
            let stay = self.duplicates.iter_mut().filter(|one| one.was_complete());
            return stay.for_each(|one| one.leaves_after = None);
        }
        let answer = self.voters().all(|one| one.marker.is_some() && !one.must_mark);
        let recorded = self.recorded_by_voters();
        for duplicate in 0..self.duplicates.len() {
            let one = &self.duplicates[duplicate];
            let may_leave = one.leaves_after.is_some_and(|after| one.is_new || (answer && recorded >= after));
            if one.state.is_member() && may_leave {
                let one = &mut self.duplicates[duplicate];
                if matches!(one.state, DuplicateState::Copying { .. }) {
                    // The copy has to end before the contents are removed.
                    self.actions.push_back(LogAction::Close(duplicate));
                }
                (one.state, one.in_flight) = (DuplicateState::Leaving, None);
                one.due = now + self.options.landing;
                self.spoil_copies_of(duplicate);
                self.actions.push_back(LogAction::Retire(duplicate));
            }
        }
    }

    /// Has the reads fail that are under way at a duplicate which leaves: it may have lost its
    /// data.
    pub(super) fn fail_reads_of_leaving(&mut self, duplicate: usize) {
        self.actions.push_back(LogAction::Read { duplicate, applied: None });
        self.actions.push_back(LogAction::Retire(duplicate));
    }

    /// Takes in that the records of a duplicate that has left are removed there; false if that has
    /// failed, and is tried again.
    pub fn handle_cleared(&mut self, now: Instant, duplicate: usize, is_done: bool) {
        let one = &mut self.duplicates[duplicate];
        if one.state != DuplicateState::Leaving || one.due != Instant::NEVER {
            return;
        }
        if is_done {
            one.state = DuplicateState::Gone;
        } else {
            one.due = now + self.options.retry;
        }
    }

    /// Sets the layout that markers name from now on: that of all duplicates which may have entries
    /// that others lack, if it is not the configured one. A new duplicate is not read, and does not
    /// acknowledge, before the markers of the others name it.
    pub fn set_layout(&mut self, now: Instant, layout: Option<Layout>) {
        self.layout = layout;
        self.advance(now);
    }

    /// Returns true if a duplicate has every entry that was acknowledged, and is read.
    #[must_use]
    pub fn is_current(&self, duplicate: usize) -> bool {
        self.duplicates.get(duplicate).is_some_and(|one| one.state == DuplicateState::Current)
    }

    /// Returns true if a duplicate has joined, and is not to leave.
    #[must_use]
    pub fn stays(&self, duplicate: usize) -> bool {
        let one = self.duplicates.get(duplicate);
        one.is_some_and(|one| one.state.is_member() && one.leaves_after.is_none())
    }

    /// Returns true if a duplicate was never added, or nothing is left to do for it.
    #[must_use]
    pub fn is_gone(&self, duplicate: usize) -> bool {
        self.duplicates.get(duplicate).is_none_or(|one| one.state == DuplicateState::Gone)
    }

    /// Returns true once the log takes entries.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the duplicates whose acknowledgements count.
    pub(super) fn voters(&self) -> impl Iterator<Item = &Duplicate> {
        self.duplicates.iter().filter(|one| one.is_voter())
    }

    /// Returns true if the markers of all duplicates that acknowledge, and are read or join those,
    /// name the layout. Markers of the others are older.
    pub(super) fn is_layout_recorded(&self) -> bool {
        let mut held_back = self.voters().filter(|one| one.state.holds_back()).peekable();
        let is_recorded = |one: &Duplicate| one.marker.is_some_and(|marker| marker.layout == self.layout);
        held_back.peek().is_some() && held_back.all(is_recorded)
    }

    /// Returns the number up to which the markers of all duplicates that acknowledge say that all
    /// entries are applied.
    pub(super) fn recorded_by_voters(&self) -> u64 {
        self.voters().map(Duplicate::recorded).min().unwrap_or(0)
    }
}
