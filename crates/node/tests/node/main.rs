//! A whole node on real sockets: gateway, admin API, listeners and backends together.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use sockets, threads, processes and the machine's clock"
)]

mod access;
mod admin;
mod bad_keys;
mod beside;
mod browser;
mod cluster;
mod crowd;
mod dashboard;
mod deadlines;
mod faults;
mod forms;
mod freshness;
mod gateway;
#[path = "../../../config/src/golden.rs"]
#[allow(dead_code, reason = "JSON is made elsewhere")]
mod golden;
mod instances;
mod invalidation;
mod keys;
mod listeners;
mod meta;
#[path = "../../../listener/tests/common/missing.rs"]
mod missing;
mod policies;
#[path = "../../../listener/tests/common/programs.rs"]
#[allow(dead_code, reason = "no client library is run here without a login")]
mod programs;
mod reference;
mod reporters;
mod resizing;
mod spans;
mod stopping;
mod support;
mod tenants;
mod throttling;
mod tickets;
mod traces;
#[path = "../../../listener/tests/common/wait.rs"]
mod wait;
mod write_through;
mod writes;
