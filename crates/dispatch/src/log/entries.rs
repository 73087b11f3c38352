//! The entries of a log: a bounded queue of numbered changes.

use std::collections::VecDeque;

use sherwood_model::Instant;

/// A change of one key, with its number in the order of all changes of its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry<K, E> {
    /// The number: one more than that of the entry before, from 1 on.
    pub number: u64,
    /// The key that is changed.
    pub key: K,
    /// The change.
    pub change: E,
}

/// An entry as it is kept, until all duplicates that are read have applied it and room is needed.
#[derive(Clone, Debug)]
pub(super) struct Kept<K, E> {
    pub(super) entry: LogEntry<K, E>,
    pub(super) appended: Instant,
    pub(super) bytes: u64,
    /// True if the entry takes no effect, since no duplicate that is read has taken it.
    pub(super) is_void: bool,
}

/// The latest entries of a log, with numbers that follow each other. Memory is bounded by the
/// owner, which appends only if [`fits`](Self::fits) says so.
#[derive(Clone, Debug)]
pub(super) struct Entries<K, E> {
    kept: VecDeque<Kept<K, E>>,
    /// Number of the first entry kept, or of the next one if there is none.
    first: u64,
    bytes: u64,
    entries_max: usize,
    bytes_max: u64,
}

impl<K, E> Entries<K, E> {
    pub(super) fn new(entries_max: usize, bytes_max: u64) -> Self {
        Self { kept: VecDeque::new(), first: 1, bytes: 0, entries_max, bytes_max }
    }

    /// Empties the log, whose next entry follows `last`.
    pub(super) fn restart_after(&mut self, last: u64) {
        self.kept.clear();
        (self.first, self.bytes) = (last + 1, 0);
    }

    /// The number of the first entry kept; one more than the last if there is none.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the last entry that was appended; 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.first + self.kept.len() as u64 - 1
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if an entry of this size has room, once entries up to `droppable` are dropped.
    /// Linear in the entries that have to be dropped.
    pub(super) fn fits(&self, bytes: u64, droppable: u64) -> bool {
        let (mut count, mut size) = (self.kept.len(), self.bytes);
        for kept in &self.kept {
            if kept.entry.number > droppable || (count < self.entries_max && size + bytes <= self.bytes_max) {
                break;
            }
            (count, size) = (count - 1, size - kept.bytes);
        }
        count < self.entries_max && size + bytes <= self.bytes_max
    }

    /// Appends an entry, which has to fit, and drops the oldest ones as far as it needs room.
    /// Returns its number.
    pub(super) fn append(&mut self, now: Instant, key: K, change: E, bytes: u64) -> u64 {
        while self.kept.len() >= self.entries_max || self.bytes + bytes > self.bytes_max {
            let Some(dropped) = self.kept.pop_front() else { break };
            self.bytes -= dropped.bytes;
            self.first += 1;
        }
        let entry = LogEntry { number: self.last() + 1, key, change };
        let number = entry.number;
        self.kept.push_back(Kept { entry, appended: now, bytes, is_void: false });
        self.bytes += bytes;
        number
    }

    /// Removes the entries after a number, and returns them in their order.
    pub(super) fn truncate_after(&mut self, number: u64) -> Vec<LogEntry<K, E>> {
        let kept = usize::try_from((number + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        let removed = self.kept.split_off(kept.min(self.kept.len()));
        self.bytes -= removed.iter().map(|one| one.bytes).sum::<u64>();
        removed.into_iter().map(|one| one.entry).collect()
    }

    /// Has all entries count as appended at this time.
    pub(super) fn set_appended(&mut self, now: Instant) {
        self.kept.iter_mut().for_each(|kept| kept.appended = now);
    }

    /// Returns the entry with a number, if it is kept.
    pub(super) fn get(&self, number: u64) -> Option<&Kept<K, E>> {
        self.kept.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Kept<K, E>> {
        self.kept.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns the number of the last entry for which `is_meant` holds; those before it are meant,
    /// too.
    pub(super) fn last_meant(&self, is_meant: impl Fn(&E) -> bool) -> u64 {
        self.first - 1 + self.kept.partition_point(|kept| is_meant(&kept.entry.change)) as u64
    }

    /// Returns the entries that follow a number, which is at least that before the first one kept.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = &Kept<K, E>> {
        let skipped = usize::try_from((number + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.kept.range(skipped.min(self.kept.len())..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(entries: &Entries<&str, ()>, after: u64) -> Vec<u64> {
        entries.after(after).map(|kept| kept.entry.number).collect()
    }

    #[test]
    fn oldest_entries_make_room_for_new_ones() {
        let mut entries = Entries::new(3, 100);
        for _ in 0..5 {
            entries.append(Instant::ZERO, "k", (), 10);
        }
        assert_eq!((entries.first(), entries.last(), entries.len(), entries.bytes()), (3, 5, 3, 30));
        assert_eq!(numbers(&entries, 3), [4, 5]);
        assert_eq!((entries.get(2).is_none(), entries.get(5).unwrap().entry.number), (true, 5));
        entries.append(Instant::ZERO, "k", (), 85);
        assert_eq!((numbers(&entries, 0), entries.bytes()), (vec![5, 6], 95));
    }

    #[test]
    fn entries_after_a_number_are_removed_with_their_bytes() {
        let mut entries = Entries::new(3, 100);
        for _ in 0..4 {
            entries.append(Instant::ZERO, "k", (), 10);
        }
        let removed = entries.truncate_after(2);
        assert_eq!(removed.iter().map(|entry| entry.number).collect::<Vec<_>>(), [3, 4]);
        assert_eq!((entries.first(), entries.last(), entries.bytes()), (2, 2, 10));
        assert_eq!((entries.truncate_after(2), entries.truncate_after(0).len()), (vec![], 1));
        assert_eq!((entries.first(), entries.last(), entries.bytes()), (2, 1, 0));
    }

    #[test]
    fn last_entry_that_is_meant_is_found_among_those_kept_and_dropped() {
        let mut entries = Entries::new(3, 100);
        for stamp in [10, 20, 30, 40] {
            entries.append(Instant::ZERO, "k", stamp, 1);
        }
        let until = |stamp: u64| entries.last_meant(|of: &u64| *of <= stamp);
        assert_eq!([0, 15, 20, 39, 40, u64::MAX].map(until), [1, 1, 2, 3, 4, 4]);
        assert_eq!(Entries::<&str, u64>::new(3, 100).last_meant(|_| true), 0);
    }

    #[test]
    fn entry_fits_if_those_that_may_be_dropped_leave_room() {
        let mut entries = Entries::new(3, 100);
        assert!(entries.fits(100, 0) && !entries.fits(101, 0));
        for _ in 0..3 {
            entries.append(Instant::ZERO, "k", (), 30);
        }
        assert!(!entries.fits(1, 0) && entries.fits(40, 1) && !entries.fits(41, 1) && entries.fits(41, 2));
    }

    #[test]
    fn log_that_begins_anew_goes_on_with_the_number_after_a_known_one() {
        let mut entries = Entries::new(3, 100);
        entries.append(Instant::ZERO, "k", (), 1);
        entries.restart_after(41);
        assert_eq!((entries.first(), entries.last(), entries.bytes()), (42, 41, 0));
        assert_eq!(entries.append(Instant::ZERO, "k", (), 1), 42);
    }
}
