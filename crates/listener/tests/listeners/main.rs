//! Tests of memcached and Redis listeners on real sockets.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use sockets, threads, processes and the machine's clock"
)]

mod asked;
mod batches;
mod binary;
mod broken;
mod clients;
mod crowd;
#[path = "../common/fake.rs"]
#[allow(dead_code, reason = "stores and changes are observed elsewhere")]
mod fake;
mod hostile;
mod large;
mod login;
mod memcached;
#[path = "../common/missing.rs"]
mod missing;
mod network;
mod packaged;
#[path = "../common/programs.rs"]
mod programs;
mod protocol;
mod redis;
mod slow;
mod support;
mod times;
mod unix;
#[path = "../common/wait.rs"]
mod wait;
