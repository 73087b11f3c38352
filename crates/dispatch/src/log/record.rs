//! Records of a log on disk, and the frames in which they are written.
//!
//! ```text
//! file   = frame ...
//! frame  = "SWL1" | CRC-32 of the rest | offset of the frame in its file | length | record ...
//! record = 1 | epoch | number | 0 or 1           a process begins
//!          2 | number | key | value              a put
//!          3 | number | key                      a deletion
//!          4 | number | 0 or 1                   an entry that takes no effect
//! ```
//!
//! Numbers and lengths have 64 bits, and checksums 32, in little-endian order; keys and values
//! follow their lengths. A frame is written after the one before is synced, so that only the last
//! one of a file may be incomplete. The offset tells a frame from one within a client's value.

use super::LogEntry;

const MAGIC: &[u8; 4] = b"SWL1";
const HEADER_BYTES: usize = 24;

/// A record of a log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord<K, E> {
    /// A process begins, or a file of the log.
    Begin {
        /// The number of the process.
        epoch: u64,
        /// The number of the entry before the next one.
        last: u64,
        /// False if the log does not go on from the entries before, which are not to be used.
        continues: bool,
    },
    /// An entry.
    Change(LogEntry<K, E>),
    /// An earlier entry takes no effect, since the only duplicate that could be read has refused
    /// it.
    Void {
        /// The number of the entry.
        number: u64,
        /// True if a duplicate may have made the change.
        may_be_made: bool,
    },
}

/// Appends a frame to `out`, to be written at this offset of its file. `value` returns the value
/// that a change stores, none if it deletes the key.
pub(super) fn encode_frame<K: AsRef<[u8]>, E>(
    out: &mut Vec<u8>,
    offset: u64,
    records: &[LogRecord<K, E>],
    value: impl Fn(&E) -> Option<&[u8]>,
) {
    let start = out.len();
    out.extend(MAGIC);
    out.extend([0; 4]);
    out.extend(offset.to_le_bytes());
    out.extend([0; 8]);
    for record in records {
        match record {
            LogRecord::Begin { epoch, last, continues } => {
                out.push(1);
                out.extend(epoch.to_le_bytes());
                out.extend(last.to_le_bytes());
                out.push((*continues).into());
            }
            LogRecord::Change(LogEntry { number, key, change }) => {
                let value = value(change);
                out.push(if value.is_some() { 2 } else { 3 });
                out.extend(number.to_le_bytes());
                for part in [Some(key.as_ref()), value].into_iter().flatten() {
                    out.extend((part.len() as u64).to_le_bytes());
                    out.extend(part);
                }
            }
            LogRecord::Void { number, may_be_made } => {
                out.push(4);
                out.extend(number.to_le_bytes());
                out.push((*may_be_made).into());
            }
        }
    }
    let length = (out.len() - start - HEADER_BYTES) as u64;
    out[start + 16..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Passes the records of a file to `take`, in their order, and returns the length of its complete
/// frames: less than that of the file if its last frame is torn, and all records of that are
/// missing.
///
/// # Errors
/// The offset of a frame that is damaged, and followed by others, or has records that cannot be
/// read or for which `take` returns false.
pub(super) fn read_frames(
    file: &[u8],
    mut take: impl FnMut(LogRecord<&[u8], Option<&[u8]>>) -> bool,
) -> Result<usize, usize> {
    let mut at = 0;
    while let Some(mut records) = frame_at(file, at) {
        let end = at + HEADER_BYTES + records.len();
        while !records.is_empty() {
            if !read_record(&mut records).is_some_and(&mut take) {
                return Err(at);
            }
        }
        at = end;
    }
    let is_torn = (at + 1..file.len()).all(|later| frame_at(file, later).is_none());
    if is_torn { Ok(at) } else { Err(at) }
}

/// Returns the records of the frame at an offset of a file, if there is a complete one.
fn frame_at(file: &[u8], at: usize) -> Option<&[u8]> {
    let mut rest = file.get(at..)?.strip_prefix(MAGIC)?;
    let checksum = u32::from_le_bytes(split(&mut rest, 4)?.try_into().ok()?);
    let checked = rest;
    let (offset, length) = (read_number(&mut rest)?, read_number(&mut rest)?);
    let records = split(&mut rest, length)?;
    let is_whole = offset == at as u64 && crc32fast::hash(&checked[..16 + records.len()]) == checksum;
    is_whole.then_some(records)
}

fn read_record<'a>(rest: &mut &'a [u8]) -> Option<LogRecord<&'a [u8], Option<&'a [u8]>>> {
    let kind = split(rest, 1)?[0];
    let number = read_number(rest)?;
    Some(match kind {
        1 => LogRecord::Begin { epoch: number, last: read_number(rest)?, continues: read_flag(rest)? },
        2 => {
            let (key, value) = (read_part(rest)?, read_part(rest)?);
            LogRecord::Change(LogEntry { number, key, change: Some(value) })
        }
        3 => LogRecord::Change(LogEntry { number, key: read_part(rest)?, change: None }),
        4 => LogRecord::Void { number, may_be_made: read_flag(rest)? },
        _ => return None,
    })
}

fn read_flag(rest: &mut &[u8]) -> Option<bool> {
    Some(split(rest, 1)?[0] != 0)
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(split(rest, 8)?.try_into().ok()?))
}

