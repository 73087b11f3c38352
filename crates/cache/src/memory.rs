//! Where the bytes come from.
//!
//! The engine places items itself, so all it needs from outside is large blocks, and that a block
//! it gives back is the system's again at once: an allocator that keeps it would make a smaller
//! budget a mere promise. What a block is made of is the driver's business; [`Heap`] asks the
//! global allocator.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A source of blocks: 64 KiB pages for small items, and runs of whole 4 KiB for large ones.
///
/// # Safety
/// [`Memory::allocate`] returns `bytes` initialised bytes that may be read and written, and that
/// nobody else refers to, until they are passed to [`Memory::release`], from whichever thread.
pub unsafe trait Memory: Debug + Send + Sync {
    /// A block of exactly `bytes` bytes, a multiple of 4,096, with any content.
    fn allocate(&self, bytes: usize) -> NonNull<[u8]>;

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` is a whole block that [`Self::allocate`] of this same value returned, and nobody
    /// refers to it any more.
    unsafe fn release(&self, block: NonNull<[u8]>);
}

/// Blocks from the global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

// SAFETY: each block is a boxed slice of its own, leaked until it comes back.
unsafe impl Memory for Heap {
    fn allocate(&self, bytes: usize) -> NonNull<[u8]> {
        Box::leak(vec![0; bytes].into_boxed_slice()).into()
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        // SAFETY: by the caller's promise this is a boxed slice that `allocate` leaked, whole, and
        // nobody refers to it.
        drop(unsafe { Box::from_raw(block.as_ptr()) });
    }
}

/// A memory with a count of what was taken from it and of what tables take beside it.
#[derive(Debug)]
pub(crate) struct Supply {
    memory: Arc<dyn Memory>,
    held: AtomicU64,
}

impl Supply {
    pub(crate) fn new(memory: Arc<dyn Memory>) -> Arc<Self> {
        Arc::new(Self { memory, held: AtomicU64::new(0) })
    }

    /// Bytes of blocks and tables that are there.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Notes that a table of `old` bytes has now `new`.
    pub(crate) fn resized(&self, old: usize, new: usize) {
        // Wraps as two's complement does, so one addition serves both directions.
        self.held.fetch_add((new as u64).wrapping_sub(old as u64), Relaxed);
    }

    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Block {
        self.resized(0, bytes);
        Block { bytes: self.memory.allocate(bytes), supply: Arc::clone(self) }
    }
}

/// A block that goes back when it is dropped. A pointer and not a reference, since memory must not
/// be freed while a function still has a reference to it as its argument.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: NonNull<[u8]>,
    supply: Arc<Supply>,
}

// SAFETY: the bytes are this block's alone, as those of a boxed slice are, and may be released from
// any thread.
unsafe impl Send for Block {}
// SAFETY: by a shared reference to the block its bytes are only read, but for those that
// `shard::place` reads and writes as atomics; it leaves them out of every slice, and nobody takes a
// slice of a whole page by a shared reference.
unsafe impl Sync for Block {}

impl Block {
    /// Where the bytes begin; they may be written as far as the borrows of the block allow.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// A block of `supply` with the same bytes. Exclusive, since readers of a page write into it.
    pub(crate) fn copy(&mut self, supply: &Arc<Supply>) -> Self {
        let mut copy = supply.block(self.size());
        copy.copy_from_slice(self);
        copy
    }

    /// How many there are.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory promises that the bytes are there and only this block's until they are
        // released, which is when the block is dropped; the borrow of the block keeps it from that
        // and from being written.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed by nobody else.
        unsafe { self.bytes.as_mut() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.supply.resized(self.bytes.len(), 0);
        // SAFETY: the block came whole from this memory, and borrows of it through `self` have
        // ended.
        unsafe { self.supply.memory.release(self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_dropped() {
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
