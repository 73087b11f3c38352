//! From a key's hash to its entry.
//!
//! A hash table that doubles moves everything it holds, inside the insert that found it full. A shard's index is
//! therefore cut into segments by a few bits of the hash: they grow one at a time, each a small part of the shard.

use hashbrown::HashTable;

use super::arena::Arena;
use super::entry::Slot;

/// Segments per shard, so that a doubling moves a 64th of the shard: ten thousand entries in a cache of ten million items
/// in 16 shards.
const SEGMENTS: usize = 64;

/// Slots of a shard's entries by the hash of their keys.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Box<[HashTable<Slot>]>,
    /// The segment to look at next for room to give back.
    shrink: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { segments: (0..SEGMENTS).map(|_| HashTable::new()).collect(), shrink: 0 }
    }

    /// The slot with this hash for which `is` holds. O(1).
    pub(super) fn find(&self, hash: u32, mut is: impl FnMut(Slot) -> bool) -> Option<Slot> {
        self.segments[segment(hash)].find(spread(hash), |&slot| is(slot)).copied()
    }

    /// Adds a slot whose key is not there yet. Amortised O(1), at worst a segment's doubling.
    pub(super) fn insert(&mut self, hash: u32, slot: Slot, arena: &Arena) {
        self.segments[segment(hash)].insert_unique(spread(hash), slot, |&slot| spread(arena[slot].hash));
    }

    /// Removes a slot that is there. O(1).
    pub(super) fn remove(&mut self, hash: u32, slot: Slot) {
        let found = self.segments[segment(hash)].find_entry(spread(hash), |&other| other == slot);
        found.expect("every entry is in the index").remove();
    }

    /// Renames a slot whose entry has moved. O(1).
    pub(super) fn rename(&mut self, hash: u32, from: Slot, to: Slot) {
        let found = self.segments[segment(hash)].find_mut(spread(hash), |&other| other == from);
        *found.expect("every entry is in the index") = to;
    }

    /// Gives back the room of one segment, another one each time, if it holds less than a quarter of what it could.
    pub(super) fn shrink_one(&mut self, arena: &Arena) {
        let segment = &mut self.segments[self.shrink];
        self.shrink = (self.shrink + 1) % SEGMENTS;
        if segment.len() < segment.capacity() / 4 {
            segment.shrink_to(2 * segment.len(), |&slot| spread(arena[slot].hash));
        }
    }
}

fn segment(hash: u32) -> usize {
    hash as usize % SEGMENTS
}

/// The hash as the table wants it: it takes the place from the low bits and a tag from the top seven. Neither uses the
/// bits that chose the segment.
fn spread(hash: u32) -> u64 {
    (u64::from(hash) << 32) | (u64::from(hash) / SEGMENTS as u64)
}
