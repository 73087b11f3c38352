//! The vocabulary and the mathematics every other room shares.
//!
//! Sherwood decides in one place and acts in another; what both sides must agree on lives here: who
//! is meant ([`BackendId`], [`TenantId`], [`PartitionId`], [`ReplicaId`]), when ([`Instant`]), what
//! a user waited for ([`FinishedRequest`]) and what the cache should look like ([`CachePlan`]).
//! This crate knows no other room and does no I/O.

mod hash;
mod ids;
mod plan;
mod request;
mod sketch;
mod slo;
mod split_mix;
mod tags;
mod time;
mod window;

pub use hash::SeededState;
pub use ids::{BackendId, PartitionId, ReplicaId, TenantId};
pub use plan::CachePlan;
pub use request::{FinishedRequest, QueryEnd, RequestEnd};
pub use sketch::{LatencySketch, LatencyWindow};
pub use slo::{Slo, SloMonitor, SloStanding};
pub use split_mix::SplitMix64;
pub use tags::Tags;
pub use time::Instant;
pub use window::{Band, RequestSelection, RequestSnapshot, RequestWindow, WindowOptions};
