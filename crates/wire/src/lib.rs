//! Protocols as bytes in and bytes out: no socket, no clock, no buffer of their own.
//!
//! A codec that reads from a socket can only be tested through one, and hides when it waits. Here
//! the driver owns the bytes: it offers what it has, is told how much of that is used up and what
//! it means, and offers more. The same code then serves the daemon's listener, the load generator
//! and the connectors to other caches, and a test can cut the bytes wherever it likes.
//!
//! Built, both sides of each: the memcached text protocol ([`memcached`]), of its meta commands the
//! server's side only, and Redis's ([`resp`]).

pub mod memcached;
pub mod resp;
