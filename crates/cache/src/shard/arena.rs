//! Where a shard's entries lie.
//!
//! One growing vector would be copied whole when it is full: a pause of many milliseconds inside some insert. Entries
//! lie in chunks instead; a chunk is added when all places are taken and given back, by the background, when enough
//! places have been free for a chunk's entries to move elsewhere.

use std::ops::{Index, IndexMut};

use super::entry::{Entry, NO_SLOT, Slot};

/// Entries per chunk: 16 KiB, so that even a small cache with many shards wastes little.
const CHUNK: usize = 256;

/// Entries in chunks, with a free list each.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    /// Chunks with a free place, in no order. New entries go to the last of them.
    open: Vec<u32>,
    occupied: usize,
}

#[derive(Debug)]
struct Chunk {
    entries: Box<[Entry]>,
    /// First free place, linked through `newer`.
    free: Slot,
    occupied: u16,
}

impl Arena {
    /// Puts `entry` into a free place. O(1) but for a new chunk's 16 KiB.
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        if self.open.is_empty() {
            self.open.push(self.chunks.len() as u32);
            self.chunks.push(Chunk::new(self.chunks.len()));
        }
        let open = self.open[self.open.len() - 1];
        let chunk = &mut self.chunks[open as usize];
        let slot = chunk.free;
        let place = &mut chunk.entries[slot as usize % CHUNK];
        chunk.free = place.newer;
        chunk.occupied += 1;
        *place = entry;
        if chunk.free == NO_SLOT {
            self.open.pop();
        }
        self.occupied += 1;
        slot
    }

    /// Frees a place and returns what was there. O(1).
    pub(super) fn remove(&mut self, slot: Slot) -> Entry {
        let number = slot as usize / CHUNK;
        let chunk = &mut self.chunks[number];
        if chunk.free == NO_SLOT {
            self.open.push(number as u32);
        }
        let entry = std::mem::replace(&mut chunk.entries[slot as usize % CHUNK], Entry::free(chunk.free));
        chunk.free = slot;
        chunk.occupied -= 1;
        self.occupied -= 1;
        entry
    }

    /// Places, free ones included; slots are below this.
    pub(super) fn places(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Whether so many places are free (more than two chunks and an eighth of the entries) that a chunk is worth
    /// emptying.
    pub(super) fn has_slack(&self) -> bool {
        self.places() - self.occupied > 2 * CHUNK + self.occupied / 8
    }

    /// An entry of the last chunk that should move elsewhere so that the chunk can be given back. When none is left in
    /// it, gives it back and returns none. Only to be called while there is slack.
    pub(super) fn evacuee(&mut self) -> Option<Slot> {
        let last = self.chunks.len() - 1;
        if self.chunks[last].occupied == 0 {
            self.chunks.pop();
            self.open.retain(|&chunk| chunk as usize != last);
            return None;
        }
        let place = self.chunks[last].entries.iter().position(|entry| entry.occupied)?;
        Some((last * CHUNK + place) as Slot)
    }

    /// Moves an entry of the last chunk to a free place of another. Only to be called while there is slack, when there
    /// is such a place.
    pub(super) fn relocate(&mut self, from: Slot) -> Slot {
        let entry = self.remove(from);
        let last = self.chunks.len() as u32 - 1;
        if let [.., other, next] = self.open.as_mut_slice()
            && *next == last
        {
            std::mem::swap(other, next);
        }
        self.insert(entry)
    }
}

impl Chunk {
    /// The chunk with this number, all free, in the order of the slots.
    fn new(number: usize) -> Self {
        let first = number * CHUNK;
        // Slots are 32 bits: 4 billion items in one shard would need 256 GiB of entries alone.
        assert!(first + CHUNK < NO_SLOT as usize, "a shard holds fewer than 2^32 items");
        let next = |place| if place + 1 < CHUNK { (first + place + 1) as Slot } else { NO_SLOT };
        Self {
            entries: (0..CHUNK).map(|place| Entry::free(next(place))).collect(),
            free: first as Slot,
            occupied: 0,
        }
    }
}

impl Index<Slot> for Arena {
    type Output = Entry;

    fn index(&self, slot: Slot) -> &Entry {
        &self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK]
    }
}

impl IndexMut<Slot> for Arena {
    fn index_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK]
    }
}
