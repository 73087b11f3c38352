//! Object accesses as recorded for cache2k: one big-endian 32-bit word each, optionally packed with
//! xz.
//!
//! A word holds the object's type (bits 27-31), its id (bits 9-26) and an index within it (bits
//! 0-8), such as the third price of a product. Types serve as partitions: the ORM traces have about
//! 30, the busiest with half of all accesses. The web traces number their pages from 0 and use one
//! type. Id and index together identify the object within its type.
//!
//! An object's key is its partition, a slash and eight hexadecimal digits, such as `t07/0001a2b3`:
//! of fixed length, so that the charge in a cache depends only on the value, and prefixed, so that
//! one listener can route by partition.

use std::io::{BufRead, Write};

use super::packed::{Unpacked, unpacked};
use super::{Position, TraceError, fill};

/// An access of a cache2k trace: type and number of an object in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access(u32);

impl Access {
    /// Number of possible object types.
    pub const TYPES: usize = 32;
    /// Length of every key in bytes.
    pub const KEY_BYTES: usize = 12;

    /// Returns the access encoded by `word`; every word is valid.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// The object's type, 0 to 31.
    #[must_use]
    pub const fn object_type(self) -> u8 {
        (self.0 >> 27) as u8
    }

    /// The object within its type: id and index, 27 bits.
    #[must_use]
    pub const fn object(self) -> u32 {
        self.0 & 0x07FF_FFFF
    }

    /// Type and number of the object together, as recorded.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Appends the object's key, such as `t07/0001a2b3`.
    pub fn write_key(self, out: &mut Vec<u8>) {
        write!(out, "t{:02}/{:08x}", self.object_type(), self.object()).expect("a vector takes every write");
    }
}

/// Name of the partition of an object type, such as `t07`.
#[must_use]
pub fn partition_name(object_type: u8) -> String {
    format!("t{object_type:02}")
}

/// Iterator over the accesses of a trace, in order; it ends after an error.
#[derive(Debug)]
pub struct Accesses<R> {
    input: Unpacked<R>,
    offset: u64,
    ended: bool,
}

/// Starts reading `input`, which is unpacked first if it begins like an xz file (at most 1 GiB
/// unpacked, in memory).
///
/// # Errors
/// If reading fails, or the packed file is damaged, truncated or too large.
pub fn read<R: BufRead>(input: R) -> Result<Accesses<R>, TraceError> {
    Ok(Accesses { input: unpacked(input)?, offset: 0, ended: false })
}

impl<R> Accesses<R> {
    /// Start of the access that was read last.
    pub(super) const fn last_at(&self) -> Position {
        Position::Byte(self.offset.saturating_sub(4))
    }
}

impl<R: BufRead> Iterator for Accesses<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut word = [0; 4];
        let filled = fill(&mut self.input, &mut word);
        let at = Position::Byte(self.offset);
        self.offset += 4;
        self.ended = !matches!(filled, Ok(4));
        match filled {
            Ok(4) => Some(Ok(Access(u32::from_be_bytes(word)))),
            Ok(0) => None,
            Ok(_) => Some(Err(TraceError::Truncated { at, expected: "a 4-byte access" })),
            Err(source) => Some(Err(TraceError::Read { at, source })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{built_in, built_in_names};

    fn accesses(bytes: &[u8]) -> Vec<Access> {
        read(bytes).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn cache2k_word_is_decoded_into_type_object_and_key() {
        let word = 7 << 27 | 0x0001_A2B3;
        let access = accesses(&u32::to_be_bytes(word))[0];
        assert_eq!((access.object_type(), access.object()), (7, 0x0001_A2B3));
        let mut key = Vec::new();
        access.write_key(&mut key);
        assert_eq!((key.as_slice(), key.len()), (b"t07/0001a2b3".as_slice(), Access::KEY_BYTES));
        assert_eq!(partition_name(7), "t07");
    }

    #[test]
    fn built_in_trace_has_its_published_length_and_shape() {
        let accesses = accesses(built_in("orm-busy").unwrap());
        let mut of_type = [0; Access::TYPES];
        accesses.iter().for_each(|access| of_type[usize::from(access.object_type())] += 1);
        assert_eq!((accesses.len(), of_type[17], of_type[20]), (5_000_000, 2_397_766, 437_612));
        assert_eq!(of_type.iter().filter(|&&count| count > 0).count(), 30);
        assert!(built_in("orm").is_none());
        assert_eq!(built_in_names().collect::<Vec<_>>(), ["orm-busy", "orm-night"]);
    }

    #[test]
    fn web_trace_numbers_pages_from_zero_and_has_one_request_type() {
        let accesses = accesses(include_bytes!("../../data/cache2k/web07.trace.xz"));
        assert_eq!(accesses.len(), 76_118);
        assert_eq!(accesses.iter().map(|access| access.object()).max(), Some(20_483));
        assert!(accesses.iter().all(|access| access.object_type() == 0));
    }

    #[test]
    fn trace_truncated_within_a_word_is_an_error_and_ends() {
        let mut read = read(&[0, 0, 0, 1, 0, 0][..]).unwrap();
        assert!(read.next().unwrap().is_ok());
        let error = read.next().unwrap().unwrap_err().to_string();
        assert_eq!(
            error,
            "the trace ends within a 4-byte access at byte 4: the file is truncated, or of another format"
        );
        assert!(read.next().is_none());
    }

    #[test]
    fn truncated_or_damaged_packed_trace_is_refused() {
        let whole = include_bytes!("../../data/cache2k/web12.trace.xz");
        assert!(matches!(read(&whole[..whole.len() / 2]), Err(TraceError::Unpack { .. })));
        let mut damaged = whole.to_vec();
        damaged[whole.len() / 2] ^= 0xFF;
        assert!(matches!(read(&damaged[..]), Err(TraceError::Unpack { .. })));
    }

    #[test]
    fn empty_trace_has_no_accesses() {
        assert!(accesses(b"").is_empty());
    }
}
