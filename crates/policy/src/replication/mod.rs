//! Replication factors of tiers: sPARE's replicator.
//!
//! - Core demand of a request and holding time of a token, from arrivals and departures
//!   ([`DemandMeter`]; section 5.1),
//! - the probability that copies of a request meet at a server ([`collision_probability`]; section
//!   3.3).
//!
//! Source: Birke, Pérez, Qiu, Björkqvist and Chen, "sPARE: Partial Replication for Multi-tier
//! Applications in the Cloud".

mod collision;
mod demand;

pub use collision::{collision_probabilities, collision_probability};
pub use demand::{DemandCounts, DemandMeter};
