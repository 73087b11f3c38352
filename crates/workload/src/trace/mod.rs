//! Readers of recorded workloads.
//!
//! Four formats are read: packed object accesses of an application as recorded for cache2k
//! ([`cache2k`]), requests in the JSON lines of RobinHood's test bed ([`robinhood`]), libCacheSim's
//! binary records ([`oracle_general`]) and the CSV of Twitter's cache clusters ([`twitter`]).
//! [`objects`] reads each of them as a stream of gets and stores of objects with sizes, for studies
//! of hit ratios; [`requests`] reads each as requests to backends.
//!
//! Readers take any `BufRead`, read forwards, and report the line or byte of an error, including a
//! premature end of the file. Input packed with xz is unpacked ([`unpacked`]).

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

/// Reason why a trace could not be read. The iterator that returned it has ended.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The reader failed; a retry may succeed.
    #[error("reading the trace at {at}: {source}")]
    Read {
        /// Byte offset or line at which the reader failed.
        at: Position,
        /// Error of the reader.
        source: std::io::Error,
    },
    /// The trace ends within a record: the file is truncated or of another format.
    #[error("the trace ends within {expected} at {at}: the file is truncated, or of another format")]
    Truncated {
        /// Start of the incomplete record.
        at: Position,
        /// Description of the record that was expected.
        expected: &'static str,
    },
    /// The xz container that holds the trace is damaged or truncated.
    #[error("unpacking the trace: {detail}; check the file with `xz -t`")]
    Unpack {
        /// Message of the xz decoder.
        detail: String,
    },
    /// The unpacked trace is above the size limit.
    #[error("unpacking the trace: it is larger than {limit_bytes} bytes; unpack it to a file and give that")]
    TooLarge {
        /// Largest accepted size of an unpacked trace, in bytes.
        limit_bytes: usize,
    },
    /// The trace is packed in a format that is not supported.
    #[error(
        "the trace is packed with {program}, but only xz is unpacked here: unpack it first, with `{program} -d`"
    )]
    Packed {
        /// Name of the program that packed the trace.
        program: &'static str,
    },
    /// A record is malformed.
    #[error("the trace at {at} is not {expected}: {detail}")]
    Record {
        /// Start of the record.
        at: Position,
        /// Description of the expected record.
        expected: &'static str,
        /// Description of the error in the record.
        detail: String,
    },
}

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Number of bytes from the start of the unpacked trace.
    Byte(u64),
    /// Number of the line, from 1.
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

/// The built-in cache2k traces, packed, by name: `orm-busy` and `orm-night`, 5,000,000 accesses
/// each.
///
/// Copyright headissue GmbH, Jens Wilke, CC BY 4.0; see the data directory's README.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static [u8]> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|&(_, bytes)| bytes)
}

/// Names that [`built_in`] accepts.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|&(name, _)| name)
}

const BUILT_IN: [(&str, &[u8]); 2] = [
    ("orm-busy", include_bytes!("../../data/cache2k/orm-busy.trace.xz")),
    ("orm-night", include_bytes!("../../data/cache2k/orm-night.trace.xz")),
];

/// Reads until `buffer` is full or the input ends; returns the number of bytes read.
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

/// The byte order mark that some editors put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the next line, including its end, into `buffer`; false at the end of the input. A byte
/// order mark before the first line is skipped.
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
    if at == Position::Line(1) && buffer.starts_with(BYTE_ORDER_MARK) {
        buffer.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(read > 0)
}
