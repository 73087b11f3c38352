//! Fuzz targets for the codecs: what holds for any bytes a peer sends.
//!
//! A parser that is fed by strangers must not be right only for the inputs somebody thought of. Each target is a function
//! that panics when a codec breaks a promise, and does not know who calls it. Two do: a test of `sherwood-wire` with a
//! fixed number of inputs from a fixed seed (`crates/wire/tests/fuzz`, part of `make test`), and libFuzzer, which looks at
//! the branches an input takes, for as long as one likes (`make fuzz`). So what one of them finds the other one replays.
//!
//! Promised by every codec, and checked by [`stream::same_however_cut`]: no panic; at most what was offered is used up, and
//! something whenever something is said; never more is asked for than the stated bound, nor than is needed; and the
//! same is said however the bytes are cut. What is understood can be written and is then understood as the same.

mod memcached_client;
mod memcached_server;
mod resp_client;
mod resp_server;
pub mod stream;

pub use memcached_client::memcached_client;
pub use memcached_server::memcached_server;
pub use resp_client::resp_client;
pub use resp_server::resp_server;

/// One target; its input is in the notation of [`stream::expanded`].
pub type Target = fn(&[u8]);

/// Every target with its name, which is also that of its folder below `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 4] = [
    ("memcached_server", memcached_server),
    ("memcached_client", memcached_client),
    ("resp_server", resp_server),
    ("resp_client", resp_client),
];
