//! Readers of recorded workloads.
//!
//! A recorded trace is the one input nobody can accuse of having been made to fit. Two formats are read: packed object
//! accesses of an application as recorded for cache2k ([`cache2k`]), and requests in the JSON lines of RobinHood's test
//! bed ([`robinhood`]). Readers take any `BufRead`, read forwards, and say at which line or byte a file goes wrong, a
//! file that ends too early included.

pub mod cache2k;
pub mod robinhood;

use std::io::BufRead;

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

/// The cache2k traces built in, packed, by name: `orm-busy` and `orm-night`, 5,000,000 accesses each.
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
