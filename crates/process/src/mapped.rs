//! The cache's memory, mapped directly from the system.
//!
//! An allocator keeps freed memory for later use, which would defeat a budget that was lowered to
//! return memory. So the cache's blocks come from separate mappings. Memory that is released stays
//! *warm* for a moment: what is evicted to make room is used for what comes, without a system call
//! and without page faults. After `WARM` to twice as long the housekeeper begins to return it to
//! the system, in steps: some GiB in a second. The addresses stay mapped: address space is
//! plentiful, and only addresses in use are backed by memory.
//!
//! For a block that no warm memory fits, as much warm memory as it takes is returned: by the
//! housekeeper, or by the allocating thread while more than `OWED_BYTES_MAX` are to be returned.
//! So blocks and warm memory together never take more than that, and what the blocks alone have
//! taken at their most since the warm memory was released. When the process is too large, its warm
//! memory goes first.

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
/// Time for which released memory stays warm, at least. The return of it begins before twice that
/// time has passed.
const WARM: Duration = Duration::from_millis(750);
/// Bytes that the housekeeper has yet to return for blocks that no warm memory fitted, at most.
/// Chosen: a tenth of the least slack of the process.
const OWED_BYTES_MAX: usize = 4 << 20;
/// Pieces taken under one hold of the lock to be returned to the system.
const PIECES_MAX: usize = 64;
/// Size of a system page on most machines, of which blocks are multiples, bytes.
const BLOCK_STEP: usize = 4096;

/// Allocates the cache's blocks from anonymous memory mappings.
#[derive(Debug)]
pub struct Mapped {
    free: Mutex<Free>,
    /// Size of a system page, bytes.
    page_bytes: usize,
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
    /// Bytes of warm memory to be returned for blocks that none of it fitted.
    owed: usize,
    /// Bytes of warm memory to be returned because the process is too large.
    excess: usize,
    /// Counts of the bytes that are not cold.
    counts: Counts,
}

/// Bytes of memory that the process may hold for blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of blocks in use.
    pub used: usize,
    /// Bytes of blocks in use, of warm memory, and of what is being returned to the system.
    pub backed: usize,
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
        let warm = free.take_warm(bytes);
        let start = warm.unwrap_or_else(|| free.take_cold(bytes));
        free.counts.used += bytes;
        let surplus = if warm.is_none() { free.owe(bytes) } else { 0 };
        drop(free);
        self.shed(surplus);
        // Initialised, too: the system fills untouched and returned pages with zeros.
        let start = NonNull::new(ptr::with_exposed_provenance_mut(start)).expect("nothing is mapped at 0");
        NonNull::slice_from_raw_parts(start, bytes)
    }

    unsafe fn release(&self, block: NonNull<[u8]>) {
        let (start, bytes) = (block.cast::<u8>().as_ptr(), block.len());
        let mut free = self.free();
        free.warm[0].put(start.expose_provenance(), bytes);
        free.counts.used -= bytes;
    }
}

impl Default for Mapped {
    fn default() -> Self {
        Self { free: Mutex::default(), page_bytes: rustix::param::page_size().max(BLOCK_STEP) }
    }
}

impl Mapped {
    /// Returns up to `bytes_max` bytes of memory to the system: of what is owed for new blocks, of
    /// the excess, and then of what has been free for long enough. True if some is left.
    pub fn step(&self, now: Instant, bytes_max: usize) -> bool {
        let mut free = self.free();
        free.turn(now);
        let owed = free.owed.min(bytes_max);
        let excess = free.excess.min(bytes_max - owed);
        free.owed -= owed;
        free.excess -= excess;
        drop(free);
        let bytes_max = bytes_max - self.shed(owed + excess);
        let mut free = self.free();
        let pieces = free.warm[2].take_largest(bytes_max, PIECES_MAX);
        let more = free.owed + free.excess > 0 || !free.warm[2].sizes.is_empty();
        drop(free);
        self.return_to_system(pieces);
        more
    }

