//! The connector to ZooKeeper: each item is a child of one node, by the client `zookeeper-client`.
//!
//! Calls share one session. A connector never continues a session over a second connection: when
//! the connection ends, the next call opens another session. Reads of many keys are pipelined.

#[cfg(feature = "zookeeper")]
mod certificates;
#[cfg(feature = "zookeeper")]
mod error;
#[cfg(feature = "zookeeper")]
mod name;
#[cfg(feature = "zookeeper")]
mod opener;
mod options;
#[cfg(feature = "zookeeper")]
mod session;
#[cfg(feature = "zookeeper")]
mod task;
#[cfg(feature = "zookeeper")]
mod walk;

#[cfg(feature = "zookeeper")]
pub(crate) use opener::open;
pub(crate) use options::PORT;
pub use options::ZookeeperOptions;

/// The name of the protocol in errors.
#[cfg(feature = "zookeeper")]
const PROTOCOL: &str = "the ZooKeeper protocol";
