//! Memory in use stays within 15% of the charges, and within the reserve for any sizes.
//!
//! A counting allocator sums the size of each live block by the documented layout of glibc's
//! allocator, so the result is the same on every machine. Items are stored in few large blocks, so
//! allocators hardly differ.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_cache::{Access, Cache, Eviction, NewItem, Options, Partition};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

/// An allocator that counts the bytes of live blocks.
struct Counting(AtomicU64);

#[global_allocator]
static HEAP: Counting = Counting(AtomicU64::new(0));

// SAFETY: every call is passed on to the system's allocator unchanged; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(block(layout.size() as u64), Relaxed);
        // SAFETY: the caller guarantees `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block_: *mut u8, layout: Layout) {
        self.0.fetch_sub(block(layout.size() as u64), Relaxed);
        // SAFETY: the caller guarantees `block_` and `layout`.
        unsafe { System.dealloc(block_, layout) }
    }
}

/// Size of a block of `bytes` in glibc's allocator: a header of 8 bytes, multiples of 16, at least
/// 32; from 128 KiB on a mapping of whole pages.
fn block(bytes: u64) -> u64 {
    match bytes {
        0..131_072 => (bytes + 8).next_multiple_of(16).max(32),
        _ => (bytes + 16).next_multiple_of(4096),
    }
}

fn heap() -> u64 {
    HEAP.0.load(Relaxed)
}

/// Largest fixed memory of a cache of one shard beside its charges: two pages for each of two
/// sizes, a spare one, and the smallest index segments.
const FIXED: u64 = 6 * (64 << 10);
const PARTITION: PartitionId = PartitionId(0);

fn fill(cache: &Cache, value_bytes: usize, bytes: u64, before: u64) {
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

fn settle_and_check(cache: &Cache, value_bytes: usize, before: u64) {
    while cache.step(Instant::ZERO, 1000) {}
    let charged = cache.total().used_bytes;
    let bound = charged + charged * 15 / 100 + FIXED + value_bytes as u64;
    let used = heap() - before;
    assert!(used <= bound, "{used} bytes for {charged} charged, values of {value_bytes}");
}

fn cache(total_bytes: u64, shards: u16, eviction: Eviction) -> Cache {
    let partition = Partition::new(TenantId(0), BackendId(0), total_bytes);
    let options = Options { total_bytes, shards, eviction, ..Options::default() };
    Cache::new(options, &[partition], SeededState::new(1)).expect("valid options")
}

/// Runs all cases in one test, since the counters are global to the process.
#[test]
fn memory_in_use_is_close_to_the_charges_of_the_items() {
    const TOTAL: u64 = 3 << 20;
    for eviction in [Eviction::Lru, Eviction::S3Fifo] {
        for value_bytes in [0, 12, 44, 100, 108, 236, 500, 1004, 1024, 5000, 40_000, 140_000, 1 << 20] {
            let before = heap();
            let cache = cache(TOTAL, 1, eviction);
            fill(&cache, value_bytes, 3 * TOTAL / 2, before);
            // Other sizes follow: memory of many small items must be released.
            fill(&cache, 2000, 3 * TOTAL / 2, before);
        }
    }
    changing_sizes_stay_within_the_reserve(Eviction::S3Fifo);
}

/// Checks that stores alone, without calls of `step`, keep the memory within the reserve.
fn changing_sizes_stay_within_the_reserve(eviction: Eviction) {
    const TOTAL: u64 = 48 << 20;
    let before = heap();
    let cache = cache(TOTAL, 16, eviction);
    let access = Access::at(Instant::ZERO);
    let value = vec![0; 900 << 10];
    let mut draw = 1_u64;
    for value_bytes in [16, 900 << 10, 700, 900 << 10] {
        let stores = TOTAL * 5 / 4 / sherwood_cache::charge(16, value_bytes);
        let names = TOTAL * 3 / 2 / sherwood_cache::charge(16, value_bytes);
        for _ in 0..stores {
            // Overwriting at random leaves free slots everywhere.
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("{:016}", (draw >> 33) % names);
            let expires = (value_bytes == 16).then(|| Instant::from_secs(1000));
            let item = NewItem { flags: 1, expires, ..NewItem::bytes(&value[..value_bytes]) };
            cache.set(PARTITION, key.as_bytes(), item, &access).expect("it fits");
        }
        let used = heap() - before;
        let bound = TOTAL + (32 << 20) + (2 << 20);
        assert!(used <= bound, "{used} bytes of at most {bound}, values of {value_bytes}");
    }
}
