//! The numbered changes of one process, of which the latest can be sent again.

use std::collections::VecDeque;

use super::message::{Announced, Changes};

/// Bytes of changes in one message, at most. A message of 256 KiB has room for as many beside its
/// own fields.
const MESSAGE_BYTES_MAX: usize = 240 << 10;
/// Number of changes in one message, at most.
const MESSAGE_CHANGES_MAX: usize = 4_096;

/// The changes that a process has announced, numbered from 1 on. Keeps the latest `kept_max`.
///
/// Every call takes constant time, but those that return changes, linear in their number.
#[derive(Clone, Debug)]
pub(super) struct Log<C> {
    kept: VecDeque<C>,
    kept_max: usize,
    /// Number of the oldest change in `kept`, or of the next one if there is none.
    first: u64,
    /// Number of the next change that was not sent.
    unsent: u64,
    /// Number of the next change to be sent again; none if none is.
    resent: Option<u64>,
}

impl<C: Announced> Log<C> {
    pub(super) fn new(kept_max: usize) -> Self {
        Self { kept: VecDeque::new(), kept_max: kept_max.max(1), first: 1, unsent: 1, resent: None }
    }

    /// Appends a change. If the log is full, its oldest change is dropped, and receivers that miss
    /// it learn so from [`first`](Self::first).
    pub(super) fn push(&mut self, change: C) {
        if self.kept.len() == self.kept_max {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(change);
    }

    /// Number of the oldest change that can be sent.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Number of the newest change, 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.first + self.kept.len() as u64 - 1
    }

    /// Has changes from this number on sent again. Ignored if there are none.
    pub(super) fn resend(&mut self, from: u64) {
        let from = from.max(self.first);
        if from < self.unsent {
            self.resent = Some(self.resent.map_or(from, |resent| resent.min(from)));
        }
    }

    /// Returns a message with the next changes that were not sent yet; none if all were.
    pub(super) fn next_unsent(&mut self, incarnation: u64) -> Option<Changes<C>> {
        let changes = self.message(incarnation, self.unsent)?;
        self.unsent = changes.first + changes.changes.len() as u64;
        Some(changes)
    }

    /// Returns a message with the next changes to be sent again; none if there are none.
    pub(super) fn next_resent(&mut self, incarnation: u64) -> Option<Changes<C>> {
        let from = self.resent.take()?;
        let changes = self.message(incarnation, from)?;
        let next = changes.first + changes.changes.len() as u64;
        self.resent = (next < self.unsent).then_some(next);
        Some(changes)
    }

    fn message(&self, incarnation: u64, from: u64) -> Option<Changes<C>> {
        let first = from.max(self.first);
        let mut bytes = 0;
        let fits = |change: &&C| {
            bytes += change.bytes();
            bytes <= MESSAGE_BYTES_MAX
        };
        let from = usize::try_from(first - self.first).unwrap_or(usize::MAX).min(self.kept.len());
        let changes: Vec<C> =
            self.kept.range(from..).take(MESSAGE_CHANGES_MAX).take_while(fits).cloned().collect();
        (!changes.is_empty()).then_some(Changes { incarnation, first, changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Announced for u64 {
        fn bytes(&self) -> usize {
            1_000
        }
    }

    #[test]
    fn changes_are_sent_once_in_messages_of_bounded_size_and_again_on_request() {
        let mut log = Log::new(1_000);
        (1..=300).for_each(|change| log.push(change));
        let first = log.next_unsent(7).expect("some are unsent");
        assert_eq!((first.incarnation, first.first, first.changes.len()), (7, 1, 245));
        let second = log.next_unsent(7).expect("some are left");
        assert_eq!((second.first, second.changes), (246, (246..=300).collect()));
        assert_eq!(log.next_unsent(7), None);
        log.resend(299);
        log.resend(300);
        log.resend(301);
        let again = log.next_resent(7).expect("two were asked for");
        assert_eq!((again.first, again.changes), (299, vec![299, 300]));
        assert_eq!(log.next_resent(7), None);
    }

    #[test]
    fn full_log_drops_its_oldest_changes_and_reports_its_first() {
        let mut log = Log::new(3);
        (1..=5).for_each(|change| log.push(change));
        assert_eq!((log.first(), log.last()), (3, 5));
        assert_eq!(
            log.next_unsent(1).map(|message| (message.first, message.changes)),
            Some((3, vec![3, 4, 5]))
        );
        log.resend(1);
        assert_eq!(log.next_resent(1).map(|message| message.first), Some(3));
        assert_eq!(Log::<u64>::new(3).last(), 0);
    }
}
