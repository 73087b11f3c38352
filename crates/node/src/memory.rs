//! The cache's memory, mapped directly from the system.
//!
//! An allocator keeps freed memory for later use, which would defeat a budget that was lowered to
//! return memory. So the cache's blocks come from separate mappings, and the memory of a released
//! block is returned to the system before the call ends. The addresses stay mapped: address space
//! is plentiful, and only addresses in use are backed by memory.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use sherwood_cache::Memory;

/// Size of a mapping, bytes. Chosen: a thousand pages, so that mappings are few.
const SPAN_BYTES: usize = 64 << 20;

/// Allocates the cache's blocks from anonymous memory mappings.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    free: Mutex<Free>,
}

/// Mapped addresses that are not in use, as pieces that do not touch.
#[derive(Debug, Default)]
struct Free {
    /// Size of each piece, by its start address.
    pieces: BTreeMap<usize, usize>,
    /// The same pieces by size, then start, for a best-fit search.
    sizes: BTreeSet<(usize, usize)>,
}

// SAFETY: a block is a part of a mapping that is never unmapped; it is taken out of the free pieces
// when it is handed out and put back when it is released, so nothing else refers to it in between.
unsafe impl Memory for Mapped {
    fn allocate(&self, bytes: usize) -> NonNull<[u8]> {
        let start = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.take(bytes).unwrap_or_else(|| {
                let span = SPAN_BYTES.max(bytes);
                let start = map(span);
                if span > bytes {
                    free.put(start + bytes, span - bytes);
                }
                start
            })
        };
        // Initialised, too: the system fills untouched and returned pages with zeros.
        let start = NonNull::new(ptr::with_exposed_provenance_mut(start)).expect("nothing is mapped at 0");
        NonNull::slice_from_raw_parts(start, bytes)
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        let (start, bytes) = (block.cast::<u8>().as_ptr(), block.len());
        // SAFETY: the range is part of a mapping and consists of whole system pages, and the caller
        // guarantees that nothing refers to it any more. On failure the memory stays in place, and
        // the next owner of the addresses can still use it.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
        self.free.lock().unwrap_or_else(PoisonError::into_inner).put(start.expose_provenance(), bytes);
    }
}

/// Maps `bytes` bytes and returns their start.
fn map(bytes: usize) -> usize {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new private mapping at an address the system chooses touches no existing one.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        handle_alloc_error(Layout::from_size_align(bytes, 4096).expect("a size that a block can have"));
    }
    start.expose_provenance()
}

impl Free {
    /// Takes `bytes` out of the smallest piece that is large enough. O(log pieces).
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let &(size, start) = self.sizes.range((bytes, 0)..).next()?;
        self.sizes.remove(&(size, start));
        self.pieces.remove(&start);
        if size > bytes {
            self.insert(start + bytes, size - bytes);
        }
        Some(start)
    }

    /// Adds a piece and merges it with adjacent ones. O(log pieces).
    fn put(&mut self, start: usize, bytes: usize) {
        let (mut start, mut bytes) = (start, bytes);
        if let Some((&before, &size)) = self.pieces.range(..start).next_back()
            && before + size == start
        {
            self.remove(before, size);
            (start, bytes) = (before, size + bytes);
        }
        if let Some(&size) = self.pieces.get(&(start + bytes)) {
            self.remove(start + bytes, size);
            bytes += size;
        }
        self.insert(start, bytes);
    }

    fn insert(&mut self, start: usize, bytes: usize) {
        self.pieces.insert(start, bytes);
        self.sizes.insert((bytes, start));
    }

    fn remove(&mut self, start: usize, bytes: usize) {
        self.pieces.remove(&start);
        self.sizes.remove(&(bytes, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_free_pieces_of_memory_are_merged() {
        let mut free = Free::default();
        free.put(0x1_0000, 0x4000);
        let taken: Vec<usize> = (0..4).map(|_| free.take(0x1000).expect("four of them")).collect();
        assert_eq!(free.take(0x1000), None);
        for at in [2, 0, 3, 1] {
            free.put(taken[at], 0x1000);
        }
        assert_eq!(free.pieces, BTreeMap::from([(0x1_0000, 0x4000)]));
        assert_eq!(free.sizes, BTreeSet::from([(0x4000, 0x1_0000)]));
    }

    #[test]
    fn memory_blocks_are_disjoint_and_zeroed_after_reuse() {
        let mapped = Mapped::default();
        let (mut one, mut two) = (mapped.allocate(64 << 10), mapped.allocate(4096));
        // SAFETY: blocks of this memory, each written through one reference at a time and not used
        // after its release.
        unsafe {
            one.as_mut().fill(1);
            two.as_mut().fill(2);
            assert!(one.as_ref().iter().all(|&byte| byte == 1));
            mapped.release(one);
            let again = mapped.allocate(64 << 10);
            assert_eq!(again, one, "the smallest piece that fits");
            assert_eq!((again.as_ref()[0], two.as_ref()[4095]), (0, 2));
            let mut large = mapped.allocate(SPAN_BYTES + 4096);
            large.as_mut()[SPAN_BYTES] = 3;
            mapped.release(again);
            mapped.release(two);
            mapped.release(large);
        }
    }
}
