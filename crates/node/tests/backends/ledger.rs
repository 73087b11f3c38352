//! What was written, and so what a read may return.
//!
//! A key has one writer, who numbers what it writes. A read asks what is [`due`](Ledger::due)
//! before it begins, and is judged by that when it has ended.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// One server's life: even while it is well, odd from the moment before it is killed until it is
/// back.
type Life = u64;

/// The books of all backends.
pub(crate) struct Ledger(Vec<Book>);

struct Book {
    /// Whether a server that is killed has what it acknowledged when it is back.
    keeps: bool,
    life: AtomicU64,
    keys: Vec<Mutex<Entry>>,
}

#[derive(Default)]
struct Entry {
    begun: u64,
    acknowledged: u64,
    /// The server's when the acknowledged write began.
    life: Life,
    /// Numbers of writes that leave no value.
    removals: BTreeSet<u64>,
    /// Numbers that were read, and those of which it was said that they were not written.
    read: BTreeSet<u64>,
    not_done: BTreeSet<u64>,
}

/// What a read must not fall behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    number: u64,
    written_in: Life,
    asked_in: Life,
}

/// A write under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) number: u64,
    life: Life,
}

impl Ledger {
    /// Books of backends, of which `keeps` says whether they keep what they acknowledged, and of so
    /// many keys each.
    pub(crate) fn new(keeps: &[bool], keys: usize) -> Self {
        let book = |&keeps: &bool| Book {
            keeps,
            life: AtomicU64::new(0),
            keys: (0..keys).map(|_| Mutex::default()).collect(),
        };
        Self(keeps.iter().map(book).collect())
    }

    /// From now on the backend's server may be gone.
    pub(crate) fn falls(&self, backend: usize) {
        assert_eq!(self.0[backend].life.fetch_add(1, SeqCst) % 2, 0, "it was well");
    }

    /// From now on it is well again.
    pub(crate) fn is_back(&self, backend: usize) {
        assert_eq!(self.0[backend].life.fetch_add(1, SeqCst) % 2, 1, "it was gone");
    }

    fn life(&self, backend: usize) -> Life {
        self.0[backend].life.load(SeqCst)
    }

    /// Whether the server was well from when its life was `since` until now.
    fn was_well(&self, backend: usize, since: Life) -> bool {
        since.is_multiple_of(2) && self.life(backend) == since
    }

    /// The next write of a key begins, or the next removal.
    pub(crate) fn begin(&self, backend: usize, key: usize, removes: bool) -> Begun {
        let mut entry = self.entry(backend, key);
        entry.begun += 1;
        if removes {
            let number = entry.begun;
            entry.removals.insert(number);
        }
        Begun { number: entry.begun, life: self.life(backend) }
    }

    /// A write was acknowledged.
    pub(crate) fn acknowledged(&self, backend: usize, key: usize, write: Begun) {
        let mut entry = self.entry(backend, key);
        (entry.acknowledged, entry.life) = (write.number, write.life);
    }

    /// A write failed, `not_done` by the node's word. Why that is wrong, if it is.
    pub(crate) fn failed(
        &self,
        backend: usize,
        key: usize,
        write: Begun,
        not_done: bool,
    ) -> Result<(), String> {
        let mut entry = self.entry(backend, key);
        if not_done {
            if entry.read.contains(&write.number) {
                return Err(format!("write {} was read, and then said not to be done", write.number));
            }
            entry.not_done.insert(write.number);
        }
        if self.was_well(backend, write.life) {
            return Err(format!("write {} failed, and the server was well", write.number));
        }
        Ok(())
    }

    /// What a read that begins now must not fall behind.
    pub(crate) fn due(&self, backend: usize, key: usize) -> Due {
        let entry = self.entry(backend, key);
        Due { number: entry.acknowledged, written_in: entry.life, asked_in: self.life(backend) }
    }

    /// Why a read that has returned this number, or that there is none, has not returned what was
    /// due.
    pub(crate) fn judge(
        &self,
        backend: usize,
        key: usize,
        due: Due,
        read: Option<u64>,
    ) -> Result<(), String> {
        let mut entry = self.entry(backend, key);
        let Some(number) = read else {
            let removed = entry.removals.range(due.number..).any(|removal| !entry.not_done.contains(removal));
            let lost = !self.0[backend].keeps && !self.was_well(backend, due.written_in);
            return if removed || lost { Ok(()) } else { Err("absent, and nobody removed it".to_owned()) };
        };
        entry.read.insert(number);
        match number {
            older if older < due.number => {
                Err(format!("{older} was read, and {} was acknowledged", due.number))
            }
            newer if newer > entry.begun => Err(format!("{newer} was read, which was never written")),
            wrong if entry.not_done.contains(&wrong) => {
                Err(format!("{wrong} was read, which was said not to be done"))
            }
            _ => Ok(()),
        }
    }

