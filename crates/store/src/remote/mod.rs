//! Connectors: stores whose work is done by a server elsewhere.
//!
//! Each speaks one protocol to one server and owns its connections: they are bounded, made when a call needs one, and given up
//! when they break. That is all. Which replica is asked, how often, and for how long is the dispatcher's business, so
//! a connector opens without its server being there, tries nothing twice that the server may have seen, and says of every failure which
//! [`Cause`](crate::Cause) it was.
//!
//! A call may be dropped at any moment. What it has sent is then still answered by the server, so the answer is read
//! and thrown away (`pipeline`), or its connection is closed (`http`); no later call ever reads what was meant for an earlier one.

mod host;
mod http;
mod memcached;
mod options;
mod pipeline;
mod redis;
mod secret;
mod socket;
mod sql;
mod template;
mod tls;

pub use http::{HeaderValue, HttpOptions};
pub use memcached::MemcachedOptions;
pub use options::RemoteOptions;
pub use redis::RedisOptions;
pub use secret::Secret;
pub use sql::{SqlOptions, SqlValue};
pub use tls::{TlsOptions, client_config};

pub(crate) use http::Http;
pub(crate) use memcached::Memcached;
pub(crate) use redis::Redis;
pub(crate) use sql::{open_mysql, open_postgres};
pub(crate) use template::{KEYS_MAX, padded};
