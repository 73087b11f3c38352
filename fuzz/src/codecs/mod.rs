//! Targets for the codecs: properties that hold for any bytes from a peer.
//!
//! Each is checked by [`same_however_cut`](crate::stream::same_however_cut): the codec does not
//! panic. It consumes at most the bytes offered, and at least one for each result. It never asks
//! for more than its stated bound, nor for more than it needs. Results do not depend on how the
//! bytes are cut into pieces. A parsed message can be written, and is then parsed as the same
//! message.

mod memcached_binary;
mod memcached_client;
mod memcached_server;
mod resp_client;
mod resp_server;

pub use memcached_binary::memcached_binary;
pub use memcached_client::memcached_client;
pub use memcached_server::memcached_server;
pub use resp_client::resp_client;
pub use resp_server::resp_server;

/// Every fuzz target for a codec with its name, which is also the name of its folder below
/// `fuzz/corpus`.
pub const TARGETS: [(&str, crate::stream::Target); 5] = [
    ("memcached_server", memcached_server),
    ("memcached_client", memcached_client),
    ("memcached_binary", memcached_binary),
    ("resp_server", resp_server),
    ("resp_client", resp_client),
];
