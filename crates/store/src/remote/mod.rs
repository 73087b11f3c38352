//! Connectors: stores whose work is done by a server.
//!
//! Each speaks one protocol to one server and owns its connections, which are bounded, opened when
//! a call needs one, and closed when they break. Routing, retries and timeouts of calls belong to
//! the dispatcher. So a connector can be opened while its server is down, never repeats a change
//! that the server may have received, and reports each failure with its [`Cause`](crate::Cause).
//!
//! A call may be dropped at any time. The server still answers what was sent, so the answer is read
//! and discarded (`pipeline`), or the connection is closed (`http`, `dynamodb`, `sql`); no call can
//! receive the answer to another.

mod asking;
mod cassandra;
mod changes;
mod dynamodb;
mod host;
mod http;
mod json;
mod memcached;
mod options;
mod pipeline;
mod redis;
#[cfg(any(feature = "cassandra", feature = "zookeeper"))]
mod requests;
mod secret;
mod server;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulation;
mod socket;
mod spelling;
mod sql;
mod template;
mod tls;
mod zookeeper;

pub use cassandra::CassandraOptions;
pub use dynamodb::{AwsCredentials, DynamoDbOptions, DynamoDbValue};
pub use http::{HeaderValue, HttpConnector, HttpOptions, HttpSocket, NotConnected, with_traceparent};
pub use memcached::MemcachedOptions;
pub use options::RemoteOptions;
pub use redis::RedisOptions;
pub use secret::Secret;
pub use server::ServerAddress;
pub use sql::{SqlOptions, SqlValue};
pub use tls::{ClientTls, TlsOptions};
pub use zookeeper::ZookeeperOptions;

use std::sync::Arc;

use crate::{Attempt, Cause, Found, KeyAnswer, KeyAnswers, StoreError, StoreKind};

#[cfg(feature = "cassandra")]
pub(crate) use self::cassandra::open as open_cassandra;
#[cfg(feature = "zookeeper")]
pub(crate) use self::zookeeper::open as open_zookeeper;
pub(crate) use asking::{Asking, Rows, distinct};
pub(crate) use dynamodb::DynamoDb;
pub(crate) use http::Http;
pub(crate) use memcached::Memcached;
pub(crate) use redis::Redis;
pub(crate) use spelling::Compared;
pub(crate) use sql::{open_mysql, open_postgres};
pub(crate) use template::{KEYS_MAX, LISTS_MAX, Template, padded};

/// The key that is read to check a server; the key need not exist.
const CHECK_KEY: &str = "sherwood-check";

/// The result of one key of a call that succeeded: its value, none if it is absent, or the error of
/// this key alone.
type Each = Result<Option<Found>, Cause>;

/// Converts the results of keys to the answer of a call that fails as a whole: the first key's
/// error is the call's.
fn all(each: Vec<Each>) -> Result<Vec<Option<Found>>, Cause> {
    each.into_iter().collect()
}

/// Adds the store's name and kind to the errors of keys.
fn named_each(name: &Arc<str>, kind: StoreKind, each: Vec<Each>) -> KeyAnswers {
    let named = |cause| StoreError::new(Arc::clone(name), kind, Attempt::Get { keys: 1 }, cause);
    let each: Vec<KeyAnswer> = each.into_iter().map(|one| one.map_err(named)).collect();
    each.into()
}
