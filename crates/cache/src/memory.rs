//! Where the bytes come from.
//!
//! The engine places items itself, so all it needs from outside is large blocks, and that a block it gives back is the
//! system's again at once: an allocator that keeps it would make a smaller budget a mere promise. What a block is made of
//! is the driver's business; [`Heap`] asks the global allocator.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A source of blocks: 64 KiB pages for small items, and runs of whole 4 KiB for large ones.
///
/// # Safety
/// [`Memory::allocate`] returns `bytes` bytes that nobody else refers to until they are passed to [`Memory::release`].
pub unsafe trait Memory: Debug + Send + Sync {
    /// A block of exactly `bytes` bytes, a multiple of 4,096, with any content.
    fn allocate(&self, bytes: usize) -> &'static mut [u8];

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` is a whole block that [`Self::allocate`] of this same value returned.
    unsafe fn release(&self, block: &'static mut [u8]);
}

/// Blocks from the global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

// SAFETY: each block is a boxed slice of its own, leaked until it comes back.
unsafe impl Memory for Heap {
    fn allocate(&self, bytes: usize) -> &'static mut [u8] {
        Box::leak(vec![0; bytes].into_boxed_slice())
    }

    unsafe fn release(&self, block: &'static mut [u8]) {
        // SAFETY: by the caller's promise this is a boxed slice that `allocate` leaked, whole, and the only reference to it.
        drop(unsafe { Box::from_raw(block) });
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

/// A block that goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: &'static mut [u8],
    supply: Arc<Supply>,
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.supply.resized(bytes.len(), 0);
        // SAFETY: the block came whole from this memory, and borrows of it through `self` have ended.
        unsafe { self.supply.memory.release(bytes) };
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
