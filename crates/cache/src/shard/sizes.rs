//! Sizes of slots.
//!
//! A page is divided into slots of one size, so that any item of the class fits into a freed slot.
//! Steps are 8 bytes up to 256, a sixteenth of the power of two below up to 1 KiB, and above that
//! sizes that divide a page: rounding takes 3% on average and at most a seventh. Items above
//! [`SLOT_BYTES_MAX`] take a run of whole system pages instead.

/// Bytes of a page of slots. Chosen: a rarely used class wastes at most one page, and releasing a
/// page is worth a system call.
pub(crate) const PAGE_BYTES: usize = 64 << 10;
/// The largest slot, an eighth of a page.
pub(crate) const SLOT_BYTES_MAX: usize = PAGE_BYTES / 8;
/// Bytes of every record before its optional fields and key.
pub(crate) const HEADER_BYTES: usize = 24;

/// Number of a size class.
pub(crate) type Class = u8;

/// Bytes of the smallest slot for `bytes`, which are at most [`SLOT_BYTES_MAX`].
pub(crate) const fn slot_bytes(bytes: usize) -> usize {
    match bytes {
        0..=HEADER_BYTES => HEADER_BYTES,
        25..=256 => bytes.next_multiple_of(8),
        257..=1024 => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 4)),
        _ => {
            let slots = PAGE_BYTES / bytes;
            let slot = PAGE_BYTES / slots / 8 * 8;
            // Rounding down to a multiple of 8 may have made it too small for the last few bytes.
            if slot >= bytes { slot } else { PAGE_BYTES / (slots - 1) / 8 * 8 }
        }
    }
}

/// The class of a record of `bytes`, at most [`SLOT_BYTES_MAX`].
pub(super) fn class_of(bytes: usize) -> Class {
    TABLES_AT_RUN_TIME.classes[bytes.div_ceil(8)]
}

/// Bytes of a slot of `class`.
pub(super) fn class_bytes(class: Class) -> usize {
    usize::from(TABLES_AT_RUN_TIME.bytes[usize::from(class)])
}

/// Number of size classes.
pub(super) const CLASSES: usize = TABLES.count;

struct Tables {
    /// Size class by a record's bytes, in steps of 8.
    classes: [Class; SLOT_BYTES_MAX / 8 + 1],
    bytes: [u16; 256],
    count: usize,
}

static TABLES_AT_RUN_TIME: Tables = TABLES;
const TABLES: Tables = Tables::new();

impl Tables {
    const fn new() -> Self {
        let mut tables = Self { classes: [0; SLOT_BYTES_MAX / 8 + 1], bytes: [0; 256], count: 0 };
        let mut step = 0;
        while step < tables.classes.len() {
            let bytes = slot_bytes(step * 8) as u16;
            if tables.count == 0 || tables.bytes[tables.count - 1] != bytes {
                tables.bytes[tables.count] = bytes;
                tables.count += 1;
            }
            tables.classes[step] = (tables.count - 1) as Class;
            step += 1;
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_their_record_and_waste_at_most_a_seventh() {
        let mut last = 0;
        for bytes in 1..=SLOT_BYTES_MAX {
            let slot = slot_bytes(bytes);
            assert_eq!(class_bytes(class_of(bytes)), slot, "{bytes} bytes");
            assert!(slot >= bytes && slot >= last && slot.is_multiple_of(8), "{bytes} bytes in {slot}");
            assert!(bytes <= 128 || slot <= bytes + bytes / 7 + 8, "{bytes} bytes in {slot}");
            last = slot;
        }
        assert_eq!(last, SLOT_BYTES_MAX);
    }
}
