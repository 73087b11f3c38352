//! Source of the engine's memory.
//!
//! The engine places items itself, so it needs only large blocks from outside, and that a released
//! block is soon returned to the system: if an allocator kept it, a smaller budget would not reduce
//! the process's memory. The driver decides where blocks come from; [`Heap`] uses the global
//! allocator.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Unit of the size of a run (storage of an item too large for a slot), in bytes.
pub(crate) const RUN_STEP: usize = 4096;

/// A source of blocks: 64 KiB pages for small items, and runs of whole 4 KiB pages for large ones.
///
/// # Safety
/// [`Memory::allocate`] returns `bytes` initialised bytes that may be read and written, and to
/// which no other reference exists, until they are passed to [`Memory::release`], from any thread.
pub unsafe trait Memory: Debug + Send + Sync {
    /// Allocates a block of exactly `bytes` bytes, a multiple of 4,096, with arbitrary content.
    fn allocate(&self, bytes: usize) -> NonNull<[u8]>;

    /// Releases a block.
    ///
    /// # Safety
    /// `block` is a complete block that [`Self::allocate`] of this same value returned, and no
    /// reference to it exists any more.
    unsafe fn release(&self, block: NonNull<[u8]>);
}

/// Blocks from the global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

// SAFETY: each block is its own boxed slice, leaked until it is released.
unsafe impl Memory for Heap {
    fn allocate(&self, bytes: usize) -> NonNull<[u8]> {
        Box::leak(vec![0; bytes].into_boxed_slice()).into()
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        // SAFETY: by the caller's contract this is a complete boxed slice that `allocate` leaked,
        // and no reference to it exists.
        drop(unsafe { Box::from_raw(block.as_ptr()) });
    }
}

/// A memory, with a count of the bytes allocated from it and of the bytes of tables.
#[derive(Debug)]
pub(crate) struct Supply {
    memory: Arc<dyn Memory>,
    held: AtomicU64,
    /// Bytes of the blocks that values are being received into.
    reserved: AtomicU64,
}

impl Supply {
    pub(crate) fn new(memory: Arc<dyn Memory>) -> Arc<Self> {
        Arc::new(Self { memory, held: AtomicU64::new(0), reserved: AtomicU64::new(0) })
    }

    /// Bytes of blocks and tables at present.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Records that a table of `old` bytes now has `new` bytes.
    pub(crate) fn resized(&self, old: usize, new: usize) {
        // Wraps around like two's complement, so one addition serves both directions.
        self.held.fetch_add((new as u64).wrapping_sub(old as u64), Relaxed);
    }

    /// Counts `bytes` as reserved unless more than `bytes_max` would be; true if they were.
    pub(crate) fn reserve(&self, bytes: u64, bytes_max: u64) -> bool {
        let more = |reserved: u64| reserved.checked_add(bytes).filter(|&sum| sum <= bytes_max);
        self.reserved.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Bytes reserved at present.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Ends the reservation of `bytes`, which were reserved before.
    pub(crate) fn unreserve(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Block {
        self.resized(0, bytes);
        Block { bytes: self.memory.allocate(bytes), supply: Arc::clone(self) }
    }
}

/// A block that is released when dropped. Holds a pointer rather than a reference, since memory
/// must not be freed while a function has a reference to it as an argument.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: NonNull<[u8]>,
    supply: Arc<Supply>,
}

// SAFETY: the bytes belong to this block alone, like those of a boxed slice, and may be released
// from any thread.
unsafe impl Send for Block {}
// SAFETY: through a shared reference to the block its bytes are only read, except those that
// `shard::slot` accesses as atomics; it excludes them from every slice, and no slice of a whole
// page is taken through a shared reference. Blocks outside pages (`in_place`) have no such bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Address of the first byte; the bytes may be written as far as the borrows of the block
    /// allow.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// Returns a block of `supply` with the same bytes. Takes `&mut self`, since readers of a page
    /// write into it.
    pub(crate) fn copy(&mut self, supply: &Arc<Supply>) -> Self {
        let mut copy = supply.block(self.size());
        copy.copy_from_slice(self);
        copy
    }

    /// Size of the block in bytes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory guarantees that the bytes exist and belong to this block until they
        // are released, which happens when the block is dropped; the borrow of the block prevents
        // that, and writes.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed exclusively.
        unsafe { self.bytes.as_mut() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.supply.resized(self.bytes.len(), 0);
        // SAFETY: the complete block was allocated from this memory, and borrows of it through
        // `self` have ended.
        unsafe { self.supply.memory.release(self.bytes) };
    }
}

/// Blocks and tables may exceed the total by a tenth, or by 32 MiB if that is more, for free slots
/// in pages and for uncharged parts of items. Chosen: two thirds of the memory that a process may
/// take beside its budget.
const RESERVE_DIVISOR: u64 = 10;
const RESERVE_BYTES_MIN: u64 = 32 << 20;
/// Largest number of bytes of memory blocks and tables together.
pub(crate) fn held_max(total_bytes: u64) -> u64 {
    total_bytes.saturating_add((total_bytes / RESERVE_DIVISOR).max(RESERVE_BYTES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_of_blocks_and_tables_are_counted_until_dropped() {
        let supply = Supply::new(Arc::new(Heap));
        let mut block = supply.block(8192);
        block[8191] = 1;
        supply.resized(0, 100);
        assert_eq!(supply.held(), 8292);
        drop(block);
        supply.resized(100, 30);
        assert_eq!(supply.held(), 30);
    }
}
