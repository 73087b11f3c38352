//! Runs that are simulated by several threads and kept in files.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sherwood_sim::microfuge::{Results, SCENARIO, Sample, Setup, World};

use crate::exit::Failure;
use crate::interrupt;
use crate::sim::flags::Flags;
use crate::sim::keep::{Finished, Keep};
use crate::sim::runs::{Inputs, version};

/// A run to be simulated.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) inputs: Inputs,
    setup: Setup,
}

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    pub(super) inputs: Inputs,
    pub(super) outcome: Outcome,
    pub(super) samples: Vec<Sample>,
}

/// Results in the format of `sherwood sim run --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) results: Results,
    wall_s: f64,
    queries_per_s: f64,
}

/// Runs with the same settings and policy, one for each seed.
pub(super) struct Group {
    /// Value of the setting that has several values; none if no setting has.
    pub(super) value: Option<String>,
    pub(super) kept: Vec<Kept>,
}

impl Finished for Kept {
    const PREFIX: &str = "";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

impl Outcome {
    pub(super) fn of(world: &World, wall: Duration) -> Self {
        let wall_s = wall.as_secs_f64();
        Self { results: world.results(), wall_s, queries_per_s: world.requests() as f64 / wall_s }
    }
}

impl Run {
    /// Returns a run with these settings, which has been validated.
    pub(super) fn new(
        flags: &Flags,
        settings: Vec<String>,
        policy: &str,
        seed: u64,
    ) -> Result<Self, Failure> {
        let setup = super::setup(flags, &settings, policy, seed)?;
        World::new(&setup).map_err(Failure::usage)?;
        let inputs = Inputs {
            version: version(),
            scenario: SCENARIO.to_owned(),
            document: None,
            policy: policy.to_owned(),
            seed,
            scale: flags.scale.clone(),
            settings,
        };
        Ok(Self { inputs, setup })
    }

    /// Simulates the run; returns none when it was stopped.
    fn make(&self, stop: &AtomicBool) -> Result<Option<Kept>, Failure> {
        let mut world = World::new(&self.setup).map_err(Failure::usage)?;
        let began = Instant::now();
        if !play(&mut world, stop, |_| ())? {
            return Ok(None);
        }
        let outcome = Outcome::of(&world, began.elapsed());
        Ok(Some(Kept { inputs: self.inputs.clone(), outcome, samples: world.samples().to_vec() }))
    }
}

/// Simulated time between two checks for interrupts.
const STRIDE: Duration = Duration::from_secs(1);

/// Runs the world to its end, and calls `seen` with the time that has passed. Returns false when it
/// was stopped.
pub(super) fn play(world: &mut World, stop: &AtomicBool, seen: impl Fn(Duration)) -> Result<bool, Failure> {
    while world.now() < world.end() {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let before = world.now();
        world.advance(before + STRIDE).map_err(Failure::failed)?;
        seen(world.now() - before);
    }
    Ok(true)
}

/// Simulates the runs that are not kept yet, at most `threads` at a time, and returns the results
/// of all in the order of `runs`.
pub(super) fn make_all(keep: &Keep, runs: &[Run], threads: usize) -> Result<Vec<Kept>, Failure> {
    let mut kept: Vec<Option<Kept>> = Vec::with_capacity(runs.len());
    for run in runs {
        kept.push(keep.read(&run.inputs)?);
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
    kept.into_iter().collect::<Option<Vec<Kept>>>().ok_or_else(|| {
        Failure::interrupted(format!(
            "stopped with {finished} of {all} runs finished; they are kept in {}, and the same command goes on with the others",
            keep.directory()
        ))
    })
}
