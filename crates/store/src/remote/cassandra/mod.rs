//! The connector to Cassandra: each item is a row of one table, by the driver `scylla`.
//!
//! The server of the options coordinates all requests. Nothing is executed speculatively or sent a
//! second time. Of several writes of a key, Cassandra keeps the one with the latest timestamp, so
//! that a store gives its writes timestamps that rise in their order (`clock`).

#[cfg(feature = "cassandra")]
mod certificates;
#[cfg(feature = "cassandra")]
mod clock;
#[cfg(feature = "cassandra")]
mod error;
#[cfg(feature = "cassandra")]
mod opener;
mod options;
#[cfg(feature = "cassandra")]
mod rows;
#[cfg(feature = "cassandra")]
mod walk;

#[cfg(feature = "cassandra")]
pub(crate) use opener::open;
pub use options::CassandraOptions;
pub(crate) use options::PORT;

/// The name of the protocol in errors.
#[cfg(feature = "cassandra")]
const PROTOCOL: &str = "Cassandra's protocol (CQL)";
