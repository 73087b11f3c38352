//! Runs of scenarios of tenants, and what is kept of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sherwood_sim::tenants::{Measured, Results, Sample, Setup, World};

use super::subject::Subject;
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
    pub(super) setup: Setup,
    /// Figures of the run of `baseline` that this one is judged against; none if it is that run.
    base: Option<Arc<Measured>>,
}

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    pub(super) inputs: Inputs,
    pub(super) outcome: Outcome,
    pub(super) measured: Measured,
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

/// Policy that the others are judged against.
pub(super) const BASELINE: &str = "baseline";

impl Finished for Kept {
    const PREFIX: &str = "";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

impl Outcome {
    /// Returns the results of a world at its end; of `baseline`, without figures to compare with.
    pub(super) fn of(world: &World, base: Option<&Measured>, wall: Duration) -> Self {
        let results = match base {
            Some(base) => world.results(base),
            None => world.results(&world.measured()),
        };
        let wall_s = wall.as_secs_f64();
        Self { results, wall_s, queries_per_s: world.requests() as f64 / wall_s }
    }
}

impl Run {
    /// Returns a run with these settings, which has been validated.
    pub(super) fn new(
        flags: &Flags,
        subject: &Subject,
        settings: Vec<String>,
        policy: &str,
        seed: u64,
    ) -> Result<Self, Failure> {
        let setup = subject.setup(flags, &settings, policy, seed)?;
        World::new(&setup).map_err(Failure::usage)?;
        let inputs = Inputs {
            version: version(),
            scenario: subject.name.clone(),
            document: subject.document.clone(),
            policy: policy.to_owned(),
            seed,
            scale: subject.scale(flags),
            settings,
        };
        Ok(Self { inputs, setup, base: None })
    }

    /// Returns the run with the figures of the run of `baseline` with the same seed.
    pub(super) fn against(self, base: Arc<Measured>) -> Self {
        Self { base: Some(base), ..self }
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
        let outcome = Outcome::of(&world, self.base.as_deref(), began.elapsed());
        let (measured, samples) = (world.measured(), world.samples().to_vec());
        Ok(Some(Kept { inputs: self.inputs.clone(), outcome, measured, samples }))
    }
}
