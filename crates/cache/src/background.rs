//! Work that nobody waits for, in small steps.
//!
//! Four kinds, in this order of urgency: reaching budgets that were lowered, giving back pages that
//! are empty, taking out the dead, and emptying pages that are not.

use std::sync::TryLockError;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use sherwood_model::Instant;

use crate::engine::Cache;
use crate::eviction::Pool;
use crate::options::Eviction;
use crate::shard::{Cause, Cursor, Slack};

/// Places looked at, or entries moved, under one hold of a shard's lock. Chosen: enough that
/// locking is a small part of the work, few enough that a request hardly notices.
pub(crate) const PER_LOCK: usize = 32;

/// Bytes of an item that is as much work as one that has nothing but a key: giving back, or
/// copying, as many takes as long as all else does.
const ITEM_BYTES: u64 = 4096;

/// Giving a block back takes as long as evicting so many items, and moving so many bytes: 10 to 20
/// microseconds in the system, one for each of its pages.
const ITEMS_A_BLOCK: usize = 32;
const BYTES_A_BLOCK: u64 = 16 << 10;

/// From the start of one pass over all entries to the next. Dead items are found by use and by
/// eviction anyway; this bounds how long the others are charged. Chosen: seconds, because a pass
/// reads every entry there is.
const PASS_INTERVAL: Duration = Duration::from_secs(10);

/// What is known of the background work after a bit of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// There was no more to do.
    Done,
    /// There may be more to do.
    Left,
    /// Another thread is at it, and knows.
    Elsewhere,
}

/// Where the background is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Background {
    /// The place a pass over all entries goes on at; none between passes.
    pass: Option<Place>,
    /// No pass begins before.
    next_pass: Instant,
    /// The shard to look at next for blocks to give back.
    give_back: usize,
    /// The shard to look at next for pages to empty.
    compact: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    shard: usize,
    cursor: Cursor,
}

impl Cache {
    /// Does background work on at most `items_max` items (evicted, looked at or moved) and says
    /// whether it stopped for that reason, so that there may be more to do. A shard is locked for
    /// at most 32 items at a time. Call it every few milliseconds and, while it returns true, again
    /// as soon as there is leisure: budgets that were lowered are reached as fast as it is called.
    ///
    /// Looking for dead items takes a pass over all entries. One begins only when something is
    /// known to have died, and at most every 10 seconds. Of several threads that call this at a
    /// time one does the looking; [`Self::work`] tells the others so.
    pub fn step(&self, now: Instant, items_max: usize) -> bool {
        self.work(now, items_max) == Work::Left
    }

