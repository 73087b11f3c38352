//! Load against real targets, with latencies measured from the intended start of each operation.
//!
//! A generator that waits for slow answers sends less while the target is slow, and underreports
//! the tail (coordinated omission). Here, with a rate, every operation has an intended start drawn
//! beforehand, and its latency counts from then. The lateness of the generator itself is reported
//! separately, so that a run in which the generator fell behind is recognised.
//!
//! ```text
//!  operations ──▶ schedule ──▶ connections ──▶ target        caches: one thread, non-blocking sockets, poll(2)
//!  (generator,    (intended     (a bounded      │
//!   trace)         start)        pipeline each) ▼
//!                                 tally: hits, misses, latency, lateness ──▶ Report
//!
//!  requests ──▶ pacing thread ──▶ runtime thread ──▶ gateway    HTTP: one thread for pacing,
//!  (mix, trace)  (intended start)  (one task each)              one for the connections
//! ```
//!
//! - [`cache::run`]: gets and sets to a cache that speaks memcached's protocol or Redis's, open or
//!   closed loop.
//! - [`tenants::run`]: the loads of several tenants of a scenario at once.
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
pub mod tenants;
mod tls;

pub use control::Control;
pub use latencies::Latencies;
pub use pace::{Gaps, Pace, RATE_MAX};
pub use report::{DeadlineCounts, Deadlines, HitsMisses, LatencySummary, Report};
pub use target::{Target, TargetError, TargetKind};
pub use tls::Tls;

use std::time::Duration;

use thiserror::Error;

/// The reason why a run of load could not start. Later failures are in the [`Report`].
#[derive(Debug, Error)]
pub enum LoadError {
    /// The target's name cannot be resolved.
    #[error("looking up `{address}`: {source}; give host:port of a running target")]
    Resolve {
        /// The target as given.
        address: String,
        /// The resolver's error.
        source: std::io::Error,
    },
    /// No connection to the target.
    #[error("connecting to {address}: {source}; is the target running there?")]
    Connect {
        /// The target as given.
        address: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The TLS handshake with the target failed.
    #[error(
        "TLS to {address}: {source}; trust the authority of the target's certificate (--ca), use the name that the \
         certificate contains, or a target without TLS"
    )]
    Tls {
        /// The target as given.
        address: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The target refused the login of a user.
    #[error("logging in as {user:?}: {source}; give the user's password, and a target that has the user")]
    Login {
        /// The name of the user.
        user: String,
        /// The answer, or the error of the operating system.
        source: std::io::Error,
    },
    /// The system refused a thread or a runtime.
    #[error("preparing the load generator: {source}")]
    System {
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// An option is out of its range.
    #[error("{option} of {found} is out of range: give {accepted}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The value given.
        found: String,
        /// The accepted range.
        accepted: &'static str,
    },
    /// The rate is out of its range.
    #[error(transparent)]
    Arrivals(#[from] sherwood_workload::ArrivalsError),
    /// The key-value options are out of their range.
    #[error(transparent)]
    KeyValue(#[from] sherwood_workload::KeyValueError),
    /// The start of the trace cannot be read.
    #[error(transparent)]
    Trace(#[from] sherwood_workload::trace::TraceError),
    /// The model has no such profile.
    #[error(transparent)]
    Model(#[from] sherwood_workload::onerf::ModelError),
}

/// The most keys of one multi-get or request; with the longest keys they take a quarter of a
/// megabyte.
pub const BATCH_MAX: usize = 1_000;

/// Checks that a deadline can be sent.
fn check_deadline(deadline: Duration) -> Result<(), LoadError> {
    let day = Duration::from_secs(24 * 3600);
    if deadline.is_zero() || deadline > day {
        let found = format!("{deadline:?}");
        return Err(LoadError::Option { option: "deadline", found, accepted: "above 0 ms and up to 24 h" });
    }
    Ok(())
}

/// Returns `value` if it is in `range`, and an error that names `option` otherwise.
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
