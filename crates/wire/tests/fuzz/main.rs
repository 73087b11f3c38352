//! The fuzz targets with a fixed number of inputs from a fixed seed, so that every run of the suite is the same run.
//!
//! The kept corpus comes first: each of its files is an input somebody thought of or a fuzzer found. Then come inputs made
//! of them ([`mutator`]). What fails is shown as a file that belongs into the corpus.

#![allow(clippy::disallowed_methods, reason = "a driver: it reads the kept corpus")]

mod mutator;
#[path = "../../../../fuzz/src/lib.rs"]
pub mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use mutator::Mutator;
use targets::{TARGETS, Target};

/// Inputs of each target besides the corpus. Chosen so that all targets take a few seconds without optimisation.
const INPUTS: usize = 400;
const SEED: u64 = 1;

/// Runs the target called `name`.
fn check(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target of that name");
    let corpus = corpus(name);
    for input in &corpus {
        run(name, target, input);
    }
    let mut mutator = Mutator::new(&corpus, SEED);
    for _ in 0..INPUTS {
        run(name, target, &mutator.input());
    }
}

fn run(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        // In single quotes, and `%b` knows no escaped quotes.
        let text = input.escape_ascii().to_string().replace(r"\'", r"\x27").replace(r#"\""#, r"\x22");
        eprintln!("keep what failed, under a name: printf '%b' '{text}' > fuzz/corpus/{name}/…");
        resume_unwind(panic);
    }
}

/// The files of `fuzz/corpus/<name>`, by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds nothing to start from", folder.display());
    files.iter().map(|file| std::fs::read(file).expect("the file can be read")).collect()
}

#[test]
fn memcached_server() {
    check("memcached_server");
}

#[test]
fn memcached_client() {
    check("memcached_client");
}

#[test]
fn resp_server() {
    check("resp_server");
}

#[test]
fn resp_client() {
    check("resp_client");
}

#[test]
fn a_repetition_stands_for_many_bytes_and_has_a_bound() {
    use targets::stream::{REPEAT, expanded};
    assert_eq!(expanded(&[b'a', b'b', REPEAT, 2, 2, b'c']), b"abababababc");
    assert_eq!(expanded(&[b'a', REPEAT, 2, 2]), [b'a', REPEAT, 2, 2]);
    assert_eq!(expanded(&[b'a', REPEAT, 1]), [b'a', REPEAT, 1]);
    assert_eq!(expanded(&[b'a', REPEAT, 0, 9]), [b'a', REPEAT, 0, 9]);
    let long = [b'a', REPEAT, 1, 255, REPEAT, 1, 255, REPEAT, 1, 255, b'b'];
    assert_eq!(expanded(&long).len(), 160 * 1024);
}

#[test]
fn a_codec_that_breaks_a_promise_is_noticed() {
    use targets::stream::{Step, same_however_cut};
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
