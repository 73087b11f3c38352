//! Threads that execute the missing runs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar};
use sherwood_sim::{Results, Setup, World};

use super::failures::Failures;
use super::family::{Family, State};
use crate::exit::Failure;
use crate::out;
use crate::sim::keep::Keep;
use crate::sim::onerf::kept::{Kept, RunOutcome};
use crate::sim::onerf::learning::{Learned, Learning};
use crate::sim::onerf::plotted::Series;
use crate::sim::runs::{Inputs, Run};
use crate::sim::{play, progress};

/// Threads that take one family of runs after another, the longest first, each on one core. A
/// thread that finds no family left helps with those in progress.
///
/// At most one family per thread is in progress, so memory is bounded by two worlds per thread:
/// that at the end of the warm-up, and the one that continues from it.
pub(in crate::sim) struct Workers<'a> {
    keep: &'a Keep,
    stop: &'a AtomicBool,
    /// Families in the order in which they are taken.
    families: Vec<Family<'a>>,
    taken: AtomicUsize,
    runs: usize,
    finished: AtomicUsize,
    failures: Failures,
    /// Locks of learned allocations of policy `tao`, held while one is learned. Other threads wait,
    /// then find it kept.
    learnings: BTreeMap<Inputs, Mutex<()>>,
    began: Instant,
    bar: ProgressBar,
}

impl<'a> Workers<'a> {
    /// Creates the threads' shared state for the missing runs.
    ///
    /// # Errors
    /// When a run's scenario is invalid.
    pub(in crate::sim) fn new(
        keep: &'a Keep,
        stop: &'a AtomicBool,
        mut runs: Vec<&'a Run>,
    ) -> Result<Self, Failure> {
        runs.sort_by_key(|run| std::cmp::Reverse(run.seconds()));
        let mut families = Family::all(&runs)?;
        let mut learnings = BTreeMap::new();
        for run in &runs {
            if let Some(learning) = Learning::of(run)? {
                learnings.insert(learning.inputs().clone(), Mutex::default());
            }
        }
        let learns = |family: &Family<'_>| matches!(family.runs[0].setup.learning(), Ok(Some(_)));
        // Runs that require learning come last, so that those of one seed wait for each other only
        // once.
        families.sort_by_key(|family| (learns(family), std::cmp::Reverse(family.seconds())));
        let bar = progress::bar("the simulated time", families.iter().map(Family::seconds).sum());
        Ok(Self {
            keep,
            stop,
            learnings,
            families,
            runs: runs.len(),
            taken: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            failures: Failures::default(),
            began: Instant::now(),
            bar,
        })
    }

