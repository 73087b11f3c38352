//! The daemon: sockets, threads and clocks around the pure crates, which make the decisions.
//!
//! ```text
//!  memcached ──▶ listener ─┐                          ┌─▶ store replicas
//!                          ├─▶ cache ─miss─▶ backend ─┤   (dispatcher under a short lock)
//!  HTTP ───────▶ gateway ──┘     ▲                    └─▶ fill
//!                  │             │ plan
//!                  ▼             │
//!              telemetry ──▶ control, every Δ ──▶ events, log, metrics
//! ```
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, sockets and threads"
)]

mod access;
mod admin;
mod backend;
mod classes;
pub mod clock;
mod control;
mod core;
mod dashboard;
mod deadlines;
mod entropy;
mod gateway;
#[cfg(test)]
#[path = "../../config/src/golden.rs"]
mod golden;
mod http;
mod listen;
mod memory;
mod names;
mod observe;
mod passed;
mod reload;
mod setup;
mod slos;
mod snapshot;
mod spans;
mod start;
mod tenants;
mod threads;
mod tickets;
mod tls;
mod traces;
mod vital;

pub use access::{AccessError, Refusal};
pub use control::TenancyError;
pub use observe::events::Event;
pub use passed::{PassedError, PassedSockets};
pub use reload::{ReloadError, ReloadOptions, ReloadRequest, Reloaded};
pub use setup::{BackendSetup, ListenerSetup, PartitionSetup, RouteSetup, Setup, SnapshotSetup};
pub use sherwood_path::Rules;
pub use spans::SpanExportError;
pub use start::{BackendUsage, Node, StartError};
