//! Stores that can be duplicates: the parts of a replicated logical store.
//!
//! A replicated logical store writes every change to several unmodified servers, its duplicates.
//! The log of `sherwood-dispatch` decides which changes a server makes and when; this module has
//! the server make them. It gives a driver three things:
//!
//! - a [`ChangeConnection`], over which one server makes changes in their order. It is opened once
//!   and never replaced, so that a change cannot arrive after a later one that was sent over
//!   another connection;
//! - the *marker*, an opaque record of the driver that the server keeps beside the data of each
//!   partition, under a [reserved key](is_reserved), and by which the driver tells later what the
//!   server has;
//! - a [`copy`] of a partition from one server to another, and its [removal](clear).
//!
//! ```text
//!   log ──▶ driver ── apply ──▶ ChangeConnection ──marker, then changes──▶ server
//!                  └─ copy ──▶ KeyPages, CopyConnection ──read──▶ source
//!                                               └───store, remove──▶ destination
//! ```
//!
//! Redis, Valkey and memcached can be duplicates: [`Store::as_duplicate`]. A store's items are
//! those under its key prefix that [`Store::get_many`] can return. Values of other types in Redis,
//! and keys that the text protocol of memcached cannot name, do not count: a copy neither reads nor
//! removes them.
//!
//! # Limits of the servers
//! - memcached removes the earlier value of a key when it refuses a new one. So a refused marker
//!   may be absent afterwards, and a refused change may have removed its key. The error's
//!   [`fault`](StoreError::fault) is [`Fault::Broken`](crate::Fault::Broken) then.
//! - memcached removes items, and perhaps the marker, when it has no memory for others, unless it
//!   runs with `-M`. Redis does so with each `maxmemory-policy` but `noeviction`.

mod copy;

use std::time::Duration;

use bytes::Bytes;

use crate::{BoxFuture, Store, StoreError};

pub use copy::{Copied, clear, copy};

/// Beginning of the keys, after a store's key prefix, under which stores have records of their own.
/// No item may use them.
pub const RESERVED_PREFIX: &str = "sherwood.log.";

/// Key of the row of Cassandra whose timestamp limits those of other rows.
#[cfg(feature = "cassandra")]
pub(crate) const CLOCK_KEY: &str = "sherwood.log.clock";

/// Returns true if a key, without the store's prefix, begins with [`RESERVED_PREFIX`].
#[must_use]
pub fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED_PREFIX.as_bytes())
}

pub(crate) fn marker_key(partition: u32) -> Bytes {
    format!("{RESERVED_PREFIX}marker.{partition}").into()
}

/// A partition of the keys of a store. A server may be a duplicate of several.
pub struct KeyPartition<'a> {
    /// Number of the partition.
    pub number: u32,
    /// Returns true for the partition's keys, without the store's prefix.
    pub has: &'a (dyn Fn(&[u8]) -> bool + Send + Sync),
}

/// Most keys of a page of [`KeyPages`].
pub const PAGE_KEYS_MAX: usize = 256;

/// A store whose server can make changes in order and be copied.
pub trait Duplicate: Store {
    /// Opens a connection for changes of a partition in their order. It is not one of the store's
    /// pool, and not counted there.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses the login or the database.
    fn connect(&self, partition: u32) -> BoxFuture<'_, Result<Box<dyn ChangeConnection>, StoreError>>;

    /// Opens a connection for a copy from or to the server.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    fn connect_for_copy(&self) -> BoxFuture<'_, Result<Box<dyn CopyConnection>, StoreError>>;

    /// Begins a walk through the keys of the store, over a connection of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    fn walk(&self) -> BoxFuture<'_, Result<Box<dyn KeyPages>, StoreError>>;
}

