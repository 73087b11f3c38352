//! Replication factors of tiers: sPARE's replicator.
//!
//! An application of several tiers (pages ask for queries) sends copies of each request to several
//! servers of a tier and takes the first answer. More copies find faster servers and load all of
//! them, so that the best number of copies of each tier, its *factor*, depends on load and on how
//! much latencies vary. The [`Replicator`] finds the factors by trial, a measuring window each,
//! among those that the tiers can serve:
//!
//! - core demand of a request and holding time of a token, from arrivals and departures
//!   ([`DemandMeter`](sherwood_model::DemandMeter); section 5.1),
//! - stability of each tier's cores and tokens ([`TierSeen`], [`tokens_min`]; equations 4 to 6),
//! - the probability that copies of a request meet at a server ([`collision_probability`]; section
//!   3.3),
//! - the search (algorithm 1).
//!
//! Source: Birke, Pérez, Qiu, Björkqvist and Chen, "sPARE: Partial Replication for Multi-tier
//! Applications in the Cloud". The paper searches once; here a search begins anew when load or
//! variability have moved, and factors fall to ones when a tier is overloaded.

mod capacity;
mod collision;
mod options;
mod outcome;
mod replicator;
mod search;
mod words;

pub use capacity::{TierSeen, tokens_min};
pub use collision::{collision_probabilities, collision_probability};
pub use options::{ReplicationError, ReplicationOptions, ReplicationPolicy, TargetLatency, TierOptions};
pub use outcome::{Outcome, ReplicationState, TierStanding};
pub use replicator::Replicator;
