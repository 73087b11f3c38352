//! The memcached text protocol, both the server's and the client's side.
//!
//! | side | reads | writes |
//! |---|---|---|
//! | server | [`Parser`]: bytes to [`Command`]s | [`reply`] |
//! | client | [`client::parse`]: bytes to [`client::Reply`] | [`client`]: one function per command |
//!
//! Nothing is copied: keys, values and messages borrow from the caller's buffer. Memory is bounded:
//! a line is at most [`LINE_BYTES_MAX`] long, a key list of any length is returned in pieces of at
//! most [`KEYS_BYTES_MAX`], and a value over the limit is skipped as it arrives and never held.
//!
//! Texts and corner cases follow memcached 1.6. Where its versions differ, the newer one is
//! followed: the data block of a refused storage command is skipped if its length is known, so that
//! the value is not executed as commands. The length is unknown, and the next line is read as a
//! command, when the number of words is wrong or the length is not a number, negative or above 2
//! GiB. Meta commands are supported on the server's side only ([`Meta`]). Not supported:
//! `cache_memlimit`, `slabs`, `lru`, `watch` and `shutdown`, which are answered `ERROR`.
//!
//! [`binary`] is the binary protocol.

mod ahead;
mod base64;
pub mod binary;
pub mod client;
mod command;
mod exptime;
mod line;
mod meta;
mod parser;
pub mod reply;

pub use ahead::Ahead;
pub use command::{Command, Delta, Keys, Refusal, Retrieval, Storage, StorageVerb};
pub use exptime::{Expires, Exptime};
pub use meta::{
    ArithmeticMode, Meta, MetaFlag, MetaFlags, MetaKey, MetaOptions, MetaRefusal, MetaVerb, SetMode,
};
pub use parser::{Event, Limits, Parsed, Parser};

/// Longest key of memcached, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest command line in bytes, line end not counted, unless it lists keys to get: memcached's
/// own limit.
pub const LINE_BYTES_MAX: usize = 2048;
/// Longest piece of a key list that is returned at once, in bytes: a key list of this length or
/// less is one command. The size is that of memcached's read buffer, and holds 65 keys of the
/// greatest length.
pub const KEYS_BYTES_MAX: usize = 16 * 1024;
