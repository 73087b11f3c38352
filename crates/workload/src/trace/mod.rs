//! Readers of recorded workloads.
//!
//! A recorded trace is the one input nobody can accuse of having been made to fit. Four formats are
//! read: packed object accesses of an application as recorded for cache2k ([`cache2k`]), requests
//! in the JSON lines of RobinHood's test bed ([`robinhood`]), libCacheSim's binary records
//! ([`oracle_general`]) and the CSV of Twitter's cache clusters ([`twitter`]). [`objects`] reads
//! each of them as a stream of gets and stores of objects with sizes, for studies that need no
//! more; [`requests`] as requests to backends.
//!
//! Readers take any `BufRead`, read forwards, and say at which line or byte a file goes wrong, a
//! file that ends too early included. Packed input is unpacked where it is xz ([`unpacked`]).

pub mod cache2k;
pub mod objects;
pub mod oracle_general;
mod packed;
mod records;
pub mod requests;
pub mod robinhood;
pub mod twitter;

pub use packed::{Unpacked, unpacked};

use std::io::{BufRead, Read as _};

use thiserror::Error;

/// Why a trace could not be read. The iterator that returned it is at its end.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The reader failed; trying again may help.
    #[error("reading the trace at {at}: {source}")]
    Read {
        /// Byte offset or line.
        at: Position,
        /// What the reader said.
        source: std::io::Error,
    },
    /// The trace ends within a record: the file was cut off, or it is of another format.
    #[error("the trace ends within {expected} at {at}: the file is truncated, or of another format")]
    Truncated {
        /// Where the incomplete record begins.
        at: Position,
        /// What was being read.
        expected: &'static str,
    },
    /// The xz container is damaged or cut off.
    #[error("unpacking the trace: {detail}; check the file with `xz -t`")]
    Unpack {
        /// What the decoder said.
        detail: String,
    },
    /// Unpacked, the trace is larger than any trace this reader was made for.
    #[error("unpacking the trace: it is larger than {limit_bytes} bytes; unpack it to a file and give that")]
    TooLarge {
        /// The bound.
        limit_bytes: usize,
    },
    /// The trace is packed in a way that is not read here.
    #[error(
        "the trace is packed with {program}, but only xz is unpacked here: unpack it first, with `{program} -d`"
    )]
    Packed {
        /// What packed it.
        program: &'static str,
    },
    /// A record is not what the format says.
    #[error("the trace at {at} is not {expected}: {detail}")]
    Record {
        /// Where the record begins.
        at: Position,
        /// What was expected.
        expected: &'static str,
        /// What is wrong with it.
        detail: String,
    },
}

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Bytes from the (unpacked) start.
    Byte(u64),
    /// Line, from 1.
    Line(u64),
}

impl std::fmt::Display for Position {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Byte(offset) => write!(formatter, "byte {offset}"),
            Self::Line(line) => write!(formatter, "line {line}"),
        }
    }
}

/// The cache2k traces built in, packed, by name: `orm-busy` and `orm-night`, 5,000,000 accesses
/// each.
///
/// Copyright headissue GmbH, Jens Wilke, CC BY 4.0; see the data directory's README.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static [u8]> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|&(_, bytes)| bytes)
}

/// Names that [`built_in`] knows.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|&(name, _)| name)
}

const BUILT_IN: [(&str, &[u8]); 2] = [
    ("orm-busy", include_bytes!("../../data/cache2k/orm-busy.trace.xz")),
    ("orm-night", include_bytes!("../../data/cache2k/orm-night.trace.xz")),
];

/// Reads until `buffer` is full or the input ends; how many bytes there were.
fn fill(input: &mut impl BufRead, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads the next line, its end included, into `buffer`; false at the end of the input.
fn read_line(
    input: &mut impl BufRead,
    buffer: &mut Vec<u8>,
    at: Position,
    expected: &'static str,
    bytes_max: usize,
) -> Result<bool, TraceError> {
    buffer.clear();
    let mut bounded = input.take(bytes_max as u64 + 1);
    let read = bounded.read_until(b'\n', buffer).map_err(|source| TraceError::Read { at, source })?;
    if read > bytes_max {
        let detail = format!("the line is longer than {bytes_max} bytes");
        return Err(TraceError::Record { at, expected, detail });
    }
    Ok(read > 0)
}
