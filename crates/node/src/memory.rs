//! The cache's memory, mapped directly from the system.
//!
//! An allocator keeps freed memory for later use, which would defeat a budget that was lowered to
//! return memory. So the cache's blocks come from separate mappings. Memory that is released stays
//! *warm* for a moment: what is evicted to make room is used for what comes, without a system call
//! and without page faults. What has been warm for [`WARM`] to twice as long is returned to the
//! system by the housekeeper, in steps. The addresses stay mapped: address space is plentiful, and
//! only addresses in use are backed by memory.
//!
//! A block that no warm memory fits returns as much warm memory as it takes. So the process takes
//! no more memory than the blocks in use have taken at their most within that time.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sherwood_cache::Memory;
use sherwood_model::Instant;

/// Size of a mapping, bytes. Chosen: a thousand pages, so that mappings are few.
const SPAN_BYTES: usize = 64 << 20;
/// Time for which released memory stays warm, at least. It is returned before twice that time has
/// passed, and therefore within two seconds.
const WARM: Duration = Duration::from_millis(750);
/// Bytes returned to the system in one step. Chosen: less than a millisecond of the system's time,
/// so that the housekeeper returns some 2 GiB in a second.
const STEP_BYTES: usize = 4 << 20;

/// Allocates the cache's blocks from anonymous memory mappings.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    free: Mutex<Free>,
}

/// Mapped addresses that are not in use.
#[derive(Debug, Default)]
struct Free {
    /// Addresses without memory.
    cold: Pieces,
    /// Memory by the time of its release: since the last turn, between that and the turn before,
    /// and earlier. The latter is being returned.
    warm: [Pieces; 3],
    /// Time of the last turn, at which memory moved on in `warm`.
    turned: Instant,
}

/// Ranges of addresses that do not touch each other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pieces {
    /// Size of each piece, by its start address.
    sizes: BTreeMap<usize, usize>,
    /// The same pieces by size, then start, for a best-fit search.
    by_size: BTreeSet<(usize, usize)>,
}

// SAFETY: a block is a part of a mapping that is never unmapped; it is taken out of the free pieces
// when it is handed out and put back when it is released, so nothing else refers to it in between.
unsafe impl Memory for Mapped {
    fn allocate(&self, bytes: usize) -> NonNull<[u8]> {
        let mut free = self.free();
        let (start, surplus) = match free.take_warm(bytes) {
            Some(start) => (start, Vec::new()),
            None => (free.take_cold(bytes), free.take_for_return(bytes)),
        };
        drop(free);
        self.return_to_system(surplus);
        // Initialised, too: the system fills untouched and returned pages with zeros.
        let start = NonNull::new(ptr::with_exposed_provenance_mut(start)).expect("nothing is mapped at 0");
        NonNull::slice_from_raw_parts(start, bytes)
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        let (start, bytes) = (block.cast::<u8>().as_ptr(), block.len());
        self.free().warm[0].put(start.expose_provenance(), bytes);
    }
}

