//! The daemon.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, sockets and threads"
)]

pub mod config;
pub mod listener;
