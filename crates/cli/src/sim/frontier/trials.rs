//! From a place that is to be tried to the run that tries it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Axis, Knobs, Probe, STEPS_MAX, Setup, Tally, World};

use crate::exit::Failure;
use crate::sim::flags::Flags;
use crate::sim::keep::Finished;
use crate::sim::play;
use crate::sim::runs::{Inputs, Run};
use crate::sim::subject::Subject;

/// Policies in one scenario, under conditions that are changed one at a time.
pub(super) struct Trials {
    flags: Flags,
    subject: Subject,
    policies: Vec<String>,
    /// Share of the observations that may violate the SLO.
    violation: f64,
    /// What the conditions are, as far as settings say.
    knobs: Knobs,
    bound_ms: f64,
    /// Observations of a run.
    observations: u64,
}

/// How a run stood when its verdict was certain. Kept rather than the verdict: other bounds may be judged by it too.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tried {
    pub(super) inputs: Inputs,
    pub(super) tally: Tally,
}

impl Finished for Tried {
    const PREFIX: &str = "tally_";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

impl Trials {
    /// Trials that can be made: each policy is set up at both ends of all axes.
    pub(super) fn new(
        flags: &Flags,
        subject: Subject,
        policies: Vec<String>,
        violation: f64,
    ) -> Result<Self, Failure> {
        let mut knobs = Knobs::default();
        flags.apply(&mut knobs)?;
        let setup = subject.setup(flags, "equal", 1)?;
        let observations = setup.observations().map_err(Failure::usage)?;
        let bound_ms = setup.model.slo().limit_ms;
        let trials =
            Self { flags: flags.clone(), subject, policies, violation, knobs, bound_ms, observations };
        if observations == 0 {
            return Err(Failure::usage(
                "no observation of the SLO falls into the measurement, so nothing can be violated: \
                 lengthen it with --set minutes=WARM-UP+MEASURED",
            ));
        }
        for axis in Axis::ALL {
            if trials.value(axis, 0) == 0.0 {
                return Err(Failure::usage(format!(
                    "--set {axis}=0 leaves nothing that could be made harder; set it above 0"
                )));
            }
            for (policy, step) in
                (0..trials.policies.len()).flat_map(|policy| [-1, 1].map(|end| (policy, end)))
            {
                let run = trials.run(Probe { policy, seed: 1, axis, step: step * STEPS_MAX })?;
                World::new(&run.setup).map_err(|error| {
                    Failure::usage(format!("at the end of the search, {}: {error}", run.name))
                })?;
            }
        }
        Ok(trials)
    }

    pub(super) fn policies(&self) -> &[String] {
        &self.policies
    }

    pub(super) fn scenario(&self) -> &str {
        &self.subject.scenario
    }

    pub(super) fn scale(&self) -> &str {
        &self.flags.scale
    }

    pub(super) fn violation(&self) -> f64 {
        self.violation
    }

    pub(super) fn bound_ms(&self) -> f64 {
        self.bound_ms
    }

    pub(super) fn observations(&self) -> u64 {
        self.observations
    }

    /// The value of a condition at a step.
    pub(super) fn value(&self, axis: Axis, step: i32) -> f64 {
        axis.value(axis.of(&self.knobs), step)
    }

    /// The run that tries a place: the one of `sherwood sim run` with the condition as one more setting.
    pub(super) fn run(&self, probe: Probe) -> Result<Run, Failure> {
        let Probe { policy, seed, axis, step } = probe;
        let mut flags = self.flags.clone();
        let mut condition = String::new();
        if step != 0 {
            condition = format!("{axis}={}", self.value(axis, step));
            flags.settings.push(condition.clone());
        }
        let mut run = Run::new(&flags, &self.subject, &self.policies[policy], seed)?;
        if step != 0 {
            run.name = format!("{} {condition}", run.name);
        }
        Ok(run)
    }

    /// Makes a run until its verdict is certain; none when it was stopped before.
    pub(super) fn make(&self, run: &Run, stop: &AtomicBool) -> Result<Option<Tried>, Failure> {
        let Some(setup) = learnt(&run.setup, stop)? else { return Ok(None) };
        let mut world = World::new(&setup).map_err(Failure::usage)?;
        let goes_on = |_: Duration, world: &World| {
            Tally::of(world.samples(), self.observations).verdict(self.violation).is_none()
        };
        if !play::play_while(&mut world, stop, goes_on)? {
            return Ok(None);
        }
        let tally = Tally::of(world.samples(), self.observations);
        Ok(Some(Tried { inputs: run.inputs.clone(), tally }))
    }
}

/// The setup with what it has to learn from another run, under its own conditions; none when that was stopped.
fn learnt(setup: &Setup, stop: &AtomicBool) -> Result<Option<Setup>, Failure> {
    let mut setup = setup.clone();
    if let Some(learning) = setup.learning().map_err(Failure::usage)? {
        let Some(sizes) = play::learn(&learning, stop, |_, _| ())? else { return Ok(None) };
        setup.knobs.control.tao.budgets_bytes = sizes;
    }
    Ok(Some(setup))
}
