//! Items in the order of their last use, linked through their entries.

use super::arena::Arena;
use super::entry::{NO_SLOT, Slot};

/// A recency queue: `oldest` is the next victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    newest: Slot,
    oldest: Slot,
}

/// What a queue without items publishes in place of its oldest stamp.
pub(crate) const EMPTY: u64 = u64::MAX;

impl Queue {
    pub(super) const fn new() -> Self {
        Self { newest: NO_SLOT, oldest: NO_SLOT }
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NO_SLOT).then_some(self.oldest)
    }

    /// Stamp of the oldest item, or [`EMPTY`].
    pub(super) fn oldest_stamp(&self, arena: &Arena) -> u64 {
        self.oldest().map_or(EMPTY, |slot| arena[slot].stamp)
    }

    /// Adds an entry that is in no queue as the newest.
    pub(super) fn push(&mut self, arena: &mut Arena, slot: Slot) {
        let entry = &mut arena[slot];
        (entry.newer, entry.older) = (NO_SLOT, self.newest);
        match self.newest {
            NO_SLOT => self.oldest = slot,
            newest => arena[newest].newer = slot,
        }
        self.newest = slot;
    }

    /// Takes an entry of this queue out of it.
    pub(super) fn remove(&mut self, arena: &mut Arena, slot: Slot) {
        let (newer, older) = (arena[slot].newer, arena[slot].older);
        self.link(arena, newer, older);
    }

    /// Lets the neighbours of an entry that has moved to `slot` (its own links moved with it) point there.
    pub(super) fn relocate(&mut self, arena: &mut Arena, slot: Slot) {
        let (newer, older) = (arena[slot].newer, arena[slot].older);
        self.link(arena, newer, slot);
        self.link(arena, slot, older);
    }

    /// Makes `newer` and `older` neighbours; `NO_SLOT` stands for the queue's end.
    fn link(&mut self, arena: &mut Arena, newer: Slot, older: Slot) {
        match newer {
            NO_SLOT => self.newest = older,
            newer => arena[newer].older = older,
        }
        match older {
            NO_SLOT => self.oldest = newer,
            older => arena[older].newer = newer,
        }
    }
}
