//! Shared vocabulary and mathematics: ids, time, finished requests, SLOs, sketches and cache plans.
//!
//! Every other crate may depend on this one; it depends on none of them and does no I/O. It holds
//! the types that the deciding side (policies, controller) and the acting side (node, simulator)
//! exchange: ids ([`BackendId`], [`TenantId`], [`PartitionId`], [`ReplicaId`]), time ([`Instant`]),
//! latencies of finished requests ([`FinishedRequest`]) and the division of the cache and of rates
//! ([`Plan`]). [`history`] keeps an hour of a node's state, [`query_times`] histograms of its
//! queries' latencies, and [`batches`] makes requests of plain cache clients' commands. [`units`]
//! parses sizes and durations as users write them, and [`nearest`] finds the name that a misspelt
//! one was meant to be.

mod attempt_times;
pub mod batches;
mod deadline_classes;
mod demand;
mod demand_counts;
mod demand_curve;
mod demand_meter;
mod hash;
pub mod history;
mod hot_keys;
mod ids;
mod latency_bucket;
pub mod misread;
mod nearest;
mod percent;
mod plan;
pub mod query_times;
mod query_windows;
mod request;
mod resource;
mod sketch;
mod slo;
mod split_mix;
mod tags;
mod tier_window;
mod time;
mod token_bucket;
mod traces;
pub mod units;
mod window;

pub use attempt_times::{AttemptTimes, SlowCount};
pub use deadline_classes::{DeadlineClass, DeadlineClasses, DeadlineClassesError};
pub use demand::{DEADLINE_MAX, DeadlineError, Demand, DemandKind, RequestId, deadline_within};
pub use demand_counts::DemandCounts;
pub use demand_curve::DemandCurve;
pub use demand_meter::{CoreCounts, DemandMeter};
pub use hash::SeededState;
pub use hot_keys::{HotKey, HotKeys};
pub use ids::{BackendId, PartitionId, ReplicaId, ResourceId, TenantId};
pub use latency_bucket::LatencyBucket;
pub use nearest::{did_you_mean, nearest};
pub use percent::{Percent, PercentError};
pub use plan::{BackendPlan, CachePlan, Copies, Plan, StoreLayout};
pub use query_windows::QueryWindows;
pub use request::{FinishedRequest, QueryEnd, RequestEnd};
pub use resource::{Legs, Rates, ResourceClass, ResourceKind, Unit};
pub use sketch::{LatencySketch, LatencyWindow};
pub use slo::{Slo, SloMonitor, SloStanding};
pub use split_mix::SplitMix64;
pub use tags::Tags;
pub use tier_window::TierWindow;
pub use time::Instant;
pub use token_bucket::TokenBucket;
pub use traces::{SpanCounts, SpanRole, TraceSpan, TracedRequest, Traces};
pub use window::{
    Band, CollectedRequests, RequestCollector, RequestCount, RequestSelection, RequestSnapshot,
    RequestWindow, WindowOptions,
};
