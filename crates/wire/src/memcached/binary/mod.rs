//! memcached's binary protocol: the server's side, and the part of a client's that loads use.
//!
//! | side | reads | writes |
//! |---|---|---|
//! | server | [`Parser`]: bytes to [`Request`]s | [`response`] |
//! | client | [`client::parse`]: bytes to [`client::Reply`] | [`client`]: one function per command |
//!
//! Requests and responses are frames: a header of [`HEADER_BYTES`], extras of a length that the
//! command determines, a key and a value. The first byte of a connection tells this protocol from
//! the text protocol: [`is_binary`].
//!
//! Nothing is copied, and memory is bounded: a frame is held if it is at most [`frame_bytes_max`]
//! long. Of longer ones only header, extras and key are held, and the rest is skipped as it
//! arrives. Statuses, their texts and the frames that close a connection are those of memcached
//! 1.6, with three corrections. The body of an unknown command is skipped exactly. A frame with
//! bytes behind its last field is refused, instead of having them read as the next frame. And
//! `verbosity`, which the protocol's description has and memcached lacks, is accepted.

mod ahead;
pub mod client;
mod header;
mod opcode;
mod parser;
mod request;
pub mod response;
mod status;

pub use ahead::Ahead;
pub use header::HEADER_BYTES;
pub use parser::{Event, Parsed, Parser, frame_bytes_max};
pub use request::{Command, Echo, Request};
pub use status::Status;

/// Longest name of a SASL mechanism, in bytes, as in memcached.
pub const MECHANISM_BYTES_MAX: usize = 32;
/// Longest data of a SASL login in bytes: names and password together.
pub const LOGIN_BYTES_MAX: usize = 1024;

/// Returns true if a connection that begins with `bytes` speaks the binary protocol.
///
/// ```
/// use sherwood_wire::memcached::binary::is_binary;
/// assert!(is_binary(&[0x80, 0x0b]));
/// assert!(!is_binary(b"version\r\n") && !is_binary(b""));
/// ```
#[must_use]
pub const fn is_binary(bytes: &[u8]) -> bool {
    matches!(bytes, [header::REQUEST, ..])
}
