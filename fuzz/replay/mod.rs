//! Runs the fuzz targets on a fixed number of inputs from a fixed seed, so that every run of the
//! suite is the same.
//!
//! The corpus comes first: each file is an input that was written by hand or found by a fuzzer.
//! Mutated inputs follow ([`mutator`]). A failing input is printed as a file to add to the corpus.

mod mutator;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::stream::Target;
use mutator::Mutator;

/// Runs the fuzz target called `name` on its corpus and on `inputs` mutated inputs, drawn from
/// `random`.
///
/// # Panics
/// When the target panics, is unknown, or has an empty corpus.
pub fn check(targets: &[(&str, Target)], name: &str, inputs: usize, random: Xoshiro256PlusPlus) {
    let &(_, target) = targets.iter().find(|(known, _)| *known == name).expect("a target of that name");
    let corpus = corpus(name);
    for input in &corpus {
        run(name, target, input);
    }
    let mut mutator = Mutator::new(&corpus, random);
    for _ in 0..inputs {
        run(name, target, &mutator.input());
    }
}

fn run(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        // The input is printed in single quotes, and `%b` does not support escaped quotes.
        let text = input.escape_ascii().to_string().replace(r"\'", r"\x27").replace(r#"\""#, r"\x22");
        eprintln!("keep what failed, under a name: printf '%b' '{text}' > fuzz/corpus/{name}/…");
        resume_unwind(panic);
    }
}

/// Returns the inputs in the files of `fuzz/corpus/<name>`, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds nothing to start from", folder.display());
    files.iter().map(|file| std::fs::read(file).expect("the file can be read")).collect()
}
