//! Runs to be simulated, and the inputs that identify them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Setup, World};
use sherwood_workload::onerf::Model;

use super::flags::Flags;
use super::onerf::subject::Subject;
use crate::exit::Failure;

/// All inputs of a run; equal inputs give equal results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inputs {
    /// Version of Sherwood with a hash of the simulation's sources.
    pub(super) version: String,
    pub(super) scenario: String,
    /// Hash of the scenario file; none for a built-in scenario.
    pub(super) document: Option<String>,
    pub(super) policy: String,
    pub(super) seed: u64,
    pub(super) scale: String,
    /// Settings as typed, in order: later ones take precedence.
    pub(super) settings: Vec<String>,
}

/// Returns the version of Sherwood with a hash of the simulation's sources.
pub(super) fn version() -> String {
    concat!(env!("CARGO_PKG_VERSION"), "+", env!("SHERWOOD_SOURCES")).to_owned()
}

/// A run to be simulated.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) inputs: Inputs,
    pub(super) setup: Setup,
    /// Name of the run in messages.
    pub(super) name: String,
}

impl Run {
    pub(super) fn new(flags: &Flags, subject: &Subject, policy: &str, seed: u64) -> Result<Self, Failure> {
        let setup = subject.setup(flags, policy, seed)?;
        let inputs = Inputs {
            version: version(),
            scenario: subject.scenario.clone(),
            document: subject.document.clone(),
            policy: policy.to_owned(),
            seed,
            scale: flags.scale().to_owned(),
            settings: flags.all_settings(),
        };
        let name = format!("{} {policy} seed {seed}", subject.scenario);
        Ok(Self { inputs, setup, name })
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
        self.setup.duration().map_or(0, |duration| duration.as_secs())
    }
}

/// Returns a run for each scenario, policy and seed, in this order.
pub(super) fn of(
    flags: &Flags,
    subjects: &[Subject],
    policies: &[String],
    seeds: &[u64],
) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    for subject in subjects {
        for policy in policies {
            for &seed in seeds {
                runs.push(Run::new(flags, subject, policy, seed)?);
            }
        }
    }
    check(runs.iter().step_by(seeds.len().max(1)))?;
    Ok(runs)
}

/// Checks the setups before anything is simulated; the seed has no influence on this.
pub(super) fn check<'a>(mut runs: impl Iterator<Item = &'a Run>) -> Result<(), Failure> {
    runs.try_for_each(|run| World::new(&run.setup).map(drop).map_err(Failure::usage))
}

/// Returns the named scenarios, or all built-in ones that limit some backend.
pub(super) fn subjects(named: &[String]) -> Result<Vec<Subject>, Failure> {
    let built_in = Arc::new(Model::onerf());
    let all = built_in.scenarios().keys().filter(|name| *name != "none").cloned();
    let names = if named.is_empty() { all.collect() } else { named.to_vec() };
    let subjects = names.iter().map(|name| Subject::find(name, &built_in)).collect::<Result<Vec<_>, _>>()?;
    for (index, subject) in subjects.iter().enumerate() {
        if subjects[..index].iter().any(|other| other.scenario == subject.scenario) {
            return Err(Failure::usage(format!(
                "two of the scenarios are called `{}`, and results could not be told apart: rename one",
                subject.scenario
            )));
        }
    }
    Ok(subjects)
}

/// Removes duplicates and keeps the order.
pub(super) fn distinct<T: Clone + PartialEq>(given: &[T]) -> Vec<T> {
    let mut distinct = Vec::with_capacity(given.len());
    for one in given {
        if !distinct.contains(one) {
            distinct.push(one.clone());
        }
    }
    distinct
}
