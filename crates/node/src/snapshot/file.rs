//! The file: a header, then blocks, each with a length and checksums of its own.
//!
//! ```text
//! block    length u32 │ checksum of the payload u64 │ checksum of the twelve bytes before u64 │ payload
//! payload  of the first block: the header; of the others: part u8 │ records
//! ```
//! All numbers are little-endian. Part 0 has the warmest records; blocks of several parts may take
//! turns. A block is the unit of damage: what is before the first damaged one is good. Length and
//! payload have a checksum each, so that a damaged length is seen before it is believed.

use std::io::{self, Read, Seek, Write};

use serde::{Deserialize, Serialize};
use sherwood_model::SeededState;

/// What the first block's payload begins with, version included.
pub(super) const MAGIC: &[u8; 8] = b"SHRWD\0\0\x02";

/// What it begins with in every version.
pub(super) const FAMILY: &[u8] = MAGIC.split_at(MAGIC.len() - 1).0;

/// Bytes of a payload beyond which a block is ended. Chosen: small enough that damage costs little,
/// large enough that its head costs nothing.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Longest payload that is believed: a block, and the largest item that may have been the last in
/// it.
pub(super) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES + (192 << 20);

/// Bytes before a payload.
pub(super) const HEAD_BYTES: usize = 4 + 8 + 8;

/// Which snapshot it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// When it was written, milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// Of the backends' configuration.
    pub(super) fingerprint: u64,
    /// Names of the partitions, in the order in which records count them.
    pub(super) partitions: Vec<String>,
    /// Their budgets, bytes.
    pub(super) budgets: Vec<u64>,
    /// Until when a write of each backend may land whose outcome nobody knew, milliseconds since
    /// 1970; none or 0 where there is none.
    #[serde(default)]
    pub(super) unsettled_unix_ms: Vec<u64>,
}

/// Checks what was read; a seed of the format's own, so that equal bytes have equal checksums on
/// every machine.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    checksum_by(*MAGIC, bytes)
}

/// The checksum of the version that begins with `magic`.
pub(super) fn checksum_by(magic: [u8; 8], bytes: &[u8]) -> u64 {
    SeededState::new(u64::from_le_bytes(magic)).hash_bytes(bytes)
}

/// Whether a file whose first block is not sound was written by another version, whose checksums
/// are others.
pub(super) fn is_of_another_version(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let mut begin = [0; HEAD_BYTES + MAGIC.len()];
    file.rewind()?;
    fill(file, &mut begin)?;
    let (head, magic) = begin.split_at(HEAD_BYTES);
    let magic: [u8; 8] = magic.try_into().expect("as long as ours");
    let sum = checksum_by(magic, &head[..12]);
    Ok(magic.starts_with(FAMILY) && magic != *MAGIC && head[12..] == sum.to_le_bytes())
}

/// Writes a block.
pub(super) fn write_block(file: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("a block is too long"))?;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..12].copy_from_slice(&checksum(payload).to_le_bytes());
    let sum = checksum(&head[..12]);
    head[12..].copy_from_slice(&sum.to_le_bytes());
    file.write_all(&head)?;
    file.write_all(payload)
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A sound block of so many bytes is in the buffer.
    Block(usize),
    /// The file ends here, as it should.
    End,
    /// What is here is not what was written.
    Damaged,
}

/// Reads the next block's payload into `payload`.
///
/// # Errors
/// When the system cannot read; a file that ends too early is damaged and no error.
pub(super) fn read_block(file: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<Next> {
    let mut head = [0; HEAD_BYTES];
    match fill(file, &mut head)? {
        0 => return Ok(Next::End),
        HEAD_BYTES => {}
        _ => return Ok(Next::Damaged),
    }
    let number = |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    if number(12) != checksum(&head[..12]) || length > PAYLOAD_BYTES_MAX {
        return Ok(Next::Damaged);
    }
    payload.clear();
    // Grows with what is there, and not with what a length says.
    file.take(length as u64).read_to_end(payload)?;
    if payload.len() < length || number(4) != checksum(payload) {
        return Ok(Next::Damaged);
    }
    Ok(Next::Block(HEAD_BYTES + length))
}

/// Fills `bytes` as far as the file goes; how far that is.
pub(super) fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
