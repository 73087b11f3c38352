//! Memory in use stays within 15% of the charges, by the rules of two allocators.
//!
//! A counting allocator adds up what each live block would take on mimalloc and on glibc, from their documented layouts,
//! so the result is the same on every machine. What allocators keep beside blocks (partly used pages) is not in it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_cache::{Access, Cache, NewItem, Options, Partition};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

/// Live bytes by the rules of each allocator.
struct Counting {
    mimalloc: AtomicU64,
    glibc: AtomicU64,
}

#[global_allocator]
static HEAP: Counting = Counting { mimalloc: AtomicU64::new(0), glibc: AtomicU64::new(0) };

// SAFETY: every call is passed on to the system's allocator unchanged; only counters are kept beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.mimalloc.fetch_add(mimalloc_block(layout.size() as u64), Relaxed);
        self.glibc.fetch_add(glibc_block(layout.size() as u64), Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.mimalloc.fetch_sub(mimalloc_block(layout.size() as u64), Relaxed);
        self.glibc.fetch_sub(glibc_block(layout.size() as u64), Relaxed);
        // SAFETY: the caller's promises about `block` and `layout` are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// mimalloc 2: words up to 8, in pairs; then four classes to each doubling; above 128 KiB whole slices of 64 KiB.
fn mimalloc_block(bytes: u64) -> u64 {
    match bytes {
        0..=8 => 8,
        9..=64 => bytes.next_multiple_of(16),
        65..=131_072 => bytes.next_multiple_of((bytes - 1).next_power_of_two().max(128) / 8),
        _ => bytes.next_multiple_of(65_536),
    }
}

/// glibc: a header of 8 bytes, multiples of 16, at least 32; from 128 KiB on a mapping of whole pages.
fn glibc_block(bytes: u64) -> u64 {
    match bytes {
        0..131_072 => (bytes + 8).next_multiple_of(16).max(32),
        _ => (bytes + 16).next_multiple_of(4096),
    }
}

fn heap() -> [u64; 2] {
    [HEAP.mimalloc.load(Relaxed), HEAP.glibc.load(Relaxed)]
}

/// What a cache of few shards takes beside its charges at the worst: open chunks and smallest index segments.
const FIXED: u64 = 64 << 10;
const PARTITION: PartitionId = PartitionId(0);

fn fill(cache: &Cache, value_bytes: usize, bytes: u64, before: [u64; 2]) {
    let access = Access::at(Instant::ZERO);
    let value = vec![0; value_bytes];
    let stores = bytes / sherwood_cache::charge(20, value_bytes) + 1;
    for number in 0..stores {
        let key = format!("key:{value_bytes:06}:{number:09}");
        cache.set(PARTITION, key.as_bytes(), NewItem::bytes(&value), &access).expect("it fits");
        if number % (stores / 20 + 1) == 0 {
            settle_and_check(cache, value_bytes, before);
        }
    }
    settle_and_check(cache, value_bytes, before);
}

fn settle_and_check(cache: &Cache, value_bytes: usize, before: [u64; 2]) {
    while cache.step(Instant::ZERO, 1000) {}
    let charged = cache.total().used_bytes;
    let bound = charged + charged * 15 / 100 + FIXED + value_bytes as u64;
    for (allocator, (now, before)) in ["mimalloc", "glibc"].into_iter().zip(heap().into_iter().zip(before)) {
        let used = now - before;
        assert!(used <= bound, "{allocator}: {used} bytes for {charged} charged, values of {value_bytes}");
    }
}

#[test]
fn memory_in_use_is_what_is_charged() {
    const TOTAL: u64 = 4 << 20;
    let partition = Partition { tenant: TenantId(0), backend: BackendId(0), budget_bytes: TOTAL };
    let options = Options { total_bytes: TOTAL, shards: 2, ..Options::default() };
    for value_bytes in [0, 12, 44, 100, 108, 236, 500, 1004, 1024, 5000, 40_000, 140_000, 1 << 20] {
        let before = heap();
        let cache = Cache::new(options, &[partition], SeededState::new(1)).expect("valid options");
        fill(&cache, value_bytes, 2 * TOTAL, before);
        // Other sizes take over: metadata of many small items must not stay behind.
        fill(&cache, 2000, 2 * TOTAL, before);
    }
}
