//! Connectors: stores whose work is done by a server elsewhere.
//!
//! Each speaks one protocol to one server and owns its connections: they are bounded, made when a
//! call needs one, and given up when they break. That is all. Which replica is asked, how often,
//! and for how long is the dispatcher's business, so a connector opens without its server being
//! there, tries nothing twice that the server may have seen, and says of every failure which
//! [`Cause`](crate::Cause) it was.
//!
//! A call may be dropped at any moment. What it has sent is then still answered by the server, so
//! the answer is read and thrown away (`pipeline`), or its connection is closed (`http`); no later
//! call ever reads what was meant for an earlier one.

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

use std::sync::Arc;

use crate::{Attempt, Cause, Found, KeyAnswer, Kind, StoreError};

pub(crate) use http::Http;
pub(crate) use memcached::Memcached;
pub(crate) use redis::Redis;
pub(crate) use sql::{open_mysql, open_postgres};
pub(crate) use template::{KEYS_MAX, LISTS_MAX, Template, padded};

/// What is read of a server to see whether it is there; that it has no such key is an answer.
const CHECK_KEY: &str = "sherwood-check";

/// What a connector has for one key of a call that was answered: a value or none, or why this key
/// alone has no answer.
type Each = Result<Option<Found>, Cause>;

/// The answer to a call that is answered as a whole: the first key without an answer fails it.
fn all(each: Vec<Each>) -> Result<Vec<Option<Found>>, Cause> {
    each.into_iter().collect()
}

/// The answers of the store called `name`, which is of this kind.
fn named_each(name: &Arc<str>, kind: Kind, each: Vec<Each>) -> Vec<KeyAnswer> {
    let named = |cause| StoreError::new(Arc::clone(name), kind, Attempt::Get { keys: 1 }, cause);
    each.into_iter().map(|one| one.map_err(named)).collect()
}
