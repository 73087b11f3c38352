//! The charge of an item.
//!
//! A budget in bytes is meaningful to an operator only if it covers memory, not payload: a million
//! tiny items would otherwise take several times the configured size. An item is therefore charged
//! for its slot, its share of the index and of the record of dropped keys. The charge is a public
//! function of two sizes, so that a trace study or a simulator computes the same charges as the
//! engine.

use crate::memory::RUN_STEP;
use crate::shard::{HEADER_BYTES, SLOT_BYTES_MAX, slot_bytes};

/// Bytes charged for every item in addition to key and value: a header of 24 bytes (links, CAS,
/// lengths, partition, marks), and 12 for its share of the index (7.3 to 8.2), of the record of
/// dropped keys (1 to 2), and of pages.
pub const ITEM_OVERHEAD_BYTES: u64 = HEADER_BYTES as u64 + TABLES_BYTES;

/// Bytes charged per item for its share of the index and of the record of dropped keys.
const TABLES_BYTES: u64 = 12;

/// Bytes that an item with a key of `key_bytes` and a value of `value_bytes` is charged against its
/// partition's budget and against the total, whether the value is stored or declared.
///
/// The charge is 12 plus the slot that holds 24 bytes, key and value, rounded up: to 8 bytes up to
/// 256, to a sixteenth of the power of two below up to 1,024, and up to 8,192 to the largest
/// multiple of 8 of which as many fit into 64 KiB. Above that it is 12 plus a slot of 32 bytes,
/// plus key and value rounded up to 4,096. An expiry (8 bytes), flags other than 0 (4) and the
/// stamps of strict LRU (8) are not charged; they are covered by the reserve beside the total (see
/// the crate's documentation).
///
/// ```
/// use sherwood_cache::charge;
/// assert_eq!(charge(20, 100), 12 + 144);
/// assert_eq!(charge(20, 1024), 12 + 1072);
/// assert_eq!(charge(20, 10_000), 12 + 32 + 12_288);
/// assert_eq!(charge(0, 0), 36);
/// ```
#[must_use]
pub const fn charge(key_bytes: usize, value_bytes: usize) -> u64 {
    let body = key_bytes + value_bytes;
    let slot = match HEADER_BYTES + body {
        bytes @ ..=SLOT_BYTES_MAX => slot_bytes(bytes),
        _ => RUN_SLOT_BYTES + body.next_multiple_of(RUN_STEP),
    };
    TABLES_BYTES + slot as u64
}

/// Slot bytes of an item that is too large for a slot: its key and value are in a run of whole
/// system pages.
const RUN_SLOT_BYTES: usize = HEADER_BYTES + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_rounds_key_and_value_up_to_a_size_class() {
        for (bytes, slot) in [(0, 24), (1, 32), (232, 256), (233, 272), (488, 512), (489, 544), (1000, 1024)]
        {
            assert_eq!(charge(0, bytes), 12 + slot, "{bytes} bytes");
        }
        // 63, 31 and 15 of these fit into a page.
        assert_eq!((charge(0, 1001), charge(0, 2025), charge(20, 4096)), (12 + 1040, 12 + 2112, 12 + 4368));
        assert_eq!((charge(0, 8168), charge(0, 8169)), (12 + 8192, 12 + 32 + 12_288 - 4096));
        assert_eq!(charge(20, 1 << 20), 12 + 32 + (1 << 20) + 4096);
    }

    #[test]
    fn larger_item_is_never_charged_less() {
        let mut last = 0;
        for bytes in 0..300_000 {
            let now = charge(0, bytes);
            assert!(now >= last && now - ITEM_OVERHEAD_BYTES >= bytes as u64, "{bytes} bytes");
            last = now;
        }
    }
}
