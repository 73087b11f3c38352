//! Consistency check of a shard's structures, for tests.

use std::sync::atomic::Ordering::Relaxed;

use super::pages::NO_HANDLE;
use super::queue::Queue;
use super::{Cursor, EMPTY, Handle, Locked, Lookup, Shard};
use crate::ledger::Ledger;
use crate::options::Eviction;

impl Shard {
    /// Compares every queue with index, pages, published stamps and counters.
    ///
    /// # Panics
    /// If they differ.
    pub(crate) fn check(&self, ledger: &Ledger) {
        let shard = self.lock(ledger);
        let queued: usize = (0..shard.store.sets.len()).map(|set| shard.check_set(set)).sum();
        let occupied = shard.handles().len();
        assert_eq!(queued, occupied, "each item is in one queue");
        assert_eq!(shard.store.items, occupied);
        let counted: u64 = self.published.counters.iter().map(|counters| counters.items.get()).sum();
        assert_eq!(counted, occupied as u64, "each item is counted");
        let runs = shard.handles().iter().filter(|&&at| shard.record(at).run_at().is_some()).count();
        assert_eq!(shard.store.runs.blocks.iter().flatten().count(), runs, "each run has its record");
        shard.store.pages.check();
    }
}

impl Locked<'_> {
    /// Handles of all records.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let mut handles = Vec::new();
        let (_, end) = self.walk(Cursor::default(), usize::MAX, |at| handles.push(at));
        assert_eq!(end, None);
        handles
    }

    /// Bytes of pages.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.store.pages.all_slot_bytes()
    }

    fn check_set(&self, set: usize) -> usize {
        let queues = &self.store.sets[set];
        if self.store.eviction == Eviction::Lru {
            let published = self.published.oldest[set].load(Relaxed);
            let oldest = queues.small.oldest().map_or(EMPTY, |at| self.record(at).stamp());
            assert_eq!(published, oldest, "the oldest stamp is published");
        }
        self.check_queue(set, &queues.small, false) + self.check_queue(set, &queues.main, true)
    }

    fn check_queue(&self, set: usize, queue: &Queue, is_main: bool) -> usize {
        let (mut at, mut older, mut stamp) = (queue.oldest().unwrap_or(NO_HANDLE), NO_HANDLE, 0);
        let (mut items, mut bytes) = (0, 0);
        while at != NO_HANDLE {
            let record = self.record(at);
            assert!(
                self.store.eviction != Eviction::Lru || record.stamp() > stamp,
                "stamps grow along a queue"
            );
            assert_eq!(record.older(), older, "neighbours know each other");
            assert_eq!(record.is_main(), is_main);
            assert_eq!(
                self.published.set(record.partition(), record.class()),
                set,
                "an item is in its own set"
            );
            let lookup = Lookup::new(&self.store.hash, record.partition(), record.key());
            assert_eq!(self.find(&lookup), Some(at), "the index finds what is queued");
            bytes += record.charge();
            (older, stamp, at) = (at, record.stamp(), record.newer());
            items += 1;
        }
        assert_eq!(queue.bytes, bytes, "a queue knows its bytes");
        items
    }
}
