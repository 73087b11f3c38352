//! Protocols as bytes in and bytes out: no socket and no clock.
//!
//! A codec that reads from a socket can only be tested with one, and blocks invisibly. Here the
//! driver owns the bytes: it passes the bytes it has received, learns how many of them were
//! consumed and what they mean, and passes more. The same code serves the daemon's listener, the
//! load generator and the connectors to other caches, and a test can split the bytes at any place.
//!
//! [`foreign`] recognises clients of other protocols. Both sides of two protocols are implemented:
//! the memcached text protocol ([`memcached`]), with meta commands on the server's side only, and
//! Redis's ([`resp`]). The codecs have no buffer of their own; [`pipeline`] holds the buffers and
//! the requests in flight of a client's connection.

pub mod foreign;
pub mod memcached;
pub mod pipeline;
pub mod resp;
