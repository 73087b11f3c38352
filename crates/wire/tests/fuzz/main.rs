//! Runs the fuzz targets of the codecs on their corpus and on a few hundred derived inputs.

#![allow(clippy::disallowed_methods, reason = "a driver: it reads the kept corpus")]

#[path = "../../../../fuzz/src/codecs/mod.rs"]
pub mod codecs;
#[path = "../../../../fuzz/replay/mod.rs"]
pub mod replay;
#[path = "../../../../fuzz/src/stream.rs"]
pub mod stream;

use std::panic::catch_unwind;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Number of inputs of each target besides the corpus. Chosen: all targets together take a few
/// seconds in a debug build.
const INPUTS: usize = 400;
const SEED: u64 = 1;

fn check(name: &str) {
    replay::check(&codecs::TARGETS, name, INPUTS, Xoshiro256PlusPlus::seed_from_u64(SEED));
}

#[test]
fn memcached_server_fuzz_target_passes_on_corpus_and_derived_inputs() {
    check("memcached_server");
}

#[test]
fn memcached_client_fuzz_target_passes_on_corpus_and_derived_inputs() {
    check("memcached_client");
}

#[test]
fn memcached_binary_fuzz_target_passes_on_corpus_and_derived_inputs() {
    check("memcached_binary");
}

#[test]
fn resp_server_fuzz_target_passes_on_corpus_and_derived_inputs() {
    check("resp_server");
}

#[test]
fn resp_client_fuzz_target_passes_on_corpus_and_derived_inputs() {
    check("resp_client");
}

#[test]
fn repetition_in_a_fuzz_input_expands_to_many_bytes_up_to_a_bound() {
    use crate::stream::{REPEAT, expanded};
    assert_eq!(expanded(&[b'a', b'b', REPEAT, 2, 2, b'c']), b"abababababc");
    assert_eq!(expanded(&[b'a', REPEAT, 2, 2]), [b'a', REPEAT, 2, 2]);
    assert_eq!(expanded(&[b'a', REPEAT, 1]), [b'a', REPEAT, 1]);
    assert_eq!(expanded(&[b'a', REPEAT, 0, 9]), [b'a', REPEAT, 0, 9]);
    let long = [b'a', REPEAT, 1, 255, REPEAT, 1, 255, REPEAT, 1, 255, b'b'];
    assert_eq!(expanded(&long).len(), 160 * 1024);
}

#[test]
fn codec_that_violates_the_codec_contract_fails_the_fuzz_check() {
    use crate::stream::{Step, same_however_cut};
    type Codec = fn(&[u8]) -> Step<usize>;
    let broken: [Codec; 4] = [
        |bytes| Step::Said { consumed: bytes.len() + 1, what: 0 },
        |_| Step::Said { consumed: 0, what: 0 },
        |bytes| Step::Incomplete { consumed: 0, need: bytes.len() },
        |bytes| match bytes.len() {
            0 => Step::Incomplete { consumed: 0, need: 1 },
            consumed => Step::Said { consumed, what: consumed },
        },
    ];
    for codec in broken {
        assert!(catch_unwind(|| same_however_cut(b"abc", 4, || codec)).is_err());
    }
    let sound = |bytes: &[u8]| Step::<usize>::Incomplete { consumed: 0, need: bytes.len() + 1 };
    same_however_cut(b"abc", 4, || sound);
}
