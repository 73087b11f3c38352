//! Background work in small steps.
//!
//! There are four kinds, in this order of urgency: evicting from partitions above lowered budgets,
//! returning empty blocks to the memory, removing dead items, and emptying sparsely used pages.

use std::sync::TryLockError;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use sherwood_model::Instant;

use crate::engine::Cache;
use crate::eviction::Pool;
use crate::options::Eviction;
use crate::shard::{Cause, Cursor, Slack};

/// Entries visited, or items moved, per acquisition of a shard's lock. Chosen: enough that locking
/// is a small part of the work, few enough that a waiting request is hardly delayed.
pub(crate) const PER_LOCK: usize = 32;

/// Bytes of an item that cost as much work as an item without a value: freeing or copying this many
/// bytes takes as long as the rest of the operation.
const ITEM_BYTES: u64 = 4096;

/// Cost of releasing a block, in items evicted and in bytes moved, with a memory that keeps it for
/// later use, like the node's and most allocators: one to two microseconds. A memory that returns
/// it to the system at once takes ten times as long.
const ITEMS_A_BLOCK: usize = 4;
const BYTES_A_BLOCK: u64 = 2 << 10;

/// Time from the start of one pass over all entries in search of dead (expired or flushed) items to
/// the next. Dead items are also found by accesses and by eviction; a pass bounds how long the
/// others stay charged. Chosen: several seconds, because a pass reads every entry.
const PASS_INTERVAL: Duration = Duration::from_secs(10);

/// Result of a unit of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing was left to do.
    Done,
    /// Work may be left: the limit of items was reached.
    Left,
    /// Work may be left that another thread is doing at present.
    Elsewhere,
}

/// Positions at which the background work continues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Background {
    /// Position of the current pass over all entries in search of dead items; none between passes.
    pass: Option<PassPosition>,
    /// Earliest start of the next pass in search of dead items.
    next_pass: Instant,
    /// The shard to search next for blocks to return.
    give_back: usize,
    /// The shard to search next for pages to empty.
    compact: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct PassPosition {
    shard: usize,
    cursor: Cursor,
}

impl Cache {
    /// Does background work on at most `items_max` items (evicted, visited or moved). Returns true
    /// if it stopped at that limit, so that there may be more to do. A shard is locked for at most
    /// 32 items at a time. To be called every few milliseconds, and again as soon as the thread is
    /// idle while it returns true; lowered budgets are reached only as fast as it is called.
    ///
    /// Dead items are found by passes over all entries. A pass begins only if an item is known to
    /// have died, and at most every 10 seconds. If several threads call this at the same time, one
    /// of them does the pass; [`Self::work`] reports this to the others.
    pub fn step(&self, now: Instant, items_max: usize) -> bool {
        self.work(now, items_max) == Work::Left
    }

    /// Does background work like [`Self::step`], for several threads that share it: also tells if
    /// another thread is doing the rest.
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
            // Reached only between passes, so that a pass misses no entry that is moved.
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

    /// Evicts at most `items_max` items of the partition most over its budget; returns the work
    /// done, in items. Strict LRU selects each victim among all shards; S3-FIFO evicts several
    /// under one lock.
    fn shrink(&self, now: Instant, items_max: usize) -> usize {
        if self.options.eviction == Eviction::Lru {
            return usize::from(self.evict_most_over(1, &|| self.is_over(), now).is_some());
        }
        let (pool, bytes) = match self.ledger.most_over() {
            _ if self.ledger.is_shared() => (Pool::All, self.ledger.total_excess()),
            Some((partition, _)) => (Pool::Partition(partition), self.ledger.excess(partition)),
            None => return 0,
        };
        // If only the total is exceeded, by stores in flight, one item is enough.
        let items = items_max.min(PER_LOCK);
        let evicted = self.evict_some(pool, bytes.clamp(1, items as u64 * ITEM_BYTES), items, now);
        evicted.map_or(0, |evicted| cost(evicted.items, evicted.bytes))
    }

    /// Continues the pass that removes dead (expired or flushed) items, or begins one when due.
    fn reclaim(&self, background: &mut Background, now: Instant, left: &mut usize) {
        if background.pass.is_none() && now >= background.next_pass && self.something_died(now) {
            background.pass = Some(PassPosition::default());
            background.next_pass = now + PASS_INTERVAL;
        }
        while let Some(position) = background.pass
            && *left > 0
        {
            background.pass = self.reclaim_from(position, now, left);
        }
    }

    /// True if an item may have died (expired or been flushed) by `now`, according to the earliest
    /// time of death recorded. The record is then cleared; the pass that follows records the deaths
    /// of the items that it leaves.
    fn something_died(&self, now: Instant) -> bool {
        let died = self.next_death.load(Relaxed) <= now.as_nanos();
        if died {
            self.next_death.swap(Instant::NEVER.as_nanos(), Acquire);
            self.note_death(self.flushes.next(now, &self.ticks));
        }
        died
    }

    /// Removes dead items among the next entries of one shard; returns the position to continue at,
    /// none at the end.
    fn reclaim_from(&self, from: PassPosition, now: Instant, left: &mut usize) -> Option<PassPosition> {
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
            Some(cursor) => Some(PassPosition { cursor, ..from }),
            None => (from.shard + 1 < self.shards.len())
                .then_some(PassPosition { shard: from.shard + 1, cursor: Cursor::default() }),
        }
    }

    /// Returns the shards' unused blocks to the memory they came from, visiting each shard once.
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

    /// Returns at most `count_max` unused blocks of a shard; returns their number.
    fn give_back_some(&self, shard: usize, count_max: usize) -> usize {
        let blocks = self.shards[shard].lock(&self.ledger).take_emptied(count_max);
        blocks.len()
    }

    /// Empties pages of shards with many free slots, visiting each shard once.
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

    /// Returns unused blocks of a shard or, if it has none and many free slots, moves at most
    /// `items_max` records, under one acquisition of its lock.
    pub(crate) fn compact_shard(&self, shard: usize, slack: Slack, items_max: usize) -> CompactionStep {
        let blocks = self.give_back_some(shard, items_max.div_ceil(ITEMS_A_BLOCK));
        if blocks > 0 {
            let bytes = blocks as u64 * BYTES_A_BLOCK;
            return CompactionStep { items: blocks * ITEMS_A_BLOCK, bytes, is_done: false };
        }
        let mut shard = self.shards[shard].lock(&self.ledger);
        if !shard.has_slack(slack) {
            return CompactionStep { items: 0, bytes: 0, is_done: true };
        }
        let moved = shard.relocate_some(slack, items_max, |record| self.dies(record));
        let is_done = !shard.has_slack(slack);
        drop(shard);
        // A pass for dead items in flight may have passed the new slot already and not have reached
        // the old one.
        self.note_death(moved.next_death);
        // If a page was released instead, that counts as the work of one item.
        CompactionStep { items: moved.items.max(1), bytes: moved.bytes, is_done }
    }
}

/// Work done on `items` with `bytes` in total, as a number of items: large ones count more.
fn cost(items: usize, bytes: u64) -> usize {
    items.max(usize::try_from(bytes / ITEM_BYTES).unwrap_or(usize::MAX))
}

/// Work done under one acquisition of a shard's lock to reduce the memory that the shard holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionStep {
    /// Records moved, or 1 for other work.
    pub(crate) items: usize,
    /// Bytes moved, or other work expressed as bytes moved.
    pub(crate) bytes: u64,
    /// True if the shard has few free slots left.
    pub(crate) is_done: bool,
}
