//! Encoding of an item.
//!
//! ```text
//! partition u16 │ marks u8 │ graced u8 │ flags u32 │ expires u64 (ms since 1970, all ones for never) │ tags u64 │
//! key length u16 │ value length u32 │ key │ value
//! ```
//! A block has passed its checksum, but records are still parsed defensively: a program that can
//! write the file can write valid checksums.

use sherwood_cache::Marks;
use sherwood_model::Tags;

/// Encoded expiry of an item without one.
const NEVER: u64 = u64::MAX;

/// Length of the fields before key and value, bytes.
pub(super) const FIXED_BYTES: usize = 2 + 1 + 1 + 4 + 8 + 8 + 2 + 4;

/// An item of the cache, as a snapshot has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) partition: u16,
    pub(super) marks: Marks,
    /// True if the item is kept past its expiry for queries that accept stale values.
    pub(super) graced: bool,
    pub(super) flags: u32,
    /// Expiry of the item, milliseconds since 1970.
    pub(super) expires_unix_ms: Option<u64>,
    pub(super) tags: Tags,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Returns the item's marks that a snapshot saves, with the bit of each in the file.
fn kept() -> impl Iterator<Item = (u8, Marks)> {
    (0..7).map(|number| (1 << number, Marks::of_caller(number))).chain([(1 << 7, Marks::USED)])
}

impl<'a> Record<'a> {
    /// Appends the record to a block; returns false if the key or the value is too long.
    pub(super) fn put(&self, block: &mut Vec<u8>) -> bool {
        let Self { partition, marks, graced, flags, expires_unix_ms, tags, key, value } = *self;
        let (Ok(key_len), Ok(value_len)) = (u16::try_from(key.len()), u32::try_from(value.len())) else {
            return false;
        };
        let marks = kept().filter(|(_, mark)| marks.contains(*mark)).fold(0, |bits, (bit, _)| bits | bit);
        block.extend_from_slice(&partition.to_le_bytes());
        block.push(marks);
        block.push(graced.into());
        block.extend_from_slice(&flags.to_le_bytes());
        block.extend_from_slice(&expires_unix_ms.unwrap_or(NEVER).to_le_bytes());
        block.extend_from_slice(&tags.bits().to_le_bytes());
        block.extend_from_slice(&key_len.to_le_bytes());
        block.extend_from_slice(&value_len.to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        true
    }

    /// Takes the first record off a block; none if the data is invalid.
    pub(super) fn take(block: &mut &'a [u8]) -> Option<Self> {
        let (fixed, rest) = block.split_first_chunk::<FIXED_BYTES>()?;
        let u16_at = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let expires = u64_at(8);
        let (key, rest) = rest.split_at_checked(u16_at(24).into())?;
        let (value, rest) = rest.split_at_checked(u32_at(26) as usize)?;
        *block = rest;
        let set = kept().filter(|(bit, _)| fixed[2] & bit != 0);
        Some(Self {
            partition: u16_at(0),
            marks: set.fold(Marks::NONE, |marks, (_, mark)| marks.with(mark)),
            graced: fixed[3] != 0,
            flags: u32_at(4),
            expires_unix_ms: (expires != NEVER).then_some(expires),
            tags: Tags::from_bits(u64_at(16)),
            key,
            value,
        })
    }
}
