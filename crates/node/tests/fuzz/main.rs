//! The fuzz targets of whole listeners, run for a while, and any cut of what clients say.

#![allow(clippy::disallowed_methods, reason = "a driver: it reads the kept corpus")]

#[path = "../../../../fuzz/src/conversations.rs"]
pub mod conversations;
mod cuts;
#[path = "../../../../fuzz/replay/mod.rs"]
pub mod replay;
#[path = "../../../../fuzz/src/stream.rs"]
pub mod stream;

/// Inputs of each target besides the corpus. Chosen so that they take a few seconds without optimisation.
const INPUTS: usize = 400;

#[test]
fn memcached_conversation() {
    replay::check(&conversations::TARGETS, "memcached_conversation", INPUTS);
}

#[test]
fn redis_conversation() {
    replay::check(&conversations::TARGETS, "redis_conversation", INPUTS);
}
