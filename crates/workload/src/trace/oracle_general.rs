//! Object accesses in libCacheSim's binary format "oracleGeneral": 24 bytes each, little endian,
//! without padding.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | time in seconds |
//! | 4-11 | the object |
//! | 12-15 | its size in bytes |
//! | 16-23 | when it is accessed next, as a number of accesses; -1 for never |
//!
//! The last field is for clairvoyant policies and is not used here. Published traces of this format
//! are packed with zstd and must be unpacked first.

use std::io::BufRead;

use super::{Position, TraceError, fill};

/// An access of an oracleGeneral trace: time, object and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time in seconds, from an arbitrary origin.
    pub time_s: u32,
    /// Number that identifies the object.
    pub object: u64,
    /// Size of the object in bytes.
    pub bytes: u32,
}

/// Iterator over the accesses of a trace, in order; it ends after an error.
#[derive(Debug)]
pub struct Accesses<R> {
    input: R,
    offset: u64,
    ended: bool,
}

const RECORD_BYTES: usize = 24;

/// Starts reading `input`.
#[must_use]
pub fn read<R: BufRead>(input: R) -> Accesses<R> {
    Accesses { input, offset: 0, ended: false }
}

impl<R> Accesses<R> {
    /// Start of the access that was read last.
    pub(super) const fn last_at(&self) -> Position {
        Position::Byte(self.offset.saturating_sub(RECORD_BYTES as u64))
    }
}

impl<R: BufRead> Iterator for Accesses<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut record = [0; RECORD_BYTES];
        let filled = fill(&mut self.input, &mut record);
        let at = Position::Byte(self.offset);
        self.offset += RECORD_BYTES as u64;
        self.ended = !matches!(filled, Ok(RECORD_BYTES));
        match filled {
            Ok(RECORD_BYTES) => Some(Ok(access(&record))),
            Ok(0) => None,
            Ok(_) => Some(Err(TraceError::Truncated { at, expected: "a 24-byte access" })),
            Err(source) => Some(Err(TraceError::Read { at, source })),
        }
    }
}

fn access(record: &[u8; RECORD_BYTES]) -> Access {
    let (time, rest) = record.split_first_chunk::<4>().expect("24 bytes");
    let (object, rest) = rest.split_first_chunk::<8>().expect("20 bytes");
    let (bytes, _) = rest.split_first_chunk::<4>().expect("12 bytes");
    Access {
        time_s: u32::from_le_bytes(*time),
        object: u64::from_le_bytes(*object),
        bytes: u32::from_le_bytes(*bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(access: Access) -> Vec<u8> {
        let Access { time_s, object, bytes } = access;
        let fields: [&[u8]; 4] =
            [&time_s.to_le_bytes(), &object.to_le_bytes(), &bytes.to_le_bytes(), &(-1_i64).to_le_bytes()];
        fields.concat()
    }

    #[test]
    fn oracle_general_records_are_read_in_order() {
        let accesses = [
            Access { time_s: 7, object: u64::MAX - 1, bytes: 20 },
            Access { time_s: 8, object: 1, bytes: 0 },
        ];
        let file = accesses.map(record).concat();
        assert_eq!(read(&file[..]).collect::<Result<Vec<_>, _>>().unwrap(), accesses);
        assert!(read(&b""[..]).next().is_none());
    }

    #[test]
    fn trace_truncated_within_a_record_is_an_error_and_ends() {
        let whole = record(Access { time_s: 0, object: 1, bytes: 2 });
        let file = [&whole[..], &whole[..23]].concat();
        let mut read = read(&file[..]);
        assert!(read.next().unwrap().is_ok());
        assert_eq!(
            read.next().unwrap().unwrap_err().to_string(),
            "the trace ends within a 24-byte access at byte 24: the file is truncated, or of another format"
        );
        assert!(read.next().is_none());
    }
}
