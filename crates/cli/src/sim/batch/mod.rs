//! Runs that are simulated by several threads and kept in files.

mod failures;
mod family;
pub(super) mod workers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Failure;
use crate::interrupt;
use crate::sim::keep::{Finished, Keep};
use crate::sim::runs::Inputs;

/// A run to be simulated.
pub(super) trait Simulated: Sync {
    /// Part of it that is kept.
    type Kept: Finished + Send;

    /// The inputs that identify it.
    fn inputs(&self) -> &Inputs;

    /// Simulates the run; returns none when it was stopped.
    fn make(&self, stop: &AtomicBool) -> Result<Option<Self::Kept>, Failure>;
}

/// Simulates the runs that are not kept yet, at most `threads` at a time, and returns the results
/// of all in the order of `runs`.
pub(super) fn make_all<R: Simulated>(
    keep: &Keep,
    runs: &[R],
    threads: usize,
) -> Result<Vec<R::Kept>, Failure> {
    let mut kept: Vec<Option<R::Kept>> = Vec::with_capacity(runs.len());
    for run in runs {
        kept.push(keep.read(run.inputs())?);
    }
    let missing: Vec<usize> = (0..runs.len()).filter(|index| kept[*index].is_none()).collect();
    if !missing.is_empty() {
        let stop = interrupt::stop_flag()?;
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left");
        let bar = ProgressBar::new(missing.len() as u64).with_style(style.expect("a valid template"));
        let taken = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some(&index) = missing.get(taken.fetch_add(1, Relaxed)) {
                let Some(one) = runs[index].make(&stop).inspect_err(|_| stop.store(true, Relaxed))? else {
                    break;
                };
                keep.write(&one).inspect_err(|_| stop.store(true, Relaxed))?;
                bar.inc(1);
                made.push((index, one));
            }
            Ok(made)
        };
        let made: Result<Vec<_>, Failure> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.min(missing.len())).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().expect("runs do not panic")).collect()
        });
        bar.finish_and_clear();
        for (index, one) in made?.into_iter().flatten() {
            kept[index] = Some(one);
        }
    }
    let (all, finished) = (kept.len(), kept.iter().flatten().count());
    kept.into_iter().collect::<Option<Vec<R::Kept>>>().ok_or_else(|| {
        Failure::interrupted(format!(
            "stopped with {finished} of {all} runs finished; they are kept in {}, and the same command goes on with the others",
            keep.directory()
        ))
    })
}