/// A connection over which one server makes changes in their order.
///
/// It is never opened again: once it has ended, every call fails, and the driver opens another one.
/// It ends when the server closes it, when the server does not answer within the answer timeout of
/// the store, and when it is dropped. Dropping the future of a call ends it as well, so that no
/// answer to one batch can be taken for that to another. The server may still execute what was sent
/// before the end.
pub trait ChangeConnection: Send {
    /// Reads the marker; none if the server has none.
    ///
    /// # Errors
    /// When the server refuses the read, or the connection has ended.
    fn marker(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Writes the marker, without a time to live, and then makes the changes in their order.
    ///
    /// The changes are sent once the server has acknowledged the marker, all at once: if they were
    /// sent together with it, a server without memory could refuse the marker and make changes
    /// after it, of which no record would be left.
    fn apply(&mut self, marker: Bytes, changes: Vec<KeyChange>) -> BoxFuture<'_, Applied>;

    /// Waits until the connection has ended. Nothing is sent. The future may be dropped.
    fn ended(&mut self) -> BoxFuture<'_, ()>;
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key, without the store's prefix.
    pub key: Bytes,
    /// The new value, which is stored as by [`Store::put`]; none removes the key.
    pub value: Option<Bytes>,
}

/// The end of a batch of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The server has the marker and has made all changes, except those at these positions, in
    /// ascending order. The server refused them, or they are too large for the store and were not
    /// sent.
    Answered(Vec<(usize, StoreError)>),
    /// The server refused the marker. No change was sent.
    Unmarked(StoreError),
    /// The connection has ended.
    Broken {
        /// Number of changes, from the first on, that the server is known to have made. It may have
        /// made later ones, and may still make those that were sent.
        made: usize,
        /// The cause of the end.
        error: StoreError,
    },
}

/// A connection for a copy from or to a server. It ends as a [`ChangeConnection`] does.
pub trait CopyConnection: Send {
    /// Reads items. Keys without an item are left out, as are items that are about to expire.
    ///
    /// # Errors
    /// When the server refuses a key, the value of one key alone is larger than the store accepts,
    /// or the connection has ended.
    fn read(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<ItemPage, StoreError>>;

    /// Returns for each key whether the server has an item of it.
    ///
    /// # Errors
    /// When the server refuses a key, or the connection has ended.
    fn has(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<bool>, StoreError>>;

    /// Stores items.
    ///
    /// # Errors
    /// When an item is refused, or the connection has ended. Some items may be stored.
    fn fill(&mut self, items: Vec<Item>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Removes keys; an absent one is no error.
    ///
    /// # Errors
    /// When a removal is refused, or the connection has ended. Some keys may be removed.
    fn remove(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// Items that were read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPage {
    /// The items that were found.
    pub items: Vec<Item>,
    /// Keys that have to be read again: the values of all keys together were larger than the store
    /// accepts of one call. Fewer than the keys of the call.
    pub left: Vec<Bytes>,
}

/// An item of a store, with its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key, without the store's prefix.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The client flags of memcached; 0 in other stores.
    pub flags: u32,
    /// Remaining time to live, more than zero; none if the item does not expire.
    pub ttl: Option<Duration>,
}

/// A walk through all keys of a store, without the markers. A key that is changed meanwhile may be
/// missed or returned twice.
pub trait KeyPages: Send {
    /// Returns the next keys, without the store's prefix, at most [`PAGE_KEYS_MAX`]; none at the
    /// end.
    ///
    /// # Errors
    /// When the server refuses the walk, does not answer, or ends the connection.
    fn next_page(&mut self) -> BoxFuture<'_, Result<Option<Vec<Bytes>>, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_stores_have_reserved_keys() {
        assert_eq!(&marker_key(7)[..], b"sherwood.log.marker.7");
        assert!(is_reserved(&marker_key(7)));
        #[cfg(feature = "cassandra")]
        assert!(is_reserved(CLOCK_KEY.as_bytes()));
        assert!([&b"sherwood.log"[..], b"t:sherwood.log.marker.7", b""].iter().all(|key| !is_reserved(key)));
    }
}
