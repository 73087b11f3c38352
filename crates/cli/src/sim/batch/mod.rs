//! Runs that are simulated by several threads and kept in files.

mod failures;
mod workers;

use super::keep::Keep;
use super::study::{KeptOf, Run, Study};
use crate::exit::Failure;
use crate::interrupt;
use crate::out;
use workers::Workers;

/// Simulates the runs without kept results, at most `threads` at a time, and returns the results of
/// all runs in the order of `runs`.
pub(super) fn make_all<S: Study>(
    keep: &Keep,
    runs: &[Run<S>],
    threads: usize,
) -> Result<Vec<KeptOf<S>>, Failure> {
    make_missing(keep, runs, threads)?;
    let gone = |run: &Run<S>| {
        Failure::failed(format!("the finished run {} is gone: did anybody remove it?", run.name))
    };
    runs.iter().map(|run| keep.read(&run.inputs)?.ok_or_else(|| gone(run))).collect()
}

/// Executes the runs without kept results, at most `threads` at a time.
fn make_missing<S: Study>(keep: &Keep, runs: &[Run<S>], threads: usize) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for run in runs {
        if keep.read::<KeptOf<S>>(&run.inputs)?.is_none() {
            missing.push(run);
        }
    }
    let (all, missed) = (runs.len(), missing.len());
    if missed == 0 {
        return Ok(());
    }
    if missed < all {
        out::say(format_args!("{} of {all} runs are kept in {}", all - missed, keep.directory()));
    }
    let stop = interrupt::stop_flag()?;
    let (finished, failure) = Workers::new(keep, &stop, &missing, threads)?.work(threads.min(missed));
    let there = all - missed + finished;
    let kept = format!(
        "{there} of {all} runs finished; they are kept in {}, and the same command goes on with the others",
        keep.directory()
    );
    match failure {
        Some(failure) => Err(failure.and(format_args!("so there is no result of all: {kept}"))),
        None if finished < missed => Err(Failure::interrupted(format!("stopped with {kept}"))),
        None => Ok(()),
    }
}
