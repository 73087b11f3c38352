//! Replication factors of tiers: sPARE's replicator.
//!
//! - Core demand of a request and holding time of a token, from arrivals and departures
//!   ([`DemandMeter`]; section 5.1),
//! - the probability that copies of a request meet at a server ([`collision_probability`]; section
//!   3.3).
//!
//! Source: Birke, Pérez, Qiu, Björkqvist and Chen, "sPARE: Partial Replication for Multi-tier
//! Applications in the Cloud".

mod capacity;
mod collision;
mod demand;
mod options;
#[allow(dead_code, reason = "the replicator, which searches, is the next part")]
mod search;

pub use capacity::{TierSeen, tokens_min};
pub use collision::{collision_probabilities, collision_probability};
pub use demand::{DemandCounts, DemandMeter};
pub use options::{ReplicationError, ReplicationOptions, ReplicationPolicy, TargetLatency, TierOptions};
