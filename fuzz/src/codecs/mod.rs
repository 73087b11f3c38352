//! The codecs: what holds for any bytes a peer sends.
//!
//! Promised by each, and checked by [`same_however_cut`](crate::stream::same_however_cut): no
//! panic; at most what was offered is used up, and something whenever something is said; never more
//! is asked for than the stated bound, nor than is needed; and the same is said however the bytes
//! are cut. What is understood can be written and is then understood as the same.

mod memcached_client;
mod memcached_server;
mod resp_client;
mod resp_server;

pub use memcached_client::memcached_client;
pub use memcached_server::memcached_server;
pub use resp_client::resp_client;
pub use resp_server::resp_server;

/// Every target with its name, which is also that of its folder below `fuzz/corpus`.
pub const TARGETS: [(&str, crate::stream::Target); 4] = [
    ("memcached_server", memcached_server),
    ("memcached_client", memcached_client),
    ("resp_server", resp_server),
    ("resp_client", resp_client),
];