/// Reads a length, and bytes of that length.
fn read_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = read_number(rest)?;
    split(rest, length)
}

/// Takes the first `length` bytes.
fn split<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (first, others) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = others;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owned = LogRecord<Vec<u8>, Option<Vec<u8>>>;

    fn put(number: u64, value: Option<&[u8]>) -> Owned {
        LogRecord::Change(LogEntry { number, key: b"key".to_vec(), change: value.map(<[u8]>::to_vec) })
    }

    fn batches() -> Vec<Vec<Owned>> {
        vec![
            vec![LogRecord::Begin { epoch: u64::MAX, last: 6, continues: true }, put(7, Some(b"value"))],
            vec![put(8, None), put(9, Some(b""))],
            vec![LogRecord::Void { number: 8, may_be_made: true }, put(10, Some(&[b'x'; 300]))],
        ]
    }

    /// Returns a file of all batches, and the offsets at which their frames end.
    fn file() -> (Vec<u8>, Vec<usize>) {
        let (mut file, mut ends) = (Vec::new(), Vec::new());
        for batch in batches() {
            let offset = file.len() as u64;
            encode_frame(&mut file, offset, &batch, |value| value.as_deref());
            ends.push(file.len());
        }
        (file, ends)
    }

    fn read(file: &[u8]) -> (Result<usize, usize>, Vec<Owned>) {
        let mut records = Vec::new();
        let end = read_frames(file, |record| {
            records.push(match record {
                LogRecord::Begin { epoch, last, continues } => LogRecord::Begin { epoch, last, continues },
                LogRecord::Change(LogEntry { number, change, .. }) => put(number, change),
                LogRecord::Void { number, may_be_made } => LogRecord::Void { number, may_be_made },
            });
            true
        });
        (end, records)
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let (file, _) = file();
        assert_eq!(read(&file), (Ok(file.len()), batches().concat()));
        assert_eq!(read(&[]), (Ok(0), vec![]));
    }

    #[test]
    fn file_that_is_cut_or_zeroed_in_its_last_frame_ends_before_it() {
        let (file, ends) = file();
        for length in 0..file.len() {
            let whole = ends.iter().filter(|end| **end <= length).count();
            let end = whole.checked_sub(1).map_or(0, |last| ends[last]);
            let expected = (Ok(end), batches()[..whole].concat());
            assert_eq!(read(&file[..length]), expected, "cut to {length}");
            let mut zeroed = file.clone();
            zeroed[length.max(ends[1])..].fill(0);
            if zeroed != file {
                assert_eq!(read(&zeroed).0, Ok(ends[1]), "zeros from {length} on");
            }
        }
    }

    #[test]
    fn file_with_a_changed_byte_before_its_last_frame_is_damaged_there() {
        let (file, ends) = file();
        for at in 0..ends[1] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            let frame = if at < ends[0] { 0 } else { ends[0] };
            assert_eq!(read(&damaged).0, Err(frame), "byte {at}");
        }
    }

    #[test]
    fn records_that_are_unknown_or_refused_damage_a_file_even_in_its_last_frame() {
        let (file, ends) = file();
        assert_eq!(read_frames(&file, |_| false), Err(0));
        let mut unknown = file[..ends[0]].to_vec();
        unknown[HEADER_BYTES] = 9;
        let checksum = crc32fast::hash(&unknown[8..]);
        unknown[4..8].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(read(&unknown).0, Err(0));
    }

    #[test]
    fn torn_frame_whose_value_looks_like_a_frame_ends_the_file() {
        let (whole, ends) = file();
        let mut torn = whole[..ends[0]].to_vec();
        let offset = torn.len() as u64;
        encode_frame(&mut torn, offset, &[put(8, Some(&whole))], |value| value.as_deref());
        torn.pop();
        assert_eq!(read(&torn).0, Ok(ends[0]));
    }
}