    /// Works until all runs are finished and kept, except those of failed scenarios, or the command
    /// is stopped. Returns the number of finished runs, and the failures.
    pub(in crate::sim) fn work(self, threads: usize) -> (usize, Option<Failure>) {
        let outcomes: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.take_families())).collect();
            threads.into_iter().map(|thread| thread.join().expect("runs do not panic")).collect()
        });
        self.bar.finish_and_clear();
        let stopped_by = outcomes.into_iter().find_map(Result::err);
        (self.finished.load(Relaxed), stopped_by.or(self.failures.into_one()))
    }

    fn take_families(&self) -> Result<(), Failure> {
        while let Some(family) = self.families.get(self.taken.fetch_add(1, Relaxed)) {
            self.take_runs(family)?;
        }
        self.families.iter().try_for_each(|family| self.take_runs(family))
    }

    /// Executes the runs of a family that no other thread has taken.
    fn take_runs(&self, family: &Family<'_>) -> Result<(), Failure> {
        while !self.stop.load(Relaxed) {
            let Some(begun) = self.begin(family) else { break };
            let run = begun.run;
            match self.make(begun) {
                Ok(Some((kept, wall))) => {
                    // If one result cannot be kept, the others cannot either, so all work stops.
                    let written = self.keep.write(&kept).map_err(|failure| run.failed(failure));
                    written.inspect_err(|_| self.stop.store(true, Relaxed))?;
                    self.say(run, &kept.outcome.results, wall);
                }
                Ok(None) => {}
                Err(failure) => self.fail(run, failure),
            }
        }
        Ok(())
    }

    /// Takes the next run of a family; returns none when there are no more or the command was
    /// stopped. The first run includes the warm-up, the others start from a copy of the world at
    /// its end.
    fn begin<'r>(&self, family: &Family<'r>) -> Option<Begun<'r>> {
        let mut state = family.state();
        while let Some(&run) = family.runs.get(state.taken) {
            if self.failures.are_of(run) {
                state.taken += 1;
                continue;
            }
            match self.begin_run(family, run, &mut state) {
                Ok(begun) => return begun,
                Err(failure) => self.fail(run, failure),
            }
        }
        state.warm = None;
        None
    }

    /// Records the failure; no further runs of this scenario are started.
    fn fail(&self, run: &Run, failure: Failure) {
        if self.failures.note(run, run.failed(failure)) {
            self.bar.suspend(|| out::say(format_args!("{}: failed, as told at the end", run.name)));
        }
    }

    fn begin_run<'r>(
        &self,
        family: &Family<'r>,
        run: &'r Run,
        state: &mut State,
    ) -> Result<Option<Begun<'r>>, Failure> {
        let mut setup = run.setup.clone();
        if let Some(learning) = Learning::of(run)? {
            let Some(sizes) = self.learn(&learning)? else { return Ok(None) };
            setup.knobs.control.tao.budgets_bytes = sizes;
        }
        let began = Instant::now();
        state.taken += 1;
        let left = family.runs.len() - state.taken;
        let mut inherited = 0;
        let world = match &mut state.warm {
            Some(warm) => {
                inherited = warm.queries();
                warm.fork(&setup).map_err(Failure::usage)?
            }
            None => {
                let mut world = World::new(&setup).map_err(Failure::usage)?;
                if left > 0 {
                    if !play::warm_up(&mut world, self.stop, |passed| self.bar.inc(passed.as_secs()))? {
                        return Ok(None);
                    }
                    state.warm = Some(world.fork(&setup).map_err(Failure::usage)?);
                }
                world
            }
        };
        if left == 0 {
            state.warm = None;
        }
        Ok(Some(Begun { run, world, began, inherited }))
    }

    /// Executes a run to its end and returns the time it took; none when it was stopped.
    fn make(&self, begun: Begun<'_>) -> Result<Option<(Kept, Duration)>, Failure> {
        let Begun { run, mut world, began, inherited } = begun;
        if !play::play(&mut world, self.stop, |passed, _| self.bar.inc(passed.as_secs()))? {
            return Ok(None);
        }
        let wall = began.elapsed();
        Ok(Some((kept(run, &world, wall, inherited), wall)))
    }

    /// Returns the sizes that policy `tao` uses in a run; none when learning was stopped.
    fn learn(&self, learning: &Learning) -> Result<Option<Vec<u64>>, Failure> {
        let _lock = self.learnings[learning.inputs()].lock().expect("no panics while held");
        let begin = |setup: &Setup| World::new(setup).map(Some).map_err(Failure::usage);
        match learning.find(self.keep, self.stop, begin)? {
            Learned::Sizes(sizes) => Ok(Some(sizes)),
            Learned::Ended(why) => Err(Failure::failed(why)),
            Learned::Stopped => Ok(None),
        }
    }

    fn say(&self, run: &Run, results: &Results, wall: Duration) {
        let finished = self.finished.fetch_add(1, Relaxed) + 1;
        let line = format!(
            "{}: {:.2}% violations, in {}; {finished} of {} finished, about {} left",
            run.name,
            results.slo_violation_ratio * 100.0,
            HumanDuration(wall),
            self.runs,
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

/// A run that a thread has started.
struct Begun<'a> {
    run: &'a Run,
    world: World,
    began: Instant,
    /// Keys that were looked up before the run began, in a shared warm-up.
    inherited: u64,
}

fn kept(run: &Run, world: &World, wall: Duration, inherited: u64) -> Kept {
    let wall_s = wall.as_secs_f64();
    let queries = world.queries() - inherited;
    let names = run.setup.model.backends().iter().map(|backend| backend.name.clone());
    Kept {
        inputs: run.inputs.clone(),
        outcome: RunOutcome { results: world.results(), wall_s, queries_per_s: queries as f64 / wall_s },
        series: Series::of(names, world.samples()),
    }
}
