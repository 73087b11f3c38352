//! Statistics of all nodes of a cluster, and which of them a node decides on.
//!
//! ```text
//!   requests, report ─ publish ─▶ NodeStatistics ──▶ bus ──▶ handle_batch of the nodes that merge
//!                                                                 │
//!   without statistics nodes: every node merges, and decides on what it merged
//!   with statistics nodes:    those merge ─ begin_snapshot ─▶ Snapshot ─▶ bus ─▶ handle_snapshot
//!                             of every node, which decides on the snapshots of the one it follows
//! ```
//!
//! Requests, blocking counts, hits, misses, curves and shadow hits are those of all nodes. Used and
//! allocated bytes, latencies of queries and misses, and deadlines stay a node's own, as in Berger
//! et al., RobinHood (OSDI 2018), section 3.2.
//!
//! Any message may be lost, late or repeated. A message that is not newer than the last one of its
//! sender is left out. What a node decides on is younger than 5 s by its own clock: the statistics
//! of each node count from their arrival, and a snapshot is followed only while it contains a
//! message that this node published within the last 5 s. So a statistics node that was paused, or a
//! snapshot that was held up, is noticed without comparing clocks.

mod members;
mod messages;

use sherwood_policy::Needs;

pub use members::{KnownNames, Members};
pub use messages::{Ignored, NodeStatistics, PartitionSnapshot, RequestsSnapshot, Snapshot, Stamp};

/// Observations that are wanted of the statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// Observations that the policy needs.
    pub needs: Needs,
    /// True if the requests of each tenant are wanted by themselves.
    pub by_tenant: bool,
}
