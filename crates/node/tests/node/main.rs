//! A whole node on real sockets: gateway, admin API, listeners and backends together.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use sockets, threads, processes and the machine's clock"
)]

mod admin;
mod faults;
mod gateway;
mod instances;
mod listeners;
#[path = "../common/missing.rs"]
mod missing;
#[path = "../common/patience.rs"]
mod patience;
mod policies;
mod resizing;
mod stopping;
mod support;
