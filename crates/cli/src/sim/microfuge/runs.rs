//! Runs of `microfuge`, and what is kept of them.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sherwood_sim::microfuge::{Results, SCENARIO, Sample, Setup, World};

use crate::exit::Failure;
use crate::sim::batch::Simulated;
use crate::sim::flags::Flags;
use crate::sim::keep::Finished;
use crate::sim::play;
use crate::sim::runs::{Inputs, version};

/// A run to be simulated.
#[derive(Clone, Debug)]
pub(super) struct Run {
    inputs: Inputs,
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
            scale: flags.scale().to_owned(),
            settings,
        };
        Ok(Self { inputs, setup })
    }
}

impl Simulated for Run {
    type Kept = Kept;

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    fn make(&self, stop: &AtomicBool) -> Result<Option<Kept>, Failure> {
        let mut world = World::new(&self.setup).map_err(Failure::usage)?;
        let began = Instant::now();
        if !play::play(&mut world, stop, |_, _| ())? {
            return Ok(None);
        }
        let outcome = Outcome::of(&world, began.elapsed());
        Ok(Some(Kept { inputs: self.inputs.clone(), outcome, samples: world.samples().to_vec() }))
    }
}
