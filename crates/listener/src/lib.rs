//! Listeners: existing clients use the cache as if it were memcached or Redis.
//!
//! Cache commands and their answers are small, so most of the cost is in system calls, wake-ups and
//! locks. Hence each thread has one socket and one event loop, and a connection stays on its
//! thread. Threads exchange only new connections, to balance their numbers. All commands that
//! arrive together are executed with one reading of the clock and answered with one write. What
//! remains is waiting for memory, so the keys of all commands are prefetched before the first one
//! is executed.
//!
//! ```text
//! socket 0 ─▶ sherwood-mc-0: accept ─▶ connection: recv ─▶ parse ─▶ session ─▶ send
//! socket 1 ─▶ sherwood-mc-1: …                                       │  ▲
//!                                                                    ▼  │ read-through only
//!                                                        cache     Backends::fetch
//! ```
//!
//! | file | content |
//! |---|---|
//! | `options` | options of a listener, and the bounds of a connection's buffers |
//! | `address`, `unix` | addresses to listen on; creation and removal of a UNIX socket's file |
//! | `routing`, `tenants` | routes from keys to partitions, for all clients or for those of a tenant |
//! | `protocols` | the table of protocols: names, servers, bounds of connections' buffers |
//! | `conversation` | the interface of a protocol: bytes in, bytes out, and the next step of the connection |
//! | `memcached` | memcached's text protocol as a conversation; `session`, `retrieval` and `meta` execute its commands, without I/O and clock |
//! | `binary` | memcached's binary protocol as a conversation, with its commands and its login |
//! | `negotiation` | a memcached client, whose first byte tells which of the two it speaks |
//! | `login` | login of a client of the text protocol if the listener requires a password |
//! | `redis` | the Redis protocol as a conversation |
//! | `foreign`, `foreign_clients` | clients that speak another protocol than the listener |
//! | `in_memory_client` | one client without a socket, for tests and fuzz targets |
//! | `connection` | a client: its socket, its buffers, its turn |
//! | `thread` | the event loop: turns, accepting, timeouts, draining; `slots` hold its clients |
//! | `work` | work that clients cause, and its bounds for turns, commands and transactions |
//! | `lent` | buffers of a thread, lent to its connections one at a time |
//! | `kept` | memory that a client has the listener keep between commands, within a budget |
//! | `batch` | input of clients that are ready together, read before the first is answered |
//! | `ahead` | prefetching of the keys of commands that have arrived |
//! | `network` | clients whose tenant's traffic is not paid for yet |
//! | `ended` | operations on keys that have ended in a client's turn, as `times` and `requests` need them |
//! | `times` | times of queries, of which those that the cache answers are sampled |
//! | `requests` | requests made of clients' batches |
//! | `thread_group`, `mailbox` | connections handed between threads, and wake-ups |
//! | `fetch` | fetches of the keys that a conversation needs from the backends |
//! | `through`, `store` | commands of write-through listeners that change values, and their writes |
//! | `sockets`, `system` | traits of the event loop's sockets, and their implementation on the system's |
//! | `round`, `ring` | input and output of clients that are served in one system call; the io_uring instance for it |
//! | `tls` | connections whose bytes are encrypted, over any sockets |
//! | `single` | the event loop on other sockets, for simulations |
//! | `server` | sockets and threads |
//! | `backends`, `clock`, `account`, `passwords`, `standing`, `idle` | traits that the process implements for its listeners; `idle` also decides when a thread does background work |
//!
//! A listener is *look-aside* (a miss is a miss, and the application fetches and stores) or,
//! backend by backend, *read-through* (a miss of `get`, `gets`, `gat`, `gats` or `mg`, or of
//! Redis's `GET` or `MGET`, is fetched from the backend; a failed fetch is answered as a miss and
//! counted, because `get` has no error for one key among several; a rejected one is an error where
//! the protocol has one for a single key). A *write-through* listener reads through as well, and
//! sends what its clients store and delete to the backend before it answers.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns sockets and threads"
)]

// The name by which tests that stand outside of the crate know it.
#[cfg(test)]
extern crate self as sherwood_listener;

mod account;
mod address;
mod ahead;
mod backends;
mod batch;
mod clock;
mod connection;
mod conversation;
mod counters;
mod ended;
#[cfg(test)]
#[path = "../tests/common/fake.rs"]
mod fake;
mod fetch;
mod foreign;
mod foreign_clients;
mod idle;
mod in_memory_client;
mod input;
mod kept;
mod lent;
mod mailbox;
mod memcached;
mod meter;
mod network;
mod options;
mod output;
mod passwords;
mod protocols;
mod redis;
mod requests;
mod ring;
mod round;
mod routing;
mod server;
mod shared;
mod single;
mod slots;
mod sockets;
mod standing;
mod store;
mod system;
mod tenants;
#[cfg(test)]
mod tests;
mod thread;
mod thread_group;
mod times;
mod tls;
mod unix;
mod work;

pub use account::{BufferBytes, FETCHED_COPIES};
pub use address::{Address, UnixSocket};
pub use backends::{
    Backends, FetchFailure, FetchResult, FetchedValue, KeySet, SharedTrust, StoreChange, StoreFailure,
};
pub use clock::{Clock, CpuTimes, ManualClock, Moment};
pub use counters::{Count, Counts};
pub use fetch::FETCH_KEYS_MAX;
pub use idle::BackgroundWork;
pub use in_memory_client::InMemoryClient;
pub use meter::{Meter, Reading};
pub use options::{DATABASES_MAX, Io, ListenerOptions, OptionsError};
pub use passwords::Passwords;
pub use protocols::Protocol;
pub use requests::{BatchCounting, BatchRequests, ClientBatches, KeyEnd};
pub use ring::rounds_available;
pub use routing::{Routing, RoutingError, Target};
pub use server::{BindError, Bound, Running};
pub use shared::{ConnectionLimit, Service};
pub use single::SingleThread;
pub use sockets::{Event, Outgoing, Peer, Receiving, Sending, Signal, Socket, Sockets};
pub use standing::{ResourceStanding, Standings, TenantStanding};
pub use tenants::UserRoutes;
pub use tls::{CONNECTION_BYTES_MAX as TLS_CONNECTION_BYTES_MAX, ServerTls};

/// The answer to `version`: the memcached that this listener was compared with, then Sherwood.
/// Clients take this number for memcached's: those that speak meta commands look for 1.6 and for
/// the versions that flags came with, and these answers are 1.6.45's; where they differ,
/// docs/src/memcached.md and tests/conformance/memcached/differs say so.
pub const VERSION: &str = concat!("1.6.45-sherwood-", env!("CARGO_PKG_VERSION"));
