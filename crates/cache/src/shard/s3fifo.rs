//! S3-FIFO eviction, which retains more than LRU with less work.
//!
//! New items enter a small queue of 1 to 30% of the bytes (see [`super::balance`]). Most are never
//! used again and are evicted from there; those that were used move on to the main queue, whose
//! oldest items stay for another round per use, at most three. A hit sets two bits of one item and
//! moves nothing, so hits hardly write. Items that return soon after they were dropped from the
//! small queue go to the main queue directly (see [`super::ghost`]).
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO queues are all you need for cache
//! eviction", SOSP 2023. Differences: the small queue's share adapts, where the paper has a tenth;
//! sizes are bytes instead of items; each shard decides by itself, since the hash distributes items
//! evenly; and an eviction grants at most [`CHANCES`] items another round, which bounds the time
//! for which the lock is held.
//!
//! The queue sets of a partition (one per deadline class), or under `Shared` all queue sets, form
//! one S3-FIFO: their small queues together are limited to their share of the bytes, and among the
//! small or the main queues the one that has turned least gives the victim. All queues therefore
//! turn at the same relative speed, and every item is passed as often as in a single queue; a
//! partition that is not used is passed, and evicted, too. The turns of a deadline class count
//! times its multiplier, so its queues turn at a speed divided by it.

use std::ops::Range;

use super::pages::NO_HANDLE;
use super::record::edit;
use super::{Cause, Handle, Locked, PartitionId, Record, Store};
use crate::in_place::Run;

/// Largest number of uses that an item's record counts.
pub(super) const USES_MAX: u8 = 3;
/// Items that one eviction grants another round before it takes the next one, used or not. Chosen:
/// rarely reached, and as long as copying half a page.
const CHANCES: usize = 32;
/// Items evicted before a store, under the lock that the store holds. Chosen: some ten microseconds
/// with few queue sets, all of which are read for each victim. If a large item displaces many small
/// ones, the rest are evicted after the store, one at a time.
const WAY_MAX: usize = 32;
/// Turn count of one complete pass of items through a queue.
const TURN: u128 = 1 << 32;
/// Turn count at which all counts of a shard are rebased to 0.
const TURNS_MAX: u64 = 1 << 62;

/// Result of evictions.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Evicted {
    pub(crate) items: usize,
    pub(crate) bytes: u64,
    /// Bytes among them of the storing partition, not yet released in the ledger.
    pub(crate) own: u64,
    /// A slot of an evicted item, kept for the store.
    pub(super) slot: Option<Handle>,
    /// Blocks to be released after the lock.
    runs: Vec<Run>,
}

impl Evicted {
    /// Adds evictions that kept no slot.
    pub(super) fn add(&mut self, other: Self) {
        debug_assert!(other.slot.is_none(), "no slot is kept");
        self.items += other.items;
        self.bytes += other.bytes;
        self.own += other.own;
        self.runs.extend(other.runs);
    }
}

/// The queue (of a queue set, small or main) that gives the next victim.
#[derive(Clone, Copy, Debug)]
struct VictimQueue {
    set: usize,
    is_main: bool,
}

impl Store {
    /// Prefetches what the next eviction touches when it removes the item after the oldest one of a
    /// queue. That item's record was prefetched by the previous eviction.
    #[inline]
    fn prefetch_behind(&self, oldest: &Record<'_>) {
        let next = oldest.newer();
        if next == NO_HANDLE {
            return;
        }
        let record = self.record(next);
        if record.uses() == 0 {
            let hash = self.hash_of(&record);
            self.index.prefetch(hash);
            self.ghost.prefetch(hash);
        }
        if record.newer() != NO_HANDLE {
            self.pages.prefetch(record.newer());
        }
    }
}

