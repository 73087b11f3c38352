//! Codings of a response's body (RFC 9110, 8.4, and RFC 9112, 7); pure.
//!
//! Requests ask for no coding. A service, or a proxy in front of it, may apply one nevertheless,
//! and the value is the decoded body. The size of a decoded body is bounded, so that a small
//! response cannot expand without limit.

use std::fmt;
use std::io::{self, Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::escape::user_text;

/// Maximum size of a decoded body in bytes.
const DECODED_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of decoded bytes for each byte of a body as received.
const EXPANSION_MAX: u64 = 1_000;

/// Maximum number of codings of one body.
const CODINGS_MAX: usize = 4;

/// Largest window (distance of back references) of a Zstandard frame, in bytes (RFC 9659).
const ZSTD_WINDOW_BYTES: u64 = 8 << 20;

/// Bytes that are decoded in one step.
const PIECE_BYTES: usize = 16 << 10;

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The coding called `name`, in any letter case.
    fn named(name: &str) -> Option<Self> {
        let known = [
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("deflate", Self::Deflate),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
        ];
        known.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, coding)| coding)
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        })
    }
}

/// The reason why a body cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undecodable {
    /// A coding is unknown, damaged or expands too much; the text names it.
    Coding(String),
    /// The decoded body is larger than the limit of its caller.
    TooLarge,
}

impl Undecodable {
    fn new(coding: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self::Coding(format!("content coding {coding}: {detail}"))
    }
}

/// Reads the codings of a body in the order in which they were applied: the content codings, then
/// the transfer codings, except for `chunked`, which the connection undoes. Allocates nothing if
/// there is no coding.
///
/// # Errors
/// A coding is unknown, or there are too many.
pub(super) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, Undecodable> {
    let mut codings = Vec::new();
    for header in [CONTENT_ENCODING, TRANSFER_ENCODING] {
        for line in headers.get_all(&header) {
            for name in line.as_bytes().split(|&byte| byte == b',') {
                let name = String::from_utf8_lossy(name.trim_ascii());
                let is_none = ["", "identity", "none"].iter().any(|none| name.eq_ignore_ascii_case(none));
                if is_none || (header == TRANSFER_ENCODING && name.eq_ignore_ascii_case("chunked")) {
                    continue;
                }
                let unknown = || {
                    let detail = "it is none of gzip, deflate, br and zstd";
                    Undecodable::new(format_args!("`{}`", user_text(&name)), detail)
                };
                let coding = Coding::named(&name).ok_or_else(unknown)?;
                if codings.len() == CODINGS_MAX {
                    let detail = format!("it follows {CODINGS_MAX} others, the most accepted");
                    return Err(Undecodable::new(coding, detail));
                }
                codings.push(coding);
            }
        }
    }
    Ok(codings)
}

/// Decodes a body to at most `bytes_max` bytes. A body of no bytes is empty in any coding.
///
/// # Errors
/// The body is damaged, or larger than its bounds.
pub(super) fn decode(codings: &[Coding], coded: &[u8], bytes_max: u64) -> Result<Vec<u8>, Undecodable> {
    if coded.is_empty() {
        return Ok(Vec::new());
    }
    let expanded_max = DECODED_BYTES_MAX.min(EXPANSION_MAX * coded.len() as u64);
    let mut body = None;
    // Each step has the same bounds: the body between two codings is held as well.
    for &coding in codings.iter().rev() {
        let coded = body.as_deref().unwrap_or(coded);
        let limit = expanded_max.min(bytes_max);
        let decoded = undo(coding, coded, limit).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge if limit == bytes_max => Undecodable::TooLarge,
            io::ErrorKind::FileTooLarge => Undecodable::new(
                coding,
                format_args!(
                    "it expands to more than {expanded_max} bytes; at most {EXPANSION_MAX} times its bytes, and {DECODED_BYTES_MAX}, are accepted"
                ),
            ),
            _ => Undecodable::new(coding, error),
        })?;
        body = Some(decoded);
    }
    Ok(body.unwrap_or_else(|| coded.to_vec()))
}