    /// As [`Self::step`], for several threads that do the work in turn.
    pub fn work(&self, now: Instant, items_max: usize) -> Work {
        self.timeline.note(self.ticks.load(Relaxed), now);
        let mut left = items_max;
        while left > 0 && self.is_over() {
            match self.shrink(now, left) {
                0 => break,
                items => left -= items.min(left),
            }
        }
        let background = match self.background.try_lock() {
            Ok(background) => Some(background),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let is_mine = background.is_some();
        if let Some(mut background) = background {
            self.give_back(&mut background, &mut left);
            self.reclaim(&mut background, now, &mut left);
            // Reached only when the pass has ended, so it goes by no entry that moves.
            if background.pass.is_none() {
                self.compact(&mut background, &mut left);
            }
        }
        match (left, is_mine) {
            (0, _) => Work::Left,
            (_, true) => Work::Done,
            (_, false) => Work::Elsewhere,
        }
    }

    /// Evicts at most `items_max` items of whoever is most over; returns how many. Under strict LRU
    /// the next is looked for among all shards each time; else several go under one lock.
    fn shrink(&self, now: Instant, items_max: usize) -> usize {
        if self.options.eviction == Eviction::Lru {
            return usize::from(self.evict_most_over(1, &|| self.is_over(), now).is_some());
        }
        let (pool, bytes) = match self.ledger.most_over() {
            _ if self.ledger.is_shared() => (Pool::All, self.ledger.total_excess()),
            Some((partition, _)) => (Pool::Partition(partition), self.ledger.excess(partition)),
            None => return 0,
        };
        // Where only the total is over, by what is still being stored, one is enough.
        let items = items_max.min(PER_LOCK);
        let evicted = self.evict_some(pool, bytes.clamp(1, items as u64 * ITEM_BYTES), items, now);
        evicted.map_or(0, |evicted| cost(evicted.items, evicted.bytes))
    }

    /// Goes on with the pass for dead items, or begins one if it is time.
    fn reclaim(&self, background: &mut Background, now: Instant, left: &mut usize) {
        if background.pass.is_none() && now >= background.next_pass && self.something_died(now) {
            background.pass = Some(Place::default());
            background.next_pass = now + PASS_INTERVAL;
        }
        while let Some(place) = background.pass
            && *left > 0
        {
            background.pass = self.reclaim_from(place, now, left);
        }
    }

    /// Whether the earliest time of death noted has come. If so the note is taken: the pass that
    /// follows notes those that it leaves alive.
    fn something_died(&self, now: Instant) -> bool {
        let died = self.next_death.load(Relaxed) <= now.as_nanos();
        if died {
            self.next_death.swap(Instant::NEVER.as_nanos(), Acquire);
            self.note_death(self.flushes.next(now, &self.ticks));
        }
        died
    }

    /// Takes out the dead among the next places of one shard; returns where to go on, or none at
    /// the end.
    fn reclaim_from(&self, from: Place, now: Instant, left: &mut usize) -> Option<Place> {
        let mut shard = self.shards[from.shard].lock(&self.ledger);
        let mut dead = Vec::new();
        let mut next_death = Instant::NEVER;
        let (seen, cursor) = shard.walk(from.cursor, PER_LOCK.min(*left), |at| {
            let record = shard.record(at);
            if self.is_dead(&record, now) {
                dead.push(at);
            } else {
                next_death = next_death.min(self.dies(&record));
            }
        });
        *left -= seen.clamp(1, *left);
        self.note_death(next_death);
        let removed: Vec<_> = dead.into_iter().map(|at| shard.remove(at, Cause::Expired)).collect();
        drop(shard);
        drop(removed);
        match cursor {
            Some(cursor) => Some(Place { cursor, ..from }),
            None => (from.shard + 1 < self.shards.len())
                .then_some(Place { shard: from.shard + 1, cursor: Cursor::default() }),
        }
    }

    /// Gives back blocks that no page needs, going round the shards once.
    fn give_back(&self, background: &mut Background, left: &mut usize) {
        for _ in 0..self.shards.len() {
            while *left > 0 {
                let count = self.give_back_some(background.give_back, left.div_ceil(ITEMS_A_BLOCK));
                *left -= (count * ITEMS_A_BLOCK).min(*left);
                if count == 0 {
                    break;
                }
            }
            if *left == 0 {
                return;
            }
            background.give_back = (background.give_back + 1) % self.shards.len();
        }
    }

    /// Gives back at most `count_max` blocks of a shard; returns how many it had.
    fn give_back_some(&self, shard: usize, count_max: usize) -> usize {
        let blocks = self.shards[shard].lock(&self.ledger).take_emptied(count_max);
        blocks.len()
    }

    /// Empties pages of shards that have many free places, going round the shards once.
    fn compact(&self, background: &mut Background, left: &mut usize) {
        for _ in 0..self.shards.len() {
            while *left > 0 {
                let relief = self.compact_shard(background.compact, Slack::Plenty, PER_LOCK.min(*left));
                *left -= cost(relief.items, relief.bytes).min(*left);
                if relief.is_done {
                    break;
                }
            }
            if *left == 0 {
                return;
            }
            background.compact = (background.compact + 1) % self.shards.len();
        }
    }

    /// Gives back blocks of a shard or, where there are none, moves at most `items_max` records if
    /// it has many free places, under one hold of its lock.
    pub(crate) fn compact_shard(&self, shard: usize, slack: Slack, items_max: usize) -> Relief {
        let blocks = self.give_back_some(shard, items_max.div_ceil(ITEMS_A_BLOCK));
        if blocks > 0 {
            let bytes = blocks as u64 * BYTES_A_BLOCK;
            return Relief { items: blocks * ITEMS_A_BLOCK, bytes, is_done: false };
        }
        let mut shard = self.shards[shard].lock(&self.ledger);
        if !shard.has_slack(slack) {
            return Relief { items: 0, bytes: 0, is_done: true };
        }
        let moved = shard.relocate_some(slack, items_max, |record| self.dies(record));
        let is_done = !shard.has_slack(slack);
        drop(shard);
        // A look for the dead that is under way may have gone by the new place and not have come to
        // the old one.
        self.note_death(moved.next_death);
        // Where a page was given up instead, that was the work of an item.
        Relief { items: moved.items.max(1), bytes: moved.bytes, is_done }
    }
}

/// What a step has done with `items` of together `bytes`, as a number of items: large ones are more
/// work.
fn cost(items: usize, bytes: u64) -> usize {
    items.max(usize::try_from(bytes / ITEM_BYTES).unwrap_or(usize::MAX))
}

/// What a hold of a shard's lock has brought on the way to less memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relief {
    /// Records moved, or 1 for what else was done.
    pub(crate) items: usize,
    /// Bytes moved, or what else was done as bytes moved.
    pub(crate) bytes: u64,
    /// Whether the shard has few free places now.
    pub(crate) is_done: bool,
}
