//! Packed (compressed) traces, detected by their first bytes.

use std::io::{BufRead, Chain, Cursor, Read, Write};

use super::{Position, TraceError, fill};

/// Input as it is, or unpacked if it was an xz file.
#[derive(Debug)]
pub struct Unpacked<R>(Source<R>);

#[derive(Debug)]
enum Source<R> {
    Plain(Whole<R>),
    Held(Cursor<Vec<u8>>),
}

/// An input preceded by the bytes that were taken from it for detection.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// Largest unpacked size, held in memory; the built-in traces take 20 MB. A larger trace must be
/// unpacked by the user.
const UNPACKED_BYTES_MAX: usize = 1 << 30;

/// First bytes of every xz file.
const XZ_MAGIC: &[u8] = b"\xFD7zXZ\0";
/// Formats that are refused rather than read as a trace: their first bytes and the program that
/// unpacks them.
const OTHERS: [(&[u8], &str); 2] = [(b"\x28\xB5\x2F\xFD", "zstd"), (b"\x1F\x8B\x08", "gzip")];

impl<R> Unpacked<R> {
    /// Returns the unpacked bytes, so that they can be read several times.
    ///
    /// # Errors
    /// The unchanged input, if it was not packed.
    pub fn into_held(self) -> Result<Vec<u8>, Self> {
        match self.0 {
            Source::Held(bytes) => Ok(bytes.into_inner()),
            Source::Plain(_) => Err(self),
        }
    }
}

/// Reads the beginning of `input` and unpacks it if it is an xz file (at most 1 GiB unpacked, in
/// memory).
///
/// # Errors
/// If reading fails, if the packed file is damaged, truncated or too large, or if it is packed in
/// another format.
pub fn unpacked<R: BufRead>(mut input: R) -> Result<Unpacked<R>, TraceError> {
    // A read from a pipe may return as little as one byte.
    let mut first = vec![0; XZ_MAGIC.len()];
    let filled = fill(&mut input, &mut first);
    first.truncate(filled.map_err(|source| TraceError::Read { at: Position::Byte(0), source })?);
    if let Some((_, program)) = OTHERS.iter().find(|(magic, _)| first.starts_with(magic)) {
        return Err(TraceError::Packed { program });
    }
    let packed = first == XZ_MAGIC;
    let whole = Cursor::new(first).chain(input);
    let source = if packed { Source::Held(Cursor::new(unpack(whole)?)) } else { Source::Plain(whole) };
    Ok(Unpacked(source))
}

fn unpack(mut input: impl BufRead) -> Result<Vec<u8>, TraceError> {
    let mut output = Bounded { bytes: Vec::new(), exceeded: false };
    let unpacked = lzma_rs::xz_decompress(&mut input, &mut output);
    match unpacked {
        _ if output.exceeded => Err(TraceError::TooLarge { limit_bytes: UNPACKED_BYTES_MAX }),
        Ok(()) => Ok(output.bytes),
        Err(error) => Err(TraceError::Unpack { detail: error.to_string() }),
    }
}

/// A vector that grows to at most [`UNPACKED_BYTES_MAX`].
struct Bounded {
    bytes: Vec<u8>,
    exceeded: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > UNPACKED_BYTES_MAX {
            self.exceeded = true;
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Source::Plain(input) => input.read(buffer),
            Source::Held(bytes) => bytes.read(buffer),
        }
    }
}

impl<R: BufRead> BufRead for Unpacked<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        match &mut self.0 {
            Source::Plain(input) => input.fill_buf(),
            Source::Held(bytes) => bytes.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match &mut self.0 {
            Source::Plain(input) => input.consume(bytes),
            Source::Held(held) => held.consume(bytes),
        }
    }
}
