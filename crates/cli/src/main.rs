//! The `sherwood` command.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, files, threads and the environment"
)]
#![expect(dead_code, reason = "the command that uses these modules is wired next")]

mod demo;

fn main() {}