/// Decodes one coding. Fails with `FileTooLarge` if the result exceeds `limit` bytes.
fn undo(coding: Coding, coded: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut out = Output { bytes: Vec::new(), limit };
    match coding {
        Coding::Gzip => gzip(coded, &mut out)?,
        Coding::Deflate => deflate(coded, &mut out)?,
        Coding::Brotli => brotli(coded, &mut out)?,
        Coding::Zstd => zstd(coded, &mut out)?,
    }
    Ok(out.bytes)
}

/// Decoded bytes, and the largest number of them.
struct Output {
    bytes: Vec<u8>,
    limit: u64,
}

impl Output {
    fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        if (self.bytes.len() + piece.len()) as u64 > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Reads all that `decoder` decodes.
    fn read(&mut self, decoder: &mut impl Read) -> io::Result<()> {
        let mut piece = [0; PIECE_BYTES];
        loop {
            match decoder.read(&mut piece)? {
                0 => return Ok(()),
                read => self.push(&piece[..read])?,
            }
        }
    }
}

/// Fails if bytes, whose meaning is unknown, follow the end of a coded body.
fn ended(rest: &[u8]) -> io::Result<()> {
    match rest.len() {
        0 => Ok(()),
        bytes => Err(io::Error::other(format!("{bytes} bytes follow its end"))),
    }
}

/// Decodes gzip, which may consist of several consecutive members.
fn gzip(mut coded: &[u8], out: &mut Output) -> io::Result<()> {
    while !coded.is_empty() {
        let mut decoder = GzDecoder::new(coded);
        out.read(&mut decoder)?;
        coded = decoder.into_inner();
    }
    Ok(())
}

/// Decodes `deflate`: zlib's format (RFC 9110, 8.4.1.2), or the bare deflate format, which some
/// services send.
fn deflate(coded: &[u8], out: &mut Output) -> io::Result<()> {
    let is_zlib = matches!(coded, [method, flags, ..]
        if method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0);
    if is_zlib {
        let mut decoder = ZlibDecoder::new(coded);
        out.read(&mut decoder)?;
        ended(decoder.into_inner())
    } else {
        let mut decoder = DeflateDecoder::new(coded);
        out.read(&mut decoder)?;
        ended(decoder.into_inner())
    }
}

fn brotli(coded: &[u8], out: &mut Output) -> io::Result<()> {
    let allocator = StandardAlloc::default;
    let mut state = BrotliState::new_strict(allocator(), allocator(), allocator());
    let (mut left, mut offset, mut total) = (coded.len(), 0, 0);
    let mut piece = [0; PIECE_BYTES];
    loop {
        let (mut room, mut decoded) = (piece.len(), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut offset,
            coded,
            &mut room,
            &mut decoded,
            &mut piece,
            &mut total,
            &mut state,
        );
        out.push(&piece[..decoded])?;
        match result {
            BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultSuccess => return ended(&coded[offset..]),
            BrotliResult::NeedsMoreInput => return Err(io::ErrorKind::UnexpectedEof.into()),
            BrotliResult::ResultFailure => return Err(io::Error::other("it is damaged")),
        }
    }
}

/// Decodes Zstandard, which may consist of several consecutive frames, and skips frames without
/// content.
fn zstd(mut coded: &[u8], out: &mut Output) -> io::Result<()> {
    while !coded.is_empty() {
        let mut decoder = match StreamingDecoder::new_with_max_window_size(&mut coded, ZSTD_WINDOW_BYTES) {
            Ok(decoder) => decoder,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                coded = usize::try_from(length)
                    .ok()
                    .and_then(|length| coded.get(length..))
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                continue;
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        out.read(&mut decoder)?;
        has_its_checksum(&decoder.into_frame_decoder())?;
    }
    Ok(())
}

/// Checks a frame against its checksum, if it has one.
fn has_its_checksum(decoder: &FrameDecoder) -> io::Result<()> {
    let stated = decoder.get_checksum_from_data();
    if stated.is_some() && stated != decoder.get_calculated_checksum() {
        return Err(io::Error::other("its checksum differs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
