//! Kinds of simulations, their runs, and the results that are kept.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sherwood_sim::TraceStop;

use super::flags::Flags;
use super::inputs::{Inputs, version};
use super::keep::{Finished, Keep};
use super::play::Played;
use crate::exit::Failure;

/// A scenario of a kind of simulation. Each kind has its own world, policies, settings and results.
pub(super) trait Study: Clone + Sync {
    /// The simulated world.
    type World: Played;
    /// Figures of a run.
    type Results: Clone + Serialize + DeserializeOwned;
    /// Observations of a run that reports need in addition to its results.
    type Observed: Clone + Serialize + DeserializeOwned;
    /// State shared by the runs of a command.
    type Shared: Shared<Self>;

    /// The policy that all others are compared with, if there is one.
    const BASELINE: Option<&str> = None;

    /// The scenario's name.
    fn name(&self) -> &str;

    /// Hash of the scenario file; none for a built-in scenario.
    fn document(&self) -> Option<&str> {
        None
    }

    /// Returns the scale of a run: the one given on the command line, or the default.
    fn scale<'a>(&self, flags: &'a Flags) -> &'a str {
        flags.scale()
    }

    /// Returns the setup of a run with these settings.
    fn setup(
        &self,
        flags: &Flags,
        settings: &[String],
        policy: &str,
        seed: u64,
    ) -> Result<SetupOf<Self>, Failure>;

    /// Returns the world of a run, in which a part of the warm-up may already be simulated. Results
    /// of other runs that it needs are kept in `_keep`. Returns none if the command was stopped.
    fn begin(
        run: &Run<Self>,
        _shared: &Self::Shared,
        _keep: Option<&Keep>,
        _stop: &AtomicBool,
    ) -> Result<Option<Self::World>, Failure> {
        Self::World::of(&run.setup).map(Some)
    }

    /// Returns the reason why the trace ended too early, if it did.
    fn trace_stop(_world: &Self::World) -> Option<&TraceStop> {
        None
    }

    /// Returns the results of a world at its end.
    fn results(world: &Self::World) -> Self::Results;

    /// Returns the observations of a world at its end.
    fn observed(setup: &SetupOf<Self>, world: &Self::World) -> Self::Observed;

    /// Compares a run with the baseline's run with the same seed.
    fn judge(_kept: &mut KeptOf<Self>, _base: &KeptOf<Self>) {}

    /// Describes the results in a few words.
    fn headline(results: &Self::Results) -> String;

    /// Formats the results of a run as text.
    fn text(outcome: &Outcome<Self::Results>) -> String;

    /// Formats the observations of a run over time as CSV.
    fn series(setup: &SetupOf<Self>, world: &Self::World) -> String;
}

/// Scenario, policy, seed and settings of a run of the study `S`.
pub(super) type SetupOf<S> = <<S as Study>::World as Played>::Setup;

/// State shared by the runs of a command.
pub(super) trait Shared<S: Study>: Sync + Sized {
    /// Returns the state for these runs on this number of threads.
    fn of(runs: &[&Run<S>], threads: usize) -> Result<Self, Failure>;
}

/// No state.
impl<S: Study> Shared<S> for () {
    fn of(_: &[&Run<S>], _: usize) -> Result<(), Failure> {
        Ok(())
    }
}

/// A run to be simulated.
pub(super) struct Run<S: Study> {
    pub(super) inputs: Inputs,
    pub(super) setup: SetupOf<S>,
    /// Name of the run in messages.
    pub(super) name: String,
}

/// A finished run of the study `S`.
pub(super) type KeptOf<S> = Kept<<S as Study>::Results, <S as Study>::Observed>;

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept<R, O> {
    pub(super) inputs: Inputs,
    pub(super) outcome: Outcome<R>,
    pub(super) observed: O,
}

/// Results in the format of `sherwood sim run --json`, with the cost of computing them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome<R> {
    #[serde(flatten)]
    pub(super) results: R,
    pub(super) wall_s: f64,
    pub(super) queries_per_s: f64,
}

impl<R: Serialize + DeserializeOwned, O: Serialize + DeserializeOwned> Finished for Kept<R, O> {
    const PREFIX: &str = "";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

impl<S: Study> Run<S> {
    /// Returns the run of a policy with these settings.
    pub(super) fn new(
        study: &S,
        flags: &Flags,
        settings: Vec<String>,
        policy: &str,
        seed: u64,
    ) -> Result<Self, Failure> {
        let setup = study.setup(flags, &settings, policy, seed)?;
        let inputs = Inputs {
            version: version(),
            scenario: study.name().to_owned(),
            document: study.document().map(str::to_owned),
            policy: policy.to_owned(),
            seed,
            scale: study.scale(flags).to_owned(),
            settings,
        };
        Ok(Self { inputs, setup, name: format!("{} {policy} seed {seed}", study.name()) })
    }

    /// Checks the setup before anything is simulated.
    pub(super) fn check(&self) -> Result<(), Failure> {
        S::World::of(&self.setup).map(drop)
    }

    /// Adds the run's inputs to a failure.
    pub(super) fn failed(&self, failure: Failure) -> Failure {
        let Inputs { version: _, scenario, document: _, policy, seed, scale, settings } = &self.inputs;
        let settings = if settings.is_empty() { "none".to_owned() } else { settings.join(" ") };
        failure.of(format_args!(
            "the run of {scenario} under {policy} with seed {seed} at scale {scale}, settings {settings}"
        ))
    }

    /// Simulated seconds of the run.
    pub(super) fn seconds(&self) -> u64 {
        S::World::duration(&self.setup).as_secs()
    }

    /// Returns the data to keep of a finished run, from its world at the end and the number of
    /// `queries` that were simulated in the real time `wall`.
    pub(super) fn kept(&self, world: &S::World, queries: u64, wall: Duration) -> KeptOf<S> {
        let wall_s = wall.as_secs_f64();
        Kept {
            inputs: self.inputs.clone(),
            outcome: Outcome { results: S::results(world), wall_s, queries_per_s: queries as f64 / wall_s },
            observed: S::observed(&self.setup, world),
        }
    }
}
