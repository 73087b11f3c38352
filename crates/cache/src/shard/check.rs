//! That a shard's structures agree, for tests.

use std::sync::atomic::Ordering::Relaxed;

use super::entry::NO_SLOT;
use super::{Locked, Lookup, Shard};
use crate::ledger::Ledger;

impl Shard {
    /// Walks every queue and compares it with index, arena, published stamps and counters.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) fn check(&self, ledger: &Ledger) {
        let shard = self.lock(ledger);
        let queued: usize = (0..self.oldest().len()).map(|queue| shard.check_queue(queue)).sum();
        let occupied = (0..shard.places()).filter(|&slot| shard.occupied(slot).is_some()).count();
        assert_eq!(queued, occupied, "each item is in one queue");
        let counted: u64 = self.board.counters.iter().map(|counters| counters.items.get()).sum();
        assert_eq!(counted, occupied as u64, "each item is counted");
    }
}

impl Locked<'_> {
    fn check_queue(&self, queue: usize) -> usize {
        let Self { store, board, .. } = self;
        let arena = &store.arena;
        let published = board.oldest[queue].load(Relaxed);
        assert_eq!(published, store.queues[queue].oldest_stamp(arena), "the oldest stamp is published");
        let (mut slot, mut older, mut stamp, mut items) =
            (self.oldest(queue).unwrap_or(NO_SLOT), NO_SLOT, 0, 0);
        while slot != NO_SLOT {
            let entry = &arena[slot];
            assert!(entry.stamp > stamp, "stamps grow along a queue");
            assert_eq!(entry.older, older, "neighbours know each other");
            assert_eq!(board.queue(entry.partition, entry.class), queue, "an item is in its own queue");
            let lookup = Lookup { partition: entry.partition, key: entry.key(), hash: u64::from(entry.hash) };
            assert_eq!(self.find(&lookup), Some(slot), "the index finds what is queued");
            (older, stamp, slot) = (slot, entry.stamp, entry.newer);
            items += 1;
        }
        items
    }
}
