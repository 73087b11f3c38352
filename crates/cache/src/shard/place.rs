//! The bytes of one place, seen while others look at it too.
//!
//! Readers of a shard are many at a time, and a hit notes that it was one: three bits, in one byte
//! of the header. So a place is not a slice while it is only read. It is the 23 bytes before that
//! byte, the byte itself, which is an atomic, and what follows.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::sizes::HEADER_BYTES;
use crate::memory::Block;

/// Bytes before the one that readers write.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES - 1;

/// A place whose item may be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) head: &'a [u8; HEAD_BYTES],
    /// What readers note.
    noted: &'a AtomicU8,
    /// What lies behind the header.
    pub(super) rest: &'a [u8],
}

impl<'a> Place<'a> {
    /// The place of `bytes` at `start` of a page.
    ///
    /// # Panics
    /// When it is not in the block or has no room for a header.
    #[inline(always)]
    pub(super) fn new(block: &'a Block, start: usize, bytes: usize) -> Self {
        assert!(bytes >= HEADER_BYTES && start + bytes <= block.size(), "a place lies in its page");
        // SAFETY: the place is in the block by the assertion, and the block is there for as long as
        // it is borrowed. Under a shared borrow nothing but the byte at HEAD_BYTES of a place is
        // written, always as an atomic, and the three parts leave it out or are that atomic:
        // whoever writes anything else has the block by a mutable borrow.
        unsafe {
            let start = block.start().add(start);
            Self {
                head: start.cast().as_ref(),
                noted: AtomicU8::from_ptr(start.add(HEAD_BYTES).as_ptr()),
                rest: std::slice::from_raw_parts(start.add(HEADER_BYTES).as_ptr(), bytes - HEADER_BYTES),
            }
        }
    }

    /// The byte that readers write.
    #[inline]
    pub(super) fn noted(&self) -> u8 {
        self.noted.load(Relaxed)
    }

    /// Replaces it; of two readers that do so at a time, one is forgotten.
    #[inline]
    pub(super) fn note(&self, noted: u8) {
        self.noted.store(noted, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::{Heap, Supply};

    /// What an interpreter that finds undefined behaviour is to see: many look while some note, and
    /// only then is anything else written.
    #[test]
    fn readers_note_beside_what_they_read() {
        let mut block = Supply::new(Arc::new(Heap)).block(4096);
        for round in 1..4_u8 {
            block[40..80].fill(round);
            std::thread::scope(|scope| {
                for reader in 0..3 {
                    let block = &block;
                    scope.spawn(move || {
                        let place = Place::new(block, 40, 40);
                        place.note(place.noted() | reader);
                        assert!(place.head.iter().chain(place.rest).all(|&byte| byte == round));
                    });
                }
            });
            assert_eq!(block[40 + HEAD_BYTES] & round, round, "what was there before is never lost");
        }
    }

    #[test]
    #[should_panic(expected = "a place lies in its page")]
    fn a_place_that_is_not_in_the_page_is_none() {
        Place::new(&Supply::new(Arc::new(Heap)).block(4096), 4080, 24);
    }
}
