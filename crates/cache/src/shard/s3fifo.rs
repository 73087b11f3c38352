//! Eviction that keeps more than LRU with less work: S3-FIFO.
//!
//! New items wait in a small queue, 1 to 30% of the bytes (see [`super::balance`]). Most are never
//! used again and go from there; those that were used go on to the main queue, whose oldest stay
//! for another round for each use they had, at most three. A hit sets two bits of one item and
//! moves nothing, so hits hardly write. Items that were dropped from the small queue and come back
//! soon go to the main queue at once (see [`super::ghost`]).
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO queues are all you need for cache
//! eviction", SOSP 2023. Here the small queue's share adapts, where the paper has a tenth; sizes
//! are bytes and not items; each shard decides for itself, since a hash has dealt the items evenly;
//! and an eviction gives at most [`CHANCES`] items another round, so that it never holds the lock
//! for longer.
//!
//! A partition's lanes (deadline classes), or under `Shared` all lanes, are one S3-FIFO: their
//! small queues together are held to their part of the bytes, and of the small or the main queues
//! that one gives the victim that has turned least. So all turn at the same speed, in parts of
//! their length, and every item is passed as often as in a single queue, where a partition that is
//! not used would be passed, and leave, too.

use std::ops::Range;

use super::pages::NO_HANDLE;
use super::record::edit;
use super::{Block, Cause, Handle, Locked, PartitionId, Record, Store};

/// Uses that are counted.
pub(super) const USES_MAX: u8 = 3;
/// Items that one eviction lets stay for another round before it takes the next, used or not.
/// Chosen: hardly ever met, and as long as half a page copy.
const CHANCES: usize = 32;
/// Items that make way for one that is stored, under the lock that its store holds. Chosen: some
/// ten microseconds where there are few lanes, of which each victim takes a look at all of its
/// pool. Where a large item comes among small ones, the others are evicted after it, one at a time.
const WAY_MAX: usize = 32;
/// A whole turn of a queue.
const TURN: u128 = 1 << 32;
/// Turns from which on all of a shard start at 0 again.
const TURNS_MAX: u64 = 1 << 62;

/// What evictions have freed.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Evicted {
    pub(crate) items: usize,
    pub(crate) bytes: u64,
    /// Of them, bytes of the partition they were for that the ledger does not know of yet.
    pub(crate) own: u64,
    /// A place that one of them leaves, for the store they were for.
    pub(super) place: Option<Handle>,
    /// Blocks to be given back after the lock.
    blocks: Vec<Block>,
}

impl Evicted {
    /// Adds what was evicted for nobody's place.
    pub(super) fn add(&mut self, other: Self) {
        debug_assert!(other.place.is_none(), "a place that is kept for somebody");
        self.items += other.items;
        self.bytes += other.bytes;
        self.own += other.own;
        self.blocks.extend(other.blocks);
    }
}

/// The queue that gives the next victim.
#[derive(Clone, Copy, Debug)]
struct Next {
    lane: usize,
    is_main: bool,
}

