//! Threads that execute the runs without kept results.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar};

use super::failures::Failures;
use crate::exit::Failure;
use crate::out;
use crate::sim::keep::Keep;
use crate::sim::play::{self, Played};
use crate::sim::progress;
use crate::sim::study::{KeptOf, Run, Shared, Study};

/// Threads that execute one run after another, each on one core.
pub(super) struct Workers<'a, S: Study> {
    keep: &'a Keep,
    stop: &'a AtomicBool,
    /// Runs in the order in which the threads take them.
    runs: Vec<&'a Run<S>>,
    shared: S::Shared,
    taken: AtomicUsize,
    finished: AtomicUsize,
    failures: Failures,
    began: Instant,
    bar: ProgressBar,
}

impl<'a, S: Study> Workers<'a, S> {
    /// Creates the state of `threads` threads, which will execute `runs`.
    ///
    /// # Errors
    /// When a run's scenario is invalid.
    pub(super) fn new(
        keep: &'a Keep,
        stop: &'a AtomicBool,
        runs: &[&'a Run<S>],
        threads: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            keep,
            stop,
            runs: in_order(runs, threads),
            shared: S::Shared::of(runs, threads)?,
            taken: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            failures: Failures::default(),
            began: Instant::now(),
            bar: progress::bar("the simulated time", runs.iter().map(|run| run.seconds()).sum()),
        })
    }

    /// Executes runs until all of them are finished and kept, except those of failed scenarios, or
    /// the command is stopped. Returns the number of finished runs, and the failures.
    pub(super) fn work(self, threads: usize) -> (usize, Option<Failure>) {
        let outcomes: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.take_runs())).collect();
            threads.into_iter().map(|thread| thread.join().expect("runs do not panic")).collect()
        });
        self.bar.finish_and_clear();
        let stopped_by = outcomes.into_iter().find_map(Result::err);
        (self.finished.load(Relaxed), stopped_by.or(self.failures.into_one()))
    }

    fn take_runs(&self) -> Result<(), Failure> {
        while !self.stop.load(Relaxed)
            && let Some(&run) = self.runs.get(self.taken.fetch_add(1, Relaxed))
        {
            if self.failures.are_of(run) {
                continue;
            }
            let began = Instant::now();
            match self.make(run, began) {
                Ok(Some(kept)) => {
                    // If one result cannot be kept, the others cannot either, so all work stops.
                    let written = self.keep.write(&kept).map_err(|failure| run.failed(failure));
                    written.inspect_err(|_| self.stop.store(true, Relaxed))?;
                    self.say(run, &kept.outcome.results, began.elapsed());
                }
                Ok(None) => break,
                Err(failure) => self.fail(run, failure),
            }
        }
        Ok(())
    }

    /// Records the failure of a run; no further runs of its scenario are started.
    fn fail(&self, run: &Run<S>, failure: Failure) {
        if self.failures.note(run, run.failed(failure)) {
            self.bar.suspend(|| out::say(format_args!("{}: failed, as told at the end", run.name)));
        }
    }

    /// Executes a run to its end; returns none when it was stopped.
    fn make(&self, run: &Run<S>, began: Instant) -> Result<Option<KeptOf<S>>, Failure> {
        let Some(mut world) = S::begin(run, &self.shared, Some(self.keep), self.stop)? else {
            return Ok(None);
        };
        let inherited = world.queries();
        let seen = |passed: Duration| self.bar.inc(passed.as_secs());
        seen(world.now() - sherwood_model::Instant::ZERO);
        if !play::play(&mut world, self.stop, |passed, _| seen(passed))? {
            return Ok(None);
        }
        Ok(Some(run.kept(&world, world.queries() - inherited, began.elapsed())))
    }

    fn say(&self, run: &Run<S>, results: &S::Results, wall: Duration) {
        let finished = self.finished.fetch_add(1, Relaxed) + 1;
        let line = format!(
            "{}: {}, in {}; {finished} of {} finished, about {} left",
            run.name,
            S::headline(results),
            HumanDuration(wall),
            self.runs.len(),
            self.left(),
        );
        self.bar.suspend(|| out::say(line));
    }

    /// Estimates the remaining time of all runs from the simulated time per second so far.
    fn left(&self) -> impl Display {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let share = all.saturating_sub(done) as f64 / done.max(1) as f64;
        HumanDuration(self.began.elapsed().mul_f64(share))
    }
}

/// Returns the runs in the order in which the threads take them. Runs that differ only in the
/// scenario may share a warm-up, so they are close to each other; but while the warm-up is
/// simulated, the other threads have runs with other policies and seeds.
fn in_order<'a, S: Study>(runs: &[&'a Run<S>], threads: usize) -> Vec<&'a Run<S>> {
    let key = |run: &'a Run<S>| (&run.inputs.policy, run.inputs.seed, &run.inputs.settings);
    let mut families: Vec<Vec<&'a Run<S>>> = Vec::new();
    for &run in runs {
        match families.iter_mut().find(|family| key(family[0]) == key(run)) {
            Some(family) => family.push(run),
            None => families.push(vec![run]),
        }
    }
    let longest = families.iter().map(Vec::len).max().unwrap_or(0);
    let together = families.chunks(threads.max(1)).flat_map(|families| {
        (0..longest).flat_map(move |place| families.iter().filter_map(move |family| family.get(place)))
    });
    together.copied().collect()
}
