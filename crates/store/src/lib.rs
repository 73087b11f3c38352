//! Backends with their I/O, which answer the misses of the cache.
//!
//! A backend implements `get_many` of the [`Store`] trait. The crates that use it do not depend on
//! the source of an answer: a disk, a join or a multiplication. Three kinds are embedded. Each does
//! real work on a resource of its own, so that tests and the demo have backends that differ:
//!
//! | kind | work | bound by |
//! |---|---|---|
//! | [`StoreKind::Kv`] | point reads in a log-structured merge tree on disk (fjall) | memory and disk reads |
//! | [`StoreKind::Sqlite`] | an indexed join of two tables (SQLite) | disk reads |
//! | [`StoreKind::Compute`] | the product of two matrices | processor |
//!
//! [`StoreKind::Synthetic`] does no work: it answers after a fixed time, for measurements.
//!
//! The others are connectors to servers elsewhere: [`StoreKind::Memcached`], [`StoreKind::Redis`],
//! [`StoreKind::Http`], [`StoreKind::MySql`], [`StoreKind::Postgres`], [`StoreKind::DynamoDb`] and,
//! with the features of their names, [`StoreKind::Zookeeper`] and [`StoreKind::Cassandra`].
//!
//! Redis, memcached, ZooKeeper and Cassandra can be duplicates of a replicated logical store:
//! [`Duplicate`] has a server make changes in their order, and [`copy`] copies its contents to
//! another one.
//!
//! The embedded engines block, so they never run on the async runtime: each store has a few threads
//! of its own and a bounded queue before them.
//!
//! ```text
//!   async callers          one store
//!   get_many ──▶ queue (bounded) ──▶ limits ──▶ thread 0: session ──┐
//!   put      ──▶                            └─▶ thread 1: session ──┼─▶ files
//!      ▲                                                            │
//!      └──────────────────── oneshot reply ◀────────────────────────┘
//! ```
//!
//! A call that its caller has dropped is skipped if it has not started. Dropping the store answers
//! queued calls with an error, waits for running ones, and joins the threads.
//!
//! The limits ([`Limits`]: slots, operations per second, processor share) slow a backend down as a
//! shared machine does. They count calls, keys and processor time, and no latencies.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, files and threads"
)]

mod clock;
mod compute;
mod duplicate;
mod embedded;
mod error;
mod escape;
mod kv;
mod limit;
mod load;
mod options;
mod pool;
mod range;
mod remedy;
mod remote;
mod session;
mod sqlite;
mod store;
mod synthetic;

pub use compute::{BytesOfKey, ValueBytes};
pub use duplicate::{
    Applied, ChangeConnection, Copied, CopyConnection, Duplicate, Item, ItemPage, KeyChange, KeyPages,
    KeyPartition, PAGE_KEYS_MAX, RESERVED_PREFIX, clear, copy, is_reserved,
};
pub use embedded::{open, open_compute};
pub use error::{Attempt, Cause, Fault, OpenCause, OpenError, StoreError};
pub use limit::{Limit, LimitError, Limits};
pub use load::Loader;
pub use options::{ComputeOptions, KvOptions, SqliteOptions, StoreOptions, SyntheticOptions};
pub use remote::{
    AwsCredentials, CassandraOptions, ClientTls, DynamoDbOptions, DynamoDbValue, HeaderValue, HttpConnector,
    HttpOptions, HttpSocket, MemcachedOptions, NotConnected, RedisOptions, RemoteOptions, Secret,
    ServerAddress, SqlOptions, SqlValue, TlsOptions, ZookeeperOptions, with_traceparent,
};
pub use store::{BoxFuture, ConsumedUnits, Found, KeyAnswer, KeyAnswers, Report, Store, StoreKind};
