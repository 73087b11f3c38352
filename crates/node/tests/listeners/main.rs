//! The listeners on real sockets.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use sockets, threads, processes and the machine's clock"
)]

mod asked;
mod clients;
mod hostile;
mod login;
mod memcached;
#[path = "../common/missing.rs"]
mod missing;
#[path = "../common/patience.rs"]
mod patience;
#[path = "../common/programs.rs"]
mod programs;
mod redis;
mod support;
mod unix;
