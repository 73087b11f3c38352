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

mod admin;
mod backend;
mod bus;
mod classes;
mod cluster;
mod control;
mod core;
mod dashboard;
mod deadlines;
mod gateway;
#[cfg(test)]
#[path = "../../config/src/golden.rs"]
mod golden;
mod listen;
mod names;
mod observe;
mod reload;
mod setup;
mod slos;
mod snapshot;
mod spans;
mod start;
mod tenants;
mod threads;
mod traces;

pub use control::TenancyError;
pub use observe::events::Event;
pub use reload::{ReloadError, ReloadOptions, ReloadRequest, Reloaded};
pub use setup::{BackendSetup, ListenerSetup, PartitionSetup, RouteSetup, Setup, SnapshotSetup};
pub use sherwood_path::Rules;
pub use sherwood_ports::access::{AccessError, Refusal};
pub use sherwood_ports::{PassedError, PassedSockets};
pub use sherwood_process::clock;
pub use spans::SpanExportError;
pub use start::{BackendUsage, Node, StartError, Stopped};
