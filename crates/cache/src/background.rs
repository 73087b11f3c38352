//! Work that nobody waits for, in small steps.
//!
//! Three kinds, in this order of urgency: reaching budgets that were lowered, taking out the dead, and giving back memory
//! that entries and index no longer need.

use std::sync::TryLockError;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use sherwood_model::Instant;

use crate::engine::Cache;
use crate::shard::Cause;

/// Places looked at, or entries moved, under one hold of a shard's lock: a few microseconds.
const PER_LOCK: usize = 32;

/// From the start of one pass over all entries to the next. Dead items are found by use and by eviction anyway; this
/// bounds how long the others are charged, at 1% of a core for ten million items.
const PASS_INTERVAL: Duration = Duration::from_secs(10);

/// Where the background is.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// The place a pass over all entries goes on at; none between passes.
    pass: Option<Place>,
    /// No pass begins before.
    next_pass: Instant,
    /// The shard to look at next for memory to give back.
    compact: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    shard: usize,
    slot: usize,
}

impl Cache {
    /// Does background work on at most `items_max` items (evicted, looked at or moved) and says whether there is more
    /// to do. A shard is locked for at most 32 of them at a time. Call it every few milliseconds and, while it returns
    /// true, again as soon as there is leisure; budgets, when lowered, are reached as fast as it is called.
    ///
    /// Looking for dead items takes a pass over all entries. One begins only when something is known to have died, and
    /// at most every 10 seconds. Of several threads that call this at a time one does the looking.
    pub fn step(&self, now: Instant, items_max: usize) -> bool {
        let mut left = items_max;
        while left > 0 && self.is_over() && self.evict_most_over(now) {
            left -= 1;
        }
        let mut background = match self.background.try_lock() {
            Ok(background) => background,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.is_over(),
        };
        self.reclaim(&mut background, now, &mut left);
        let compacting = self.compact(&mut background, now, &mut left);
        self.is_over() || background.pass.is_some() || compacting
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
            let looked_at = (*left).min(PER_LOCK);
            *left -= looked_at;
            background.pass = self.reclaim_from(place, looked_at, now);
        }
    }

    /// Whether the earliest time of death noted has come. If so the note is taken: the pass that follows notes those
    /// that it leaves alive.
    fn something_died(&self, now: Instant) -> bool {
        let died = self.next_death.load(Relaxed) <= now.as_nanos();
        if died {
            self.next_death.swap(Instant::NEVER.as_nanos(), Acquire);
            self.note_death(self.flushes.next(now, &self.ticks));
        }
        died
    }

    /// Takes out the dead among `places` places of one shard; returns where to go on, or none at the end.
    fn reclaim_from(&self, from: Place, places: usize, now: Instant) -> Option<Place> {
        let mut shard = self.shards[from.shard].lock(&self.ledger);
        let end = (from.slot + places).min(shard.places());
        for slot in from.slot..end {
            let Some(entry) = shard.occupied(slot) else { continue };
            if self.is_dead(entry, now) {
                shard.remove(slot as u32, Cause::Expired);
            } else {
                self.note_death(entry.expires());
            }
        }
        if end < shard.places() {
            return Some(Place { slot: end, ..from });
        }
        (from.shard + 1 < self.shards.len()).then_some(Place { shard: from.shard + 1, slot: 0 })
    }

    /// Empties chunks of one shard, another one each time, if it has many free places. Says whether there is more to do
    /// in that shard.
    fn compact(&self, background: &mut Background, now: Instant, left: &mut usize) -> bool {
        let shard = background.compact;
        let mut more = self.shards[shard].lock(&self.ledger).has_slack();
        while more && *left > 0 {
            let moved = (*left).min(PER_LOCK);
            *left -= moved;
            more = self.compact_shard(shard, moved, now);
        }
        if !more {
            background.compact = (shard + 1) % self.shards.len();
        }
        more
    }

    /// Moves `entries` entries, or gives back memory, while it is worth it. Says whether it still is.
    fn compact_shard(&self, shard: usize, entries: usize, now: Instant) -> bool {
        let mut shard = self.shards[shard].lock(&self.ledger);
        for _ in 0..entries {
            if !shard.has_slack() {
                break;
            }
            let Some(slot) = shard.evacuee() else { continue };
            // A pass may have gone by the place the entry moves to: it is looked at here instead.
            if self.is_dead(shard.entry(slot), now) {
                shard.remove(slot, Cause::Expired);
            } else {
                self.note_death(shard.entry(slot).expires());
                shard.relocate(slot);
            }
        }
        shard.has_slack()
    }
}
