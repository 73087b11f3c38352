//! What an item costs.
//!
//! A budget in bytes means something to an operator only if it is memory, not payload: a million tiny items would
//! otherwise take several times what was configured. So an item is charged for its entry, its share of the index and
//! the block its key and value take from the allocator, and the charge is one public function of two sizes, so that a
//! trace study or a simulator counts exactly as the engine does.

/// Bytes charged for every item beside its key and value: an entry of 64 bytes (one cache line: links, recency, expiry,
/// CAS, flags) and 16 for its share of the index (at most 11.4, just after a table has doubled) and of the slack in
/// arena and allocator.
pub const ITEM_OVERHEAD_BYTES: u64 = 80;

/// Bytes an item with a key of `key_bytes` and a value of `value_bytes` is charged against its partition's budget and
/// against the total, whether the value is stored or only declared.
///
/// [`ITEM_OVERHEAD_BYTES`] plus the block that holds key and value together, rounded as a size-class allocator does
/// (mimalloc's classes): to 16 bytes up to 64, then to a quarter of the power of two below, above 128 KiB to the slices
/// of 64 KiB that it hands out whole. Blocks in use stay within 15% of the charges on mimalloc and on glibc, whose
/// header of 8 bytes fits in what remains; `tests/heap.rs` adds it up.
///
/// ```
/// use sherwood_cache::charge;
/// assert_eq!(charge(20, 100), 80 + 128);
/// assert_eq!(charge(20, 1024), 80 + 1280);
/// assert_eq!(charge(0, 0), 80);
/// ```
#[must_use]
pub const fn charge(key_bytes: usize, value_bytes: usize) -> u64 {
    ITEM_OVERHEAD_BYTES + block_bytes(key_bytes as u64 + value_bytes as u64)
}

/// The size of the allocator's block for a request of `bytes`.
const fn block_bytes(bytes: u64) -> u64 {
    let step = match bytes {
        0..=64 => 16,
        // The power of two below, by its exponent; a power of two itself belongs to the classes under it.
        65..=LARGE_BYTES => 1 << ((bytes - 1).ilog2() - 2),
        _ => SLICE_BYTES,
    };
    bytes.next_multiple_of(step)
}

/// Above this a block takes whole slices.
const LARGE_BYTES: u64 = 128 * 1024;
/// A slice of mimalloc's. What of the last one is not written to takes no memory at first, but slices are handed on with
/// what was written to them before, so under churn it does.
const SLICE_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_size_classes() {
        for (bytes, block) in [
            (0, 0),
            (1, 16),
            (64, 64),
            (65, 80),
            (128, 128),
            (129, 160),
            (1024, 1024),
            (1025, 1280),
            (131_072, 131_072),
        ] {
            assert_eq!(block_bytes(bytes), block, "{bytes} bytes");
        }
        assert_eq!(block_bytes(1 << 20), 1 << 20);
        assert_eq!(block_bytes(131_073), 196_608);
        assert_eq!(block_bytes((1 << 20) + 1), (1 << 20) + 65_536);
    }

    #[test]
    fn a_larger_item_is_never_charged_less() {
        let mut last = 0;
        for bytes in 0..300_000 {
            let now = charge(0, bytes);
            assert!(now >= last && now - ITEM_OVERHEAD_BYTES >= bytes as u64, "{bytes} bytes");
            last = now;
        }
    }
}
