//! RESP, the protocol of Redis, both the server's and the client's side.
//!
//! | side | reads | writes |
//! |---|---|---|
//! | server | [`Parser`]: bytes to [`Args`] | [`reply`] |
//! | client | [`client::parse`]: bytes to [`client::Reply`] | [`client`]: one function per command |
//!
//! A request is a list of byte strings. The protocol does not define their meaning, so there is no
//! type for commands here. Requests are the same in both versions of the protocol, replies differ:
//! a connection starts with [`Version::Resp2`] and may change.
//!
//! Nothing is copied except the words of an inline request, which may be quoted. Memory is bounded:
//! a request is held until it is complete, [`Limits`] bounds its bytes, and a request over the
//! limit is skipped as it arrives and never held.
//!
//! Texts and corner cases follow Redis 7.0. Two differences: a request of more than
//! [`ARGUMENTS_MAX`] arguments is refused (Redis's limit up to 6.2; later ones allow 2³¹), and an
//! argument between the configured limit and [`BULK_BYTES_MAX`] is skipped and reported instead of
//! closing the connection, so that one large value does not break a pipeline.

mod ahead;
mod args;
pub mod client;
mod inline;
mod integer;
mod kept;
mod parser;
pub mod reply;

pub use ahead::Ahead;
pub use args::{Args, Iter, OwnedRequest};
pub use integer::integer;
pub use kept::KeptRequests;
pub use parser::{Event, Limits, Parsed, Parser, ProtocolError};
pub use reply::Version;

/// Most arguments of a request, the command's name included.
pub const ARGUMENTS_MAX: u32 = 1024 * 1024;
/// Greatest announced length of an argument, in bytes; one over the configured limit is skipped.
/// The bound is Redis's default.
pub const BULK_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Longest inline request and longest line that announces a length, in bytes, line end not counted:
/// Redis's limit.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
