//! Short runs of the fuzz targets of listeners, and random splits of their input.

#![allow(clippy::disallowed_methods, reason = "a driver: it reads the kept corpus")]

#[path = "../../../../fuzz/src/conversations.rs"]
pub mod conversations;
mod cuts;
#[path = "../../../../fuzz/replay/mod.rs"]
pub mod replay;
#[path = "../../../../fuzz/src/stream.rs"]
pub mod stream;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Inputs per fuzz target in addition to the corpus. Chosen so that they take a few seconds without
/// optimisation.
const INPUTS: usize = 400;
const SEED: u64 = 1;

fn check(name: &str) {
    replay::check(&conversations::TARGETS, name, INPUTS, Xoshiro256PlusPlus::seed_from_u64(SEED));
}

#[test]
fn memcached_fuzz_target_passes_on_its_corpus_and_derived_inputs() {
    check("memcached_conversation");
}

#[test]
fn memcached_binary_fuzz_target_passes_on_its_corpus_and_derived_inputs() {
    check("memcached_binary_conversation");
}

#[test]
fn redis_fuzz_target_passes_on_its_corpus_and_derived_inputs() {
    check("redis_conversation");
}
