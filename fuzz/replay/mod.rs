//! The fuzz targets with a fixed number of inputs from a fixed seed, so that every run of the suite
//! is the same run.
//!
//! The kept corpus comes first: each of its files is an input somebody thought of or a fuzzer
//! found. Then come inputs made of them ([`mutator`]). What fails is shown as a file that belongs
//! into the corpus.

mod mutator;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::stream::Target;
use mutator::Mutator;

/// Runs the one of `targets` that is called `name` on its corpus and on so many other inputs, drawn
/// from `random`.
///
/// # Panics
/// When it does, or there is no such target or nothing in its corpus.
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
