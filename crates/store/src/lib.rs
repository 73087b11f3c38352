//! Backends with their I/O: what a miss is sent to.
//!
//! A backend is whatever answers `get_many`: the [`Store`] trait says no more than that, so the
//! rooms before it need not know whether the answer comes from a disk, a join or a multiplication.
//! Three kinds are embedded, each doing real work on a resource of its own, because a cache in
//! front of backends that all behave alike proves nothing:
//!
//! | kind | work | bound by |
//! |---|---|---|
//! | [`Kind::Kv`] | point reads in a log-structured merge tree on disk (fjall) | memory and disk reads |
//! | [`Kind::Sqlite`] | an indexed join of two tables (SQLite) | disk reads |
//! | [`Kind::Compute`] | the product of two matrices | processor |
//!
//! The others are connectors to servers elsewhere: [`Kind::Memcached`], [`Kind::Redis`],
//! [`Kind::Http`], [`Kind::MySql`] and [`Kind::Postgres`].
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
//! A call whose caller has gone away is skipped if it has not started. Dropping the store answers
//! what is queued with an error, lets what runs end, and joins the threads.
//!
//! The limits ([`Limits`]: slots, operations per second, processor share) make a backend slower in
//! the way a shared machine does. They count calls, keys and processor time; none reads or writes a
//! latency.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, files and threads"
)]

mod clock;
mod compute;
mod embedded;
mod error;
mod kv;
mod limit;
mod load;
mod options;
mod pool;
mod remedy;
mod remote;
mod session;
mod sqlite;
mod store;
mod words;

pub use compute::{BytesOfKey, ValueBytes};
pub use embedded::{open, open_compute};
pub use error::{Attempt, Cause, Fault, OpenCause, OpenError, StoreError};
pub use limit::{Limit, LimitError, Limits};
pub use load::Loader;
pub use options::{ComputeOptions, KvOptions, SqliteOptions, StoreOptions};
pub use remote::{
    HeaderValue, HttpOptions, MemcachedOptions, RedisOptions, RemoteOptions, Secret, SqlOptions, SqlValue,
    TlsOptions, client_config,
};
pub use store::{BoxFuture, Found, KeyAnswer, Kind, Report, Store};
