//! The bytes of a slot under concurrent reads.
//!
//! Several readers may read a shard at a time, and a hit sets three bits in one byte of the header.
//! While a slot is shared, it is therefore accessed as three parts: the 23 bytes before that byte,
//! the byte itself as an atomic, and the bytes after it.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::sizes::HEADER_BYTES;
use crate::memory::Block;

/// Bytes before the byte that readers write.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES - 1;

/// A slot whose item may be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) head: &'a [u8; HEAD_BYTES],
    /// The byte of the header that readers write: uses and deadline class.
    reader_bits: &'a AtomicU8,
    /// Bytes after the header.
    pub(super) rest: &'a [u8],
}

impl<'a> Slot<'a> {
    /// Returns the slot of `bytes` bytes at `start` of a page.
    ///
    /// # Panics
    /// If it is not within the block or is smaller than a header.
    #[inline(always)]
    pub(super) fn new(block: &'a Block, start: usize, bytes: usize) -> Self {
        assert!(bytes >= HEADER_BYTES && start + bytes <= block.size(), "a slot lies in its page");
        // SAFETY: the slot is within the block by the assertion, and the block exists as long as it
        // is borrowed. Under a shared borrow only the byte at HEAD_BYTES of a slot is written,
        // always as an atomic; of the three parts two exclude it and one is that atomic. Any other
        // write requires an exclusive borrow of the block.
        unsafe {
            let start = block.start().add(start);
            Self {
                head: start.cast().as_ref(),
                reader_bits: AtomicU8::from_ptr(start.add(HEAD_BYTES).as_ptr()),
                rest: std::slice::from_raw_parts(start.add(HEADER_BYTES).as_ptr(), bytes - HEADER_BYTES),
            }
        }
    }

    /// Reads the byte of the header that readers write.
    #[inline]
    pub(super) fn reader_bits(&self) -> u8 {
        self.reader_bits.load(Relaxed)
    }

    /// Writes the byte of the header that readers write; of two concurrent writes one may be lost.
    #[inline]
    pub(super) fn set_reader_bits(&self, reader_bits: u8) {
        self.reader_bits.store(reader_bits, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::{Heap, Supply};

    /// For an interpreter that detects undefined behaviour: concurrent reads while some readers
    /// write their byte, and other writes only afterwards.
    #[test]
    fn readers_write_their_byte_of_a_slot_during_concurrent_reads() {
        let mut block = Supply::new(Arc::new(Heap)).block(4096);
        for round in 1..4_u8 {
            block[40..80].fill(round);
            std::thread::scope(|scope| {
                for reader in 0..3 {
                    let block = &block;
                    scope.spawn(move || {
                        let slot = Slot::new(block, 40, 40);
                        slot.set_reader_bits(slot.reader_bits() | reader);
                        assert!(slot.head.iter().chain(slot.rest).all(|&byte| byte == round));
                    });
                }
            });
            assert_eq!(block[40 + HEAD_BYTES] & round, round, "bits set before are kept");
        }
    }

    #[test]
    #[should_panic(expected = "a slot lies in its page")]
    fn slot_outside_of_the_page_panics() {
        Slot::new(&Supply::new(Arc::new(Heap)).block(4096), 4080, 24);
    }
}