    /// Has the next steps return up to `bytes` bytes of warm memory, in place of what an earlier
    /// call asked for. Returns how many there are. O(1).
    pub(crate) fn return_excess(&self, bytes: usize) -> usize {
        let mut free = self.free();
        free.excess = bytes.min(free.counts.backed - free.counts.used);
        free.excess
    }

    /// Returns up to `bytes_max` bytes of warm memory to the system, the oldest first; returns how
    /// many. In as few pieces as possible, at most one for each system page.
    fn shed(&self, bytes_max: usize) -> usize {
        let mut left = bytes_max;
        while left > 0 {
            let pieces = self.free().take_for_return(left);
            if pieces.is_empty() {
                break;
            }
            left -= pieces.iter().map(|(_, bytes)| bytes).sum::<usize>();
            self.return_to_system(pieces);
        }
        bytes_max - left
    }

    /// The bytes of blocks in use, and of all memory that is not known to be the system's. O(1).
    pub fn counts(&self) -> Counts {
        self.free().counts
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory of pieces that were taken, and puts their addresses back. The lock is not
    /// held meanwhile. Of a system page that is larger than a block, a part stays as it is.
    fn return_to_system(&self, pieces: Vec<(usize, usize)>) {
        for &(start, bytes) in &pieces {
            let (first, end) = (start.next_multiple_of(self.page_bytes), start + bytes);
            let whole = end.saturating_sub(first) / self.page_bytes * self.page_bytes;
            let first = ptr::with_exposed_provenance_mut::<libc::c_void>(first);
            // SAFETY: the range is part of a mapping and consists of whole system pages; it was
            // taken out of the free pieces, so that nothing refers to it. On failure the memory
            // stays in place, and the next owner of the addresses can still use it.
            unsafe { libc::madvise(first, whole, libc::MADV_DONTNEED) };
        }
        if !pieces.is_empty() {
            let mut free = self.free();
            for (start, bytes) in pieces {
                free.cold.put(start, bytes);
                free.counts.backed -= bytes;
            }
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

    /// Records that `bytes` of warm memory are to be returned, if there is as much, and returns the
    /// bytes that the caller has to return itself.
    fn owe(&mut self, bytes: usize) -> usize {
        let owed = (self.owed + bytes).min(self.counts.backed - self.counts.used);
        self.owed = owed.min(OWED_BYTES_MAX);
        owed - self.owed
    }

    /// Takes warm memory, the oldest that fits.
    fn take_warm(&mut self, bytes: usize) -> Option<usize> {
        self.warm.iter_mut().rev().find_map(|pieces| pieces.take(bytes))
    }

    /// Takes addresses without memory, from a new mapping if necessary.
    fn take_cold(&mut self, bytes: usize) -> usize {
        self.counts.backed += bytes;
        self.cold.take(bytes).unwrap_or_else(|| {
            let span = SPAN_BYTES.max(bytes);
            let start = map(span);
            if span > bytes {
                self.cold.put(start + bytes, span - bytes);
            }
            start
        })
    }

    /// Takes some warm memory of up to `bytes` in pieces, of the oldest that there is.
    fn take_for_return(&mut self, bytes: usize) -> Vec<(usize, usize)> {
        let oldest = self.warm.iter_mut().rev().find(|pieces| !pieces.sizes.is_empty());
        oldest.map_or_else(Vec::new, |pieces| pieces.take_largest(bytes, PIECES_MAX))
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

    /// Takes the largest pieces, at most `pieces_max` and of `bytes` in all; the last one in part.
    fn take_largest(&mut self, bytes: usize, pieces_max: usize) -> Vec<(usize, usize)> {
        let (mut taken, mut left) = (Vec::new(), bytes);
        while left > 0
            && taken.len() < pieces_max
            && let Some(&(size, start)) = self.by_size.last()
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
    use sherwood_model::SplitMix64;

    use super::*;

    const PAGE: usize = 64 << 10;

    impl Pieces {
        fn bytes(&self) -> usize {
            self.sizes.values().sum()
        }
    }

    impl Mapped {
        fn warm_bytes(&self) -> usize {
            self.free().warm.iter().map(Pieces::bytes).sum()
        }
    }

    /// Address of a block.
    fn start_of(block: NonNull<[u8]>) -> usize {
        block.cast::<u8>().addr().get()
    }

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
        free.put(0x2_0000, 0x1000);
        assert_eq!(free.take_largest(0x1800, 9), [(0x1_0000, 0x1800)]);
        assert_eq!(free.take_largest(0x9000, 1), [(0x1_1800, 0x2800)]);
        assert_eq!(free.take_largest(0x9000, 9), [(0x2_0000, 0x1000)]);
    }

    /// Writes a tag into each block in use, and checks after every step of 2,000 that all tags are
    /// there and that blocks and free pieces cover what was mapped, each address once.
    #[test]
    fn blocks_keep_their_content_and_no_address_is_lost_or_handed_out_twice() {
        let (mapped, mut random) = (Mapped::default(), SplitMix64::new(7));
        let mut draw = |bound: usize| random.next_u64() as usize % bound;
        let mut used: BTreeMap<usize, (NonNull<[u8]>, u8)> = BTreeMap::new();
        let mut now = Instant::from_secs(1);
        for tag in 0..2_000 {
            match draw(8) {
                0..=3 => {
                    let bytes = (1 + draw(40)) * BLOCK_STEP;
                    let mut block = mapped.allocate(bytes);
                    // SAFETY: a block in use, written through one reference.
                    unsafe { block.as_mut().fill(tag as u8) };
                    assert!(used.insert(start_of(block), (block, tag as u8)).is_none());
                }
                4 | 5 => {
                    let nth = draw(used.len().max(1));
                    if let Some(&start) = used.keys().nth(nth) {
                        let (block, _) = used.remove(&start).expect("it was found");
                        // SAFETY: a block in use that is not used afterwards.
                        unsafe { mapped.release(block) };
                    }
                }
                6 => {
                    now += WARM / 3;
                    mapped.step(now, draw(30) * BLOCK_STEP);
                }
                _ => {
                    let (warm, most) = (mapped.warm_bytes(), draw(60) * BLOCK_STEP);
                    assert_eq!(mapped.return_excess(most), most.min(warm));
                }
            }
            for (block, tag) in used.values() {
                // SAFETY: a block in use, read through one reference.
                let bytes = unsafe { block.as_ref() };
                assert!(bytes[0] == *tag && bytes[bytes.len() - 1] == *tag, "a block in use was returned");
            }
            let in_use: usize = used.values().map(|(block, _)| block.len()).sum();
            let counts = Counts { used: in_use, backed: in_use + mapped.warm_bytes() };
            assert_eq!(mapped.counts(), counts);
            let free = mapped.free();
            let pieces = free.warm.iter().chain([&free.cold]).flat_map(|pieces| &pieces.sizes);
            let mut ranges: Vec<_> = pieces.map(|(start, bytes)| (*start, *bytes)).collect();
            ranges.extend(used.values().map(|(block, _)| (start_of(*block), block.len())));
            ranges.sort_unstable();
            assert!(ranges.is_sorted_by(|(one, bytes), (next, _)| one + bytes <= *next), "a range twice");
            assert!(ranges.iter().map(|(_, bytes)| bytes).sum::<usize>().is_multiple_of(SPAN_BYTES));
        }
    }

    #[test]
    fn released_memory_is_used_again_and_returned_after_one_to_two_turns() {
        let mapped = Mapped::default();
        let at = |turns: u32| Instant::from_secs(5) + WARM * turns;
        assert!(!mapped.step(at(0), PAGE));
        let mut block = mapped.allocate(PAGE);
        // SAFETY: a block of this memory, used through one reference between its allocations and
        // releases.
        unsafe {
            block.as_mut().fill(1);
            mapped.release(block);
            assert_eq!((mapped.allocate(PAGE), block.as_ref()[0]), (block, 1), "the same memory");
            mapped.release(block);
        }
        assert!(!mapped.step(at(1), PAGE) && !mapped.step(at(2) - Duration::from_nanos(1), PAGE));
        assert_eq!(mapped.warm_bytes(), PAGE);
        assert!(!mapped.step(at(2), PAGE));
        assert_eq!(mapped.warm_bytes(), 0);
        // SAFETY: a block of this memory, read through one reference.
        assert_eq!((mapped.allocate(PAGE), unsafe { block.as_ref()[0] }), (block, 0), "zeros after a return");
    }

    #[test]
    fn excess_of_warm_memory_is_returned_in_steps_and_no_longer_than_it_exists() {
        let (mapped, now) = (Mapped::default(), Instant::from_secs(5));
        mapped.step(now, 0);
        let block = mapped.allocate(4 * PAGE);
        // SAFETY: a block of this memory that is not used after its release.
        unsafe { mapped.release(block) };
        assert_eq!(mapped.return_excess(3 * PAGE), 3 * PAGE);
        assert!(mapped.step(now, PAGE), "some is left");
        assert_eq!(mapped.warm_bytes(), 3 * PAGE);
        assert_eq!(mapped.return_excess(0), 0);
        assert!(!mapped.step(now, PAGE));
        assert_eq!(mapped.warm_bytes(), 3 * PAGE, "the process is small enough again");
        assert_eq!(mapped.return_excess(9 * PAGE), 3 * PAGE, "no more than there is");
        assert!(!mapped.step(now, 9 * PAGE));
        assert_eq!(mapped.warm_bytes(), 0);
    }

    #[test]
    fn as_much_warm_memory_is_returned_as_a_block_takes_that_none_of_it_fits() {
        let mapped = Mapped::default();
        let now = Instant::from_secs(5);
        mapped.step(now, 0);
        let blocks = [(); 4].map(|()| mapped.allocate(PAGE));
        // SAFETY: blocks of this memory that are not used after their release.
        unsafe {
            mapped.release(blocks[0]);
            mapped.release(blocks[2]);
        }
        mapped.allocate(PAGE + BLOCK_STEP);
        assert_eq!(mapped.warm_bytes(), 2 * PAGE, "the housekeeper does it");
        assert!(mapped.step(now, PAGE), "some is left");
        assert!(!mapped.step(now, PAGE));
        assert_eq!(mapped.warm_bytes(), PAGE - BLOCK_STEP);
        mapped.allocate(2 * PAGE);
        assert!(!mapped.step(now, 2 * PAGE), "no more is owed than there is");
        assert_eq!(mapped.warm_bytes(), 0);
    }

    #[test]
    fn thread_returns_warm_memory_itself_if_the_housekeeper_has_much_to_return() {
        let mapped = Mapped::default();
        let blocks = [(); 3].map(|()| mapped.allocate(OWED_BYTES_MAX));
        // SAFETY: blocks of this memory that are not used after their release.
        unsafe {
            mapped.release(blocks[0]);
            mapped.release(blocks[2]);
        }
        mapped.allocate(OWED_BYTES_MAX + PAGE);
        assert_eq!(mapped.warm_bytes(), 2 * OWED_BYTES_MAX - PAGE);
        mapped.allocate(OWED_BYTES_MAX + PAGE);
        assert_eq!(mapped.warm_bytes(), OWED_BYTES_MAX, "what was owed stays owed");
    }

    #[test]
    fn much_memory_is_returned_in_steps() {
        let mapped = Mapped::default();
        let block = mapped.allocate(3 * PAGE);
        // SAFETY: a block of this memory that is not used after its release.
        unsafe { mapped.release(block) };
        let step = |turns: u32| mapped.step(Instant::from_secs(5) + WARM * turns, PAGE);
        assert!(!step(0) && step(1) && step(1));
        assert_eq!(mapped.warm_bytes(), PAGE);
        assert!(!step(1));
    }
}