impl Mapped {
    /// Returns to the system some of the memory that has been free for long enough; true if some is
    /// left. At most [`STEP_BYTES`] in one call.
    pub(crate) fn step(&self, now: Instant) -> bool {
        let mut free = self.free();
        free.turn(now);
        let [_, _, old] = &mut free.warm;
        let pieces = old.take_pieces(STEP_BYTES);
        let more = !old.sizes.is_empty();
        drop(free);
        self.return_to_system(pieces);
        more
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory of pieces that were taken, and puts their addresses back. The lock is not
    /// held meanwhile.
    fn return_to_system(&self, pieces: Vec<(usize, usize)>) {
        for &(start, bytes) in &pieces {
            let start = ptr::with_exposed_provenance_mut::<libc::c_void>(start);
            // SAFETY: the range is part of a mapping and consists of whole system pages; it was
            // taken out of the free pieces, so that nothing refers to it. On failure the memory
            // stays in place, and the next owner of the addresses can still use it.
            unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
        }
        if !pieces.is_empty() {
            let mut free = self.free();
            pieces.into_iter().for_each(|(start, bytes)| free.cold.put(start, bytes));
        }
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
    /// Moves warm memory on, if a turn is due and what is to be returned has been.
    fn turn(&mut self, now: Instant) {
        let [young, middle, old] = &mut self.warm;
        if now >= self.turned + WARM && old.sizes.is_empty() {
            mem::swap(middle, old);
            mem::swap(young, middle);
            self.turned = now;
        }
    }

    /// Takes warm memory, the oldest that fits.
    fn take_warm(&mut self, bytes: usize) -> Option<usize> {
        self.warm.iter_mut().rev().find_map(|pieces| pieces.take(bytes))
    }

    /// Takes addresses without memory, from a new mapping if necessary.
    fn take_cold(&mut self, bytes: usize) -> usize {
        self.cold.take(bytes).unwrap_or_else(|| {
            let span = SPAN_BYTES.max(bytes);
            let start = map(span);
            if span > bytes {
                self.cold.put(start + bytes, span - bytes);
            }
            start
        })
    }

    /// Takes warm memory of up to `bytes` in pieces, the oldest first.
    fn take_for_return(&mut self, bytes: usize) -> Vec<(usize, usize)> {
        let mut taken = Vec::new();
        let mut left = bytes;
        for pieces in self.warm.iter_mut().rev() {
            let some = pieces.take_pieces(left);
            left -= some.iter().map(|(_, bytes)| bytes).sum::<usize>();
            taken.extend(some);
        }
        taken
    }
}

impl Pieces {
    /// Takes `bytes` out of the smallest piece that is large enough. O(log pieces).
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let &(size, start) = self.by_size.range((bytes, 0)..).next()?;
        self.remove(start, size);
        if size > bytes {
            self.insert(start + bytes, size - bytes);
        }
        Some(start)
    }

    /// Takes pieces of `bytes` in all, or all that there are; the last one in part.
    fn take_pieces(&mut self, bytes: usize) -> Vec<(usize, usize)> {
        let (mut taken, mut left) = (Vec::new(), bytes);
        while left > 0
            && let Some((&start, &size)) = self.sizes.first_key_value()
        {
            self.remove(start, size);
            let part = size.min(left);
            if part < size {
                self.insert(start + part, size - part);
            }
            taken.push((start, part));
            left -= part;
        }
        taken
    }

    /// Adds a piece and merges it with adjacent ones. O(log pieces).
    fn put(&mut self, start: usize, bytes: usize) {
        let (mut start, mut bytes) = (start, bytes);
        if let Some((&before, &size)) = self.sizes.range(..start).next_back()
            && before + size == start
        {
            self.remove(before, size);
            (start, bytes) = (before, size + bytes);
        }
        if let Some(&size) = self.sizes.get(&(start + bytes)) {
            self.remove(start + bytes, size);
            bytes += size;
        }
        self.insert(start, bytes);
    }

    fn insert(&mut self, start: usize, bytes: usize) {
        self.sizes.insert(start, bytes);
        self.by_size.insert((bytes, start));
    }

    fn remove(&mut self, start: usize, bytes: usize) {
        self.sizes.remove(&start);
        self.by_size.remove(&(bytes, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 64 << 10;

    #[test]
    fn adjacent_free_pieces_of_memory_are_merged() {
        let mut free = Pieces::default();
        free.put(0x1_0000, 0x4000);
        let taken: Vec<usize> = (0..4).map(|_| free.take(0x1000).expect("four of them")).collect();
        assert_eq!(free.take(0x1000), None);
        for at in [2, 0, 3, 1] {
            free.put(taken[at], 0x1000);
        }
        assert_eq!(free.sizes, BTreeMap::from([(0x1_0000, 0x4000)]));
        assert_eq!(free.take_pieces(0x1800), [(0x1_0000, 0x1800)]);
        assert_eq!(free.take_pieces(0x9000), [(0x1_1800, 0x2800)]);
    }

    #[test]
    fn memory_blocks_are_disjoint_and_keep_their_content_until_they_are_returned() {
        let mapped = Mapped::default();
        let (mut one, mut two) = (mapped.allocate(PAGE), mapped.allocate(4096));
        // SAFETY: blocks of this memory, each written through one reference at a time and not used
        // after its release.
        unsafe {
            one.as_mut().fill(1);
            two.as_mut().fill(2);
            mapped.release(one);
            let again = mapped.allocate(PAGE);
            assert_eq!(again, one, "the smallest piece that fits");
            assert_eq!((again.as_ref()[0], two.as_ref()[4095]), (1, 2));
            let mut large = mapped.allocate(SPAN_BYTES + 4096);
            large.as_mut()[SPAN_BYTES] = 3;
            mapped.release(again);
            mapped.release(two);
            mapped.release(large);
        }
    }

    #[test]
    fn released_memory_is_returned_after_it_was_warm_for_one_to_two_turns() {
        let mapped = Mapped::default();
        let at = |turns: u32| Instant::from_secs(5) + WARM * turns;
        assert!(!mapped.step(at(0)));
        let mut block = mapped.allocate(PAGE);
        // SAFETY: a block of this memory, written through one reference and then released.
        unsafe {
            block.as_mut().fill(1);
            mapped.release(block);
        }
        assert!(!mapped.step(at(1)));
        assert!(!mapped.step(at(2) - Duration::from_nanos(1)));
        assert_eq!(mapped.free().warm[1].take(PAGE), Some(block.cast::<u8>().addr().get()));
        mapped.free().warm[1].put(block.cast::<u8>().addr().get(), PAGE);
        assert!(!mapped.step(at(2)));
        assert!(mapped.free().warm.iter().all(|pieces| pieces.sizes.is_empty()));
        let again = mapped.allocate(PAGE);
        // SAFETY: a block of this memory, read through one reference.
        assert_eq!((again, unsafe { again.as_ref()[0] }), (block, 0), "returned pages are zero");
    }

    #[test]
    fn block_that_no_warm_memory_fits_returns_as_much_of_it() {
        let mapped = Mapped::default();
        let blocks = [(); 4].map(|()| mapped.allocate(PAGE));
        // SAFETY: blocks of this memory that are not used after their release.
        unsafe {
            mapped.release(blocks[0]);
            mapped.release(blocks[2]);
        }
        mapped.allocate(PAGE + 4096);
        let warm: usize = mapped.free().warm.iter().flat_map(|pieces| pieces.sizes.values()).sum();
        assert_eq!(warm, PAGE - 4096);
    }

    #[test]
    fn many_megabytes_are_returned_in_steps() {
        let mapped = Mapped::default();
        let block = mapped.allocate(3 * STEP_BYTES);
        // SAFETY: a block of this memory that is not used after its release.
        unsafe { mapped.release(block) };
        let at = |turns: u32| Instant::from_secs(5) + WARM * turns;
        assert!(!mapped.step(at(0)) && mapped.step(at(1)) && mapped.step(at(1)) && !mapped.step(at(1)));
    }
}
