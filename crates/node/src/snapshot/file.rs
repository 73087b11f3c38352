//! Snapshot file format: a header block, then data blocks, each with a length and its own
//! checksums.
//!
//! ```text
//! block    length u32 │ checksum of the payload u64 │ checksum of the twelve bytes before u64 │ payload
//! payload  of the first block: the header; of the others: part u8 │ records
//! ```
//! All numbers are little-endian. Part 0 has the warmest records; blocks of several parts may
//! alternate. Damage is detected per block: everything before the first damaged block is usable.
//! Length and payload have separate checksums, so that a damaged length is detected before it is
//! used.

use std::io::{self, Read, Seek, Write};

use serde::{Deserialize, Serialize};
use sherwood_model::SeededState;

/// Magic number at the start of the first block's payload, version included.
pub(super) const MAGIC: &[u8; 8] = b"SHRWD\0\0\x02";

/// Magic number without the version.
pub(super) const FAMILY: &[u8] = MAGIC.split_at(MAGIC.len() - 1).0;

/// Size of a payload at which a block ends, bytes. Chosen: small enough that damage costs little,
/// large enough that the overhead of its head is negligible.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Maximum length of a payload that is accepted: a block plus the largest item, which may have been
/// its last.
pub(super) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES + (192 << 20);

/// Length of a block's head, bytes.
pub(super) const HEAD_BYTES: usize = 4 + 8 + 8;

/// The header of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Time at which the snapshot was written, milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// Fingerprint of the backends' configuration.
    pub(super) fingerprint: u64,
    /// Names of the partitions, in the order of the records' partition numbers.
    pub(super) partitions: Vec<String>,
    /// Budgets of the partitions, bytes.
    pub(super) budgets: Vec<u64>,
    /// Per backend, time until which a write with unknown outcome may take effect, milliseconds
    /// since 1970; none or 0 without such a write.
    #[serde(default)]
    pub(super) unsettled_unix_ms: Vec<u64>,
}

/// Checksum of `bytes`, with the format's own seed, so that it is the same on every machine.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    checksum_by(*MAGIC, bytes)
}

/// Checksum in the version that begins with `magic`.
pub(super) fn checksum_by(magic: [u8; 8], bytes: &[u8]) -> u64 {
    SeededState::new(u64::from_le_bytes(magic)).hash_bytes(bytes)
}

/// Returns true if a file whose first block is damaged is a file of another version, which has
/// other checksums.
pub(super) fn is_of_another_version(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let mut begin = [0; HEAD_BYTES + MAGIC.len()];
    file.rewind()?;
    fill(file, &mut begin)?;
    let (head, magic) = begin.split_at(HEAD_BYTES);
    let magic: [u8; 8] = magic.try_into().expect("as long as ours");
    let sum = checksum_by(magic, &head[..12]);
    Ok(magic.starts_with(FAMILY) && magic != *MAGIC && head[12..] == sum.to_le_bytes())
}

/// Writes a block of the snapshot file.
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

/// The next block of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextBlock {
    /// An intact block of this length is in the buffer.
    Block(usize),
    /// The regular end of the file.
    End,
    /// The block's data is damaged.
    Damaged,
}

/// Reads the next block's payload into `payload`.
///
/// # Errors
/// Fails when the system cannot read; a truncated file is damaged and no error.
pub(super) fn read_block(file: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<NextBlock> {
    let mut head = [0; HEAD_BYTES];
    match fill(file, &mut head)? {
        0 => return Ok(NextBlock::End),
        HEAD_BYTES => {}
        _ => return Ok(NextBlock::Damaged),
    }
    let number = |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    if number(12) != checksum(&head[..12]) || length > PAYLOAD_BYTES_MAX {
        return Ok(NextBlock::Damaged);
    }
    payload.clear();
    // Allocates as data is read, not by the length, which may be damaged.
    file.take(length as u64).read_to_end(payload)?;
    if payload.len() < length || number(4) != checksum(payload) {
        return Ok(NextBlock::Damaged);
    }
    Ok(NextBlock::Block(HEAD_BYTES + length))
}

/// Fills `bytes` from the file and returns the number of bytes read.
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