impl Store {
    /// Asks for what will be touched when the item after the oldest one of a queue goes: by the
    /// next eviction, so that it has arrived by then. The record of that item was asked for by the
    /// last one.
    #[inline]
    fn look_behind(&self, oldest: &Record<'_>) {
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
    /// Asks for what the eviction after that of the oldest item of a queue, which lies at `at`,
    /// will touch.
    pub(crate) fn look_behind(&self, at: Handle) {
        self.store.look_behind(&self.store.record(at));
    }

    /// Evicts from `lanes`, until `bytes` are free or `items_max` items are gone, or nothing is
    /// left.
    pub(crate) fn evict(
        &mut self,
        lanes: Range<usize>,
        bytes: u64,
        items_max: usize,
        is_dead: impl Fn(&Record<'_>) -> bool,
    ) -> Evicted {
        let mut evicted = Evicted::default();
        while evicted.bytes < bytes && evicted.items < items_max {
            let Some((at, cause)) = self.victim(lanes.clone(), &is_dead) else { break };
            let removed = self.remove(at, cause);
            evicted.items += 1;
            evicted.bytes += removed.charge;
            evicted.blocks.extend(removed.run);
        }
        evicted
    }

    /// Evicts what `victim` names for a store into `partition` that follows under the same lock:
    /// the ledger learns of both at once, and in a cache whose items are of one size it has nothing
    /// to write. Nor have the pages then: the place of an item that goes is kept for one that suits
    /// a record of `place_bytes` (0 for none); the caller takes it. At most [`WAY_MAX`] items go.
    pub(crate) fn make_way(
        &mut self,
        partition: PartitionId,
        (bytes, place_bytes): (u64, usize),
        mut victim: impl FnMut(&mut Self) -> Option<(Handle, Cause)>,
    ) -> Evicted {
        let mut evicted = Evicted::default();
        while evicted.bytes < bytes && evicted.items < WAY_MAX {
            let Some((at, cause)) = victim(self) else { break };
            let removed = self.unlink(at, cause);
            let pages = &mut self.store.pages;
            if evicted.place.is_none() && place_bytes > 0 && pages.suits(at, place_bytes) {
                evicted.place = Some(at);
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
            evicted.blocks.extend(removed.run);
        }
        evicted
    }

    /// The next item to go, found after giving others another round.
    pub(crate) fn victim(
        &mut self,
        lanes: Range<usize>,
        is_dead: &impl Fn(&Record<'_>) -> bool,
    ) -> Option<(Handle, Cause)> {
        for chance in 0.. {
            let Next { lane, is_main } = self.next(lanes.clone())?;
            let at = self.store.lanes[lane].queue(is_main).oldest()?;
            let record = self.store.record(at);
            self.store.look_behind(&record);
            if is_dead(&record) {
                return Some((at, Cause::Expired));
            }
            if record.uses() == 0 || chance >= CHANCES {
                return Some((at, Cause::Evicted));
            }
            // From the small queue its uses are forgotten: they have bought the way out.
            let uses = if is_main { record.uses() - 1 } else { 0 };
            let charge = record.charge();
            let store = &mut *self.store;
            store.lanes[lane].queue(is_main).remove(&mut store.pages, at, charge);
            let place = store.pages.bytes_mut(at);
            edit::set_uses(place, uses);
            edit::set_main(place);
            store.lanes[lane].main.push(&mut store.pages, at, charge);
        }
        None
    }

    /// Which queue is next; it turns by its oldest item where there are several.
    fn next(&mut self, lanes: Range<usize>) -> Option<Next> {
        let is_main = self.takes_main(lanes.clone())?;
        if lanes.len() == 1 {
            return Some(Next { lane: lanes.start, is_main });
        }
        let lane = self.least_turned(lanes, is_main)?;
        Some(Next { lane, is_main })
    }

    /// Whether the main queues of `lanes` give the next victim, or the small ones; none where all
    /// are empty.
    pub(super) fn takes_main(&self, lanes: Range<usize>) -> Option<bool> {
        let (mut small, mut main, mut small_max) = (0, 0, 0);
        for number in lanes {
            let lane = &self.store.lanes[number];
            small += lane.small.bytes;
            main += lane.main.bytes;
            small_max +=
                self.store.balances.small(self.board.partition(number), lane.small.bytes + lane.main.bytes);
        }
        (small + main > 0).then_some(main > 0 && (small == 0 || small < small_max))
    }

    /// The lane whose queue has turned least among those that hold anything. It then turns on by
    /// its oldest item, and from where the least turned before it had come to: one that was empty
    /// or spared has nothing to catch up.
    fn least_turned(&mut self, lanes: Range<usize>, is_main: bool) -> Option<usize> {
        let store = &mut *self.store;
        let holds = |lane: &usize| {
            let lane = &store.lanes[*lane];
            if is_main { lane.main.bytes > 0 } else { lane.small.bytes > 0 }
        };
        let chosen = lanes.clone().filter(holds).min_by_key(|&lane| store.lanes[lane].turn(is_main))?;
        let oldest = store.lanes[chosen].queue(is_main).oldest()?;
        let charge = store.record(oldest).charge();
        let bytes = store.lanes[chosen].queue(is_main).bytes;
        let turn = store.lanes[chosen].turn(is_main).max(store.turned[usize::from(is_main)]);
        store.turned[usize::from(is_main)] = turn;
        let on = (u128::from(charge) * TURN / u128::from(bytes)) as u64;
        *store.lanes[chosen].turn_mut(is_main) = turn + on;
        if turn > TURNS_MAX {
            store.turned[usize::from(is_main)] = 0;
            store.lanes.iter_mut().for_each(|lane| {
                *lane.turn_mut(is_main) = lane.turn(is_main).saturating_sub(turn);
            });
        }
        Some(chosen)
    }
}
