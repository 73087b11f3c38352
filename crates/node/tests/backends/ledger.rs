//! Records writes, and derives from them the values that a read may return.
//!
//! Each key has one writer, which numbers its writes. Before a read begins, the test gets the key's
//! state ([`Ledger::due`]), and checks the result against it afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// Generation of a server: even while it is running, odd from just before it is killed until it is
/// back.
type Life = u64;

/// The writes recorded for all backends.
pub(crate) struct Ledger(Vec<Book>);

struct Book {
    /// True if a killed server still has its acknowledged writes when it is back.
    keeps: bool,
    life: AtomicU64,
    keys: Vec<Mutex<Entry>>,
}

#[derive(Default)]
struct Entry {
    begun: u64,
    acknowledged: u64,
    /// Generation of the server when the acknowledged write began.
    life: Life,
    /// Numbers of the writes that are removals.
    removals: BTreeSet<u64>,
    /// Numbers of the writes that were read, or that the node reported as not done.
    read: BTreeSet<u64>,
    not_done: BTreeSet<u64>,
}

/// The oldest state that a read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    number: u64,
    written_in: Life,
    asked_in: Life,
}

/// A write in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) number: u64,
    life: Life,
}

impl Ledger {
    /// Creates records of backends with `keys` keys each; `keeps` tells which of them have durable
    /// data.
    pub(crate) fn new(keeps: &[bool], keys: usize) -> Self {
        let book = |&keeps: &bool| Book {
            keeps,
            life: AtomicU64::new(0),
            keys: (0..keys).map(|_| Mutex::default()).collect(),
        };
        Self(keeps.iter().map(book).collect())
    }

    /// Records that the backend's server is about to be killed.
    pub(crate) fn falls(&self, backend: usize) {
        assert_eq!(self.0[backend].life.fetch_add(1, SeqCst) % 2, 0, "it was well");
    }

    /// Records that the server is running again.
    pub(crate) fn is_back(&self, backend: usize) {
        assert_eq!(self.0[backend].life.fetch_add(1, SeqCst) % 2, 1, "it was gone");
    }

    fn life(&self, backend: usize) -> Life {
        self.0[backend].life.load(SeqCst)
    }

    /// Returns whether the server has been running continuously since the generation `since`.
    fn was_well(&self, backend: usize, since: Life) -> bool {
        since.is_multiple_of(2) && self.life(backend) == since
    }

    /// Begins the next write of a key, or its removal.
    pub(crate) fn begin(&self, backend: usize, key: usize, removes: bool) -> Begun {
        let mut entry = self.entry(backend, key);
        entry.begun += 1;
        if removes {
            let number = entry.begun;
            entry.removals.insert(number);
        }
        Begun { number: entry.begun, life: self.life(backend) }
    }

    /// Records that a write was acknowledged.
    pub(crate) fn acknowledged(&self, backend: usize, key: usize, write: Begun) {
        let mut entry = self.entry(backend, key);
        (entry.acknowledged, entry.life) = (write.number, write.life);
    }

    /// Records a failed write; `not_done` if the node reported that it was not done. Fails if that
    /// report is wrong, or if the server was running throughout.
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

    /// Returns the oldest state that a read beginning now may return.
    pub(crate) fn due(&self, backend: usize, key: usize) -> Due {
        let entry = self.entry(backend, key);
        Due { number: entry.acknowledged, written_in: entry.life, asked_in: self.life(backend) }
    }

    /// Checks that a read may return this number, or no value; fails with the reason.
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

    /// Checks that a read was allowed to fail; fails with the reason.
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

    /// Records of a backend with durable data and of one without, in each of which write 1 of a key
    /// is acknowledged.
    fn books() -> Ledger {
        let ledger = Ledger::new(&[true, false], 1);
        for backend in 0..2 {
            let first = ledger.begin(backend, 0, false);
            ledger.acknowledged(backend, 0, first);
        }
        ledger
    }

    #[test]
    fn read_may_return_the_last_acknowledged_write_or_a_later_one() {
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
    fn only_servers_without_durable_data_may_lose_writes_from_before_a_kill() {
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
    fn failure_is_accepted_only_if_the_server_was_down() {
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
    fn write_reported_as_not_done_must_not_be_read() {
        let ledger = books();
        ledger.falls(0);
        let [second, third] = [ledger.begin(0, 0, false), ledger.begin(0, 0, false)];
        assert!(ledger.judge(0, 0, ledger.due(0, 0), Some(2)).is_ok());
        assert!(ledger.failed(0, 0, second, true).is_err(), "it was read");
        assert!(ledger.failed(0, 0, third, true).is_ok());
        assert!(ledger.judge(0, 0, ledger.due(0, 0), Some(3)).is_err());
    }

    #[test]
    fn removed_key_is_absent_until_written_again() {
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
