//! memcached's binary protocol: the server side, and the part of the client side that the load
//! generator uses.
//!
//! | side | reads | writes |
//! |---|---|---|
//! | server | [`Parser`]: bytes to [`Request`]s | [`response`] |
//! | client | [`client::parse`]: bytes to [`client::Reply`] | [`client`]: one function per command |
//!
//! Requests and responses are frames: a header of [`HEADER_BYTES`], extras of a length that the
//! command determines, a key and a value. The first byte of a connection distinguishes this
//! protocol from the text protocol ([`is_binary`]).
//!
//! Nothing is copied, and memory is bounded: a frame is held if it is at most [`frame_bytes_max`]
//! long. Of a longer frame, only header, extras and key are held, and the rest is skipped as it
//! arrives. Statuses, their texts and the frames that close a connection are those of memcached
//! 1.6, with three corrections. The body of an unknown command is skipped by its exact length. A
//! frame with bytes after its last field is refused; memcached would read these bytes as the next
//! frame. And `verbosity` is accepted, which is part of the protocol's description but missing in
//! memcached.

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
/// Maximum length of the data of a SASL login in bytes: names and password together.
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
