//! Load against real targets, measured from when it was meant to happen.
//!
//! A generator that waits for slow answers stops asking just when it matters, and reports a tail
//! nobody saw. With a rate, every operation here has an intended start drawn beforehand; its
//! latency counts from then, and by how much the generator itself was late is reported beside it,
//! so that a run in which it could not keep up is recognised.
//!
//! ```text
//!  operations ──▶ schedule ──▶ connections ──▶ target        caches: one thread, non-blocking sockets, poll(2)
//!  (generator,    (intended     (a bounded      │
//!   trace)         start)        pipeline each) ▼
//!                                 tally: hits, misses, latency, lateness ──▶ Report
//!
//!  requests ──▶ pacing thread ──▶ runtime thread ──▶ gateway    HTTP: a thread that only sleeps and hands over,
//!  (mix, trace)  (intended start)  (one task each)              and one that talks
//! ```
//!
//! - [`cache::run`]: gets and sets to a cache that speaks memcached's protocol or Redis's, open or
//!   closed loop.
//! - [`http::run`]: requests to a gateway (`POST /v1/requests`), open or closed loop, with phases
//!   and an observer.
//! - [`Control`] stops a run early and shows how far it is.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, sockets and threads"
)]

pub mod cache;
mod control;
pub mod http;
mod latencies;
mod pace;
mod report;
mod target;

pub use control::Control;
pub use latencies::Latencies;
pub use pace::{Gaps, Pace, RATE_MAX};
pub use report::{HitsMisses, LatencySummary, Report};
pub use target::{Target, TargetError};

use thiserror::Error;

/// Why a run could not begin. What goes wrong later is in the [`Report`].
#[derive(Debug, Error)]
pub enum LoadError {
    /// The target's name has no address.
    #[error("looking up `{address}`: {source}; give host:port of a running target")]
    Resolve {
        /// The target as given.
        address: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// No connection to the target.
    #[error("connecting to {address}: {source}; is the target running there?")]
    Connect {
        /// The target as given.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused a thread or a runtime.
    #[error("preparing the load generator: {source}")]
    System {
        /// What the system said.
        source: std::io::Error,
    },
    /// An option is out of its range.
    #[error("{option} of {found} is out of range: give {accepted}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What was given.
        found: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// The rate is out of its range.
    #[error(transparent)]
    Arrivals(#[from] sherwood_workload::ArrivalsError),
    /// The key-value options are out of their range.
    #[error(transparent)]
    KeyValue(#[from] sherwood_workload::KeyValueError),
    /// The trace cannot be read from its beginning.
    #[error(transparent)]
    Trace(#[from] sherwood_workload::trace::TraceError),
    /// The model has no such profile.
    #[error(transparent)]
    Model(#[from] sherwood_workload::onerf::ModelError),
}

/// The most keys of one multi-get or request; with the longest keys they take a quarter of a
/// megabyte.
pub const BATCH_MAX: usize = 1_000;

/// `value` if it is in `accepted`, an error naming `option` otherwise.
fn within<T: PartialOrd + ToString>(
    option: &'static str,
    value: T,
    range: std::ops::RangeInclusive<T>,
    accepted: &'static str,
) -> Result<T, LoadError> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(LoadError::Option { option, found: value.to_string(), accepted })
    }
}
