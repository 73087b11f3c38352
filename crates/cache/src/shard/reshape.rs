//! Background work that reduces a shard's memory.
//!
//! Items to be evicted or moved are scattered, and each of them touches about six distant places in
//! memory: the item, its neighbours in the queue, its index line, its bucket of dropped keys.
//! Waiting for these one after the other would be most of the work. Since the next items are known,
//! their memory is prefetched a few items ahead.

use std::collections::VecDeque;
use std::ops::Range;

use sherwood_model::{Instant, PartitionId};

use super::pages::{NO_HANDLE, Slack};
use super::{Evicted, Handle, Locked, Queue, QueueSet, Record, Store};
use crate::memory::Block;

/// Distance in items from the current one to the one whose bytes are prefetched, and to the one
/// whose index line is. Chosen: one item takes about as long as a memory access.
const AHEAD: usize = 4;
const AHEAD_INDEX: usize = 2;
/// Bytes moved under one acquisition of the lock, not counting the last record. Chosen: a copy of
/// 10 to 20 µs.
const MOVE_BYTES_MAX: usize = 64 << 10;

/// Records that were moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) items: usize,
    pub(crate) bytes: u64,
    /// Earliest time of death of the moved records.
    pub(crate) next_death: Instant,
}

impl Locked<'_> {
    /// Like [`Self::evict`], but faster if many items of `partition` are evicted.
    pub(crate) fn evict_many(
        &mut self,
        partition: PartitionId,
        sets: Range<usize>,
        bytes: u64,
        items_max: usize,
        is_dead: impl Fn(&Record<'_>) -> bool,
    ) -> Evicted {
        let mut ahead = Ahead::default();
        let mut evicted = Evicted::default();
        while evicted.bytes < bytes && evicted.items < items_max {
            // With several queue sets the victim after next is not known.
            if sets.len() == 1
                && let Some(is_main) = self.takes_main(sets.clone())
            {
                let QueueSet { small, main, .. } = &self.store.sets[sets.start];
                let queue = if is_main { main } else { small };
                ahead.look(&self.store, queue, is_main);
            }
            let one = self.evict_for(partition, (1, 0), |shard| shard.victim(sets.clone(), &is_dead));
            if one.items == 0 {
                break;
            }
            evicted.add(one);
        }
        self.ledger.release(partition, evicted.own);
        evicted
    }

    /// See [`Pages::take_emptied`](super::pages::Pages::take_emptied).
    pub(crate) fn take_emptied(&mut self, count_max: usize) -> Vec<Block> {
        self.store.pages.take_emptied(count_max)
    }

    /// True if enough slots are free for [`Self::relocate_some`] to be called.
    pub(crate) fn has_slack(&self, slack: Slack) -> bool {
        self.store.pages.has_slack(slack)
    }

    /// Moves at most `items_max` records of a page, so that it can be released; only to be called
    /// while there is slack. Moves none if a page is kept instead. `dies` returns a record's time
    /// of death.
    pub(crate) fn relocate_some(
        &mut self,
        slack: Slack,
        items_max: usize,
        dies: impl Fn(&Record<'_>) -> Instant,
    ) -> Moved {
        let evacuees = self.store.pages.evacuees(slack, items_max, MOVE_BYTES_MAX);
        let mut moved = Moved { items: evacuees.len(), bytes: 0, next_death: Instant::NEVER };
        evacuees.iter().take(AHEAD_INDEX).for_each(|&at| self.store.prefetch_links(at));
        for (number, &from) in evacuees.iter().enumerate() {
            if let Some(&at) = evacuees.get(number + AHEAD) {
                self.store.pages.prefetch(at);
            }
            if let Some(&at) = evacuees.get(number + AHEAD_INDEX) {
                self.store.prefetch_links(at);
            }
            moved.next_death = moved.next_death.min(dies(&self.store.record(from)));
            moved.bytes += self.relocate(from);
        }
        moved
    }

    /// Moves a record to a free slot of another page; returns the bytes copied.
    fn relocate(&mut self, from: Handle) -> u64 {
        let store = &mut *self.store;
        let to = store.pages.slot_for(from);
        let (old, new) = store.pages.pair(from, to);
        new.copy_from_slice(old);
        let bytes = new.len() as u64;
        self.moved(from, to);
        bytes
    }
}

/// The oldest items of a queue that have been prefetched.
#[derive(Debug, Default)]
struct Ahead {
    items: VecDeque<Handle>,
    is_main: bool,
}

impl Ahead {
    /// Prefetches what the evictions after the next one, from the same queue, will touch. To be
    /// called before each eviction.
    fn look(&mut self, store: &Store, queue: &Queue, is_main: bool) {
        let Some(oldest) = queue.oldest() else { return };
        // If the first item was evicted and the second is now the oldest, the others are still
        // valid. After any other change, such as going around a short queue, some may be gone.
        self.items.pop_front();
        if self.is_main != is_main || self.items.front() != Some(&oldest) {
            self.is_main = is_main;
            self.items.clear();
            self.items.push_back(oldest);
        }
        while self.items.len() <= AHEAD {
            let last = self.items[self.items.len() - 1];
            let next = store.record(last).newer();
            if next == NO_HANDLE {
                break;
            }
            store.pages.prefetch(next);
            self.items.push_back(next);
            if let Some(at) = self.items.len().checked_sub(AHEAD - AHEAD_INDEX + 1) {
                store.prefetch_index(self.items[at]);
            }
        }
    }
}

impl Store {
    /// Prefetches what removing a record from the index, and recording its dropped key, will touch.
    fn prefetch_index(&self, at: Handle) {
        let hash = self.hash_of(&self.record(at));
        self.index.prefetch(hash);
        self.ghost.prefetch(hash);
    }

    /// Prefetches what moving a record will touch beside the record itself.
    fn prefetch_links(&self, at: Handle) {
        let links = self.record(at);
        for neighbour in [links.newer(), links.older()] {
            if neighbour != NO_HANDLE {
                self.pages.prefetch(neighbour);
            }
        }
        self.index.prefetch(self.hash_of(&self.record(at)));
    }
}