    /// Why a read should not have failed, if it should not.
    pub(crate) fn excuse(&self, backend: usize, due: Due) -> Result<(), String> {
        let well = self.was_well(backend, due.asked_in);
        if well { Err("failed, and the server was well".to_owned()) } else { Ok(()) }
    }

    fn entry(&self, backend: usize, key: usize) -> MutexGuard<'_, Entry> {
        self.0[backend].keys[key].lock().expect("no panics while held")
    }
}

mod tests {
    use super::*;

    /// Books of a backend that keeps and one that does not, in each of which write 1 of a key is
    /// acknowledged.
    fn books() -> Ledger {
        let ledger = Ledger::new(&[true, false], 1);
        for backend in 0..2 {
            let first = ledger.begin(backend, 0, false);
            ledger.acknowledged(backend, 0, first);
        }
        ledger
    }

    #[test]
    fn a_read_may_return_the_last_acknowledged_and_anything_begun_since() {
        let ledger = books();
        let due = ledger.due(0, 0);
        let second = ledger.begin(0, 0, false);
        assert!([1, 2].iter().all(|&number| ledger.judge(0, 0, due, Some(number)).is_ok()));
        assert!(ledger.judge(0, 0, due, Some(3)).is_err(), "nobody wrote it");
        ledger.acknowledged(0, 0, second);
        assert!(ledger.judge(0, 0, due, Some(1)).is_ok(), "it began before");
        assert!(ledger.judge(0, 0, ledger.due(0, 0), Some(1)).is_err());
    }

    #[test]
    fn only_what_keeps_nothing_loses_and_only_what_it_had_when_it_was_killed() {
        let ledger = books();
        let absent = |backend| ledger.judge(backend, 0, ledger.due(backend, 0), None).is_ok();
        assert_eq!([absent(0), absent(1)], [false, false]);
        (0..2).for_each(|backend| ledger.falls(backend));
        let during = ledger.begin(1, 0, false);
        (0..2).for_each(|backend| ledger.is_back(backend));
        assert_eq!([absent(0), absent(1)], [false, true]);
        ledger.acknowledged(1, 0, during);
        assert!(absent(1), "it may have been written before it was killed");
        let after = ledger.begin(1, 0, false);
        ledger.acknowledged(1, 0, after);
        assert!(!absent(1));
    }

    #[test]
    fn failures_are_excused_by_a_server_that_was_gone() {
        let ledger = books();
        let (before, write) = (ledger.due(0, 0), ledger.begin(0, 0, false));
        assert!(ledger.excuse(0, before).is_err() && ledger.failed(0, 0, write, false).is_err());
        ledger.falls(0);
        let during = ledger.due(0, 0);
        ledger.is_back(0);
        assert!([before, during].iter().all(|&due| ledger.excuse(0, due).is_ok()));
        assert!(ledger.failed(0, 0, write, false).is_ok());
        assert!(ledger.excuse(0, ledger.due(0, 0)).is_err());
    }

    #[test]
    fn what_is_said_not_to_be_done_is_not_read() {
        let ledger = books();
        ledger.falls(0);
        let [second, third] = [ledger.begin(0, 0, false), ledger.begin(0, 0, false)];
        assert!(ledger.judge(0, 0, ledger.due(0, 0), Some(2)).is_ok());
        assert!(ledger.failed(0, 0, second, true).is_err(), "it was read");
        assert!(ledger.failed(0, 0, third, true).is_ok());
        assert!(ledger.judge(0, 0, ledger.due(0, 0), Some(3)).is_err());
    }

    #[test]
    fn what_is_removed_is_absent_until_it_is_written_again() {
        let ledger = books();
        let before = ledger.due(0, 0);
        let removal = ledger.begin(0, 0, true);
        assert!([Some(1), None].iter().all(|&read| ledger.judge(0, 0, before, read).is_ok()), "under way");
        ledger.acknowledged(0, 0, removal);
        let after = ledger.due(0, 0);
        assert!(ledger.judge(0, 0, after, Some(1)).is_err() && ledger.judge(0, 0, after, None).is_ok());
        let third = ledger.begin(0, 0, false);
        ledger.acknowledged(0, 0, third);
        assert!(ledger.judge(0, 0, after, None).is_ok(), "it may have been read before");
        assert!(ledger.judge(0, 0, ledger.due(0, 0), None).is_err());
    }
}
