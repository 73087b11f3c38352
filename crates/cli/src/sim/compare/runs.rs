//! Which runs a comparison is made of.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Setup, World};
use sherwood_workload::onerf::Model;

use crate::exit::Failure;
use crate::sim::flags::Flags;
use crate::sim::subject::Subject;

/// What a run follows from; equal inputs give equal results in one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inputs {
    /// Of Sherwood.
    pub(super) version: String,
    pub(super) scenario: String,
    /// Of the file the scenario is from, a number that tells its contents apart; none for what is built in.
    pub(super) document: Option<String>,
    pub(super) policy: String,
    pub(super) seed: u64,
    pub(super) scale: String,
    /// As typed, in order: later ones overrule.
    pub(super) settings: Vec<String>,
}

/// A run that is to be made.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) inputs: Inputs,
    pub(super) setup: Setup,
}

impl Run {
    fn new(flags: &Flags, subject: &Subject, policy: &str, seed: u64) -> Result<Self, Failure> {
        let setup = subject.setup(flags, policy, seed)?;
        let inputs = Inputs {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: subject.scenario.clone(),
            document: subject.document.clone(),
            policy: policy.to_owned(),
            seed,
            scale: flags.scale.clone(),
            settings: flags.all_settings(),
        };
        Ok(Self { inputs, setup })
    }

    /// Simulated seconds it takes.
    pub(super) fn seconds(&self) -> u64 {
        self.setup.duration().map_or(0, |duration| duration.as_secs())
    }

    /// The run as a line names it.
    pub(super) fn name(&self) -> String {
        let Inputs { scenario, policy, seed, .. } = &self.inputs;
        format!("{scenario} {policy} seed {seed}")
    }
}

/// One run for each scenario, policy and seed, in this order.
pub(super) fn of(
    flags: &Flags,
    subjects: &[Subject],
    policies: &[String],
    seeds: &[u64],
) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    for subject in subjects {
        for policy in policies {
            let first = runs.len();
            for &seed in seeds {
                runs.push(Run::new(flags, subject, policy, seed)?);
            }
            // What cannot be simulated is refused before anything is; no seed makes a difference to that.
            if let Some(run) = runs.get(first) {
                World::new(&run.setup).map_err(Failure::usage)?;
            }
        }
    }
    Ok(runs)
}

/// The scenarios that are named, or all of the built-in model that limit something.
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