impl Locked<'_> {
    /// Prefetches what the eviction after that of a queue's oldest item, at `at`, will touch.
    pub(crate) fn prefetch_behind(&self, at: Handle) {
        self.store.prefetch_behind(&self.store.record(at));
    }

    /// Evicts from `sets` until `bytes` are free, `items_max` items are gone, or nothing is left.
    pub(crate) fn evict(
        &mut self,
        sets: Range<usize>,
        bytes: u64,
        items_max: usize,
        is_dead: impl Fn(&Record<'_>) -> bool,
    ) -> Evicted {
        let mut evicted = Evicted::default();
        while evicted.bytes < bytes && evicted.items < items_max {
            let Some((at, cause)) = self.victim(sets.clone(), &is_dead) else { break };
            let removed = self.remove(at, cause);
            evicted.items += 1;
            evicted.bytes += removed.charge;
            evicted.runs.extend(removed.run);
        }
        evicted
    }

    /// Evicts the items chosen by `victim` for a store into `partition` that follows under the same
    /// lock. The ledger is updated once for both, which writes nothing if all items have one size.
    /// Likewise the slot of an evicted item is kept if it suits a record of `slot_bytes` (0 for
    /// none); the caller uses it. At most [`WAY_MAX`] items are evicted.
    pub(crate) fn evict_for(
        &mut self,
        partition: PartitionId,
        (bytes, slot_bytes): (u64, usize),
        mut victim: impl FnMut(&mut Self) -> Option<(Handle, Cause)>,
    ) -> Evicted {
        let mut evicted = Evicted::default();
        while evicted.bytes < bytes && evicted.items < WAY_MAX {
            let Some((at, cause)) = victim(self) else { break };
            let removed = self.unlink(at, cause);
            let pages = &mut self.store.pages;
            if evicted.slot.is_none() && slot_bytes > 0 && pages.suits(at, slot_bytes) {
                evicted.slot = Some(at);
            } else {
                pages.free(at);
            }
            if removed.partition == partition {
                evicted.own += removed.charge;
            } else {
                self.ledger.release(removed.partition, removed.charge);
            }
            evicted.items += 1;
            evicted.bytes += removed.charge;
            evicted.runs.extend(removed.run);
        }
        evicted
    }

    /// The next victim, found after granting other items another round.
    pub(crate) fn victim(
        &mut self,
        sets: Range<usize>,
        is_dead: &impl Fn(&Record<'_>) -> bool,
    ) -> Option<(Handle, Cause)> {
        for chance in 0.. {
            let VictimQueue { set, is_main } = self.next(sets.clone())?;
            let at = self.store.sets[set].queue(is_main).oldest()?;
            let record = self.store.record(at);
            self.store.prefetch_behind(&record);
            if is_dead(&record) {
                return Some((at, Cause::Expired));
            }
            if record.uses() == 0 || chance >= CHANCES {
                return Some((at, Cause::Evicted));
            }
            // Its uses are reset when it leaves the small queue.
            let uses = if is_main { record.uses() - 1 } else { 0 };
            let charge = record.charge();
            let store = &mut *self.store;
            store.sets[set].queue(is_main).remove(&mut store.pages, at, charge);
            let slot = store.pages.bytes_mut(at);
            edit::set_uses(slot, uses);
            edit::set_main(slot);
            store.sets[set].main.push(&mut store.pages, at, charge);
        }
        None
    }

    /// The queue that gives the next victim; if there are several, its turn count advances by its
    /// oldest item.
    fn next(&mut self, sets: Range<usize>) -> Option<VictimQueue> {
        let is_main = self.takes_main(sets.clone())?;
        if sets.len() == 1 {
            return Some(VictimQueue { set: sets.start, is_main });
        }
        let set = self.least_turned(sets, is_main)?;
        Some(VictimQueue { set, is_main })
    }

    /// True if the main queues of `sets` give the next victim, false if the small ones do; none if
    /// all are empty.
    pub(super) fn takes_main(&self, sets: Range<usize>) -> Option<bool> {
        let (mut small, mut main, mut small_max) = (0, 0, 0);
        for number in sets {
            let set = &self.store.sets[number];
            small += set.small.bytes;
            main += set.main.bytes;
            small_max +=
                self.store.balances.small(self.published.partition(number), set.small.bytes + set.main.bytes);
        }
        (small + main > 0).then_some(main > 0 && (small == 0 || small < small_max))
    }

    /// The queue set whose queue has turned least among the non-empty ones. The queue then turns by
    /// its oldest item, starting from the turn count of the last queue chosen, so that a queue that
    /// was empty or spared has no turns to make up.
    fn least_turned(&mut self, sets: Range<usize>, is_main: bool) -> Option<usize> {
        let store = &mut *self.store;
        let holds = |set: &usize| {
            let set = &store.sets[*set];
            if is_main { set.main.bytes > 0 } else { set.small.bytes > 0 }
        };
        let chosen = sets.clone().filter(holds).min_by_key(|&set| store.sets[set].turn(is_main))?;
        let oldest = store.sets[chosen].queue(is_main).oldest()?;
        let charge = store.record(oldest).charge();
        let bytes = store.sets[chosen].queue(is_main).bytes;
        let turn = store.sets[chosen].turn(is_main).max(store.turned[usize::from(is_main)]);
        store.turned[usize::from(is_main)] = turn;
        let on = (u128::from(charge) * TURN / u128::from(bytes)) as u64;
        let on = match store.deadlines.stride() {
            1 => on,
            // At most 16 turns, so nothing is lost and nothing overflows.
            _ => (on as f64 * store.deadlines.multiplier(chosen)) as u64,
        };
        *store.sets[chosen].turn_mut(is_main) = turn + on;
        if turn > TURNS_MAX {
            store.turned[usize::from(is_main)] = 0;
            store.sets.iter_mut().for_each(|set| {
                *set.turn_mut(is_main) = set.turn(is_main).saturating_sub(turn);
            });
        }
        Some(chosen)
    }
}
