//! Simulated runs for the steps that a search of the frontier tries.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Axis, Knobs, Probe, STEPS_MAX, Tally, World};

use crate::exit::Failure;
use crate::sim::flags::{Flags, apply};
use crate::sim::inputs::Inputs;
use crate::sim::keep::{Finished, Keep};
use crate::sim::onerf::learning::{self, Attempt};
use crate::sim::onerf::subject::Subject;
use crate::sim::onerf::warm::WarmUps;
use crate::sim::play;
use crate::sim::study::{Run, Study};

/// Policies in one scenario, under conditions that are changed one at a time.
pub(super) struct Trials {
    flags: Flags,
    subject: Subject,
    policies: Vec<String>,
    /// Share of the observations that may violate the SLO.
    violation: f64,
    /// The unchanged conditions, as given by settings.
    knobs: Knobs,
    bound_ms: f64,
    /// Number of observations of the SLO in a run.
    observations: u64,
    warm_ups: WarmUps,
}

/// State of a run when its verdict was certain. It is kept instead of the verdict, because it also
/// decides other violation bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tried {
    pub(super) inputs: Inputs,
    pub(super) tally: Tally,
    /// The reason for a missing verdict when the trace ended early.
    pub(super) ended: Option<String>,
}

impl Finished for Tried {
    const PREFIX: &str = "tally_";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

impl Trials {
    /// Creates the trials after checking that each policy can be set up at both ends of all axes.
    /// Keeps at most `warm_ups` worlds for trials that share a warm-up.
    pub(super) fn new(
        flags: &Flags,
        subject: Subject,
        policies: Vec<String>,
        violation: f64,
        warm_ups: usize,
    ) -> Result<Self, Failure> {
        let mut knobs = Knobs::default();
        let settings = flags.all_settings();
        apply(&settings, |key, value| knobs.set(key, value))?;
        let setup = subject.setup(flags, &settings, "equal", 1)?;
        let observations = setup.observations().map_err(Failure::usage)?;
        let bound_ms = setup.model.slo().limit_ms;
        let (flags, warm_ups) = (flags.clone(), WarmUps::new(warm_ups));
        let trials = Self { flags, subject, policies, violation, knobs, bound_ms, observations, warm_ups };
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
        self.subject.name()
    }

    pub(super) fn scale(&self) -> &str {
        self.flags.scale()
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

    /// Returns the value of a condition at a step of the search.
    pub(super) fn value(&self, axis: Axis, step: i32) -> f64 {
        axis.value(axis.of(&self.knobs), step)
    }

    /// Returns the run to try: that of `sherwood sim run` with the varied condition as an
    /// additional setting.
    pub(super) fn run(&self, probe: Probe) -> Result<Run<Subject>, Failure> {
        let Probe { policy, seed, axis, step } = probe;
        let mut settings = self.flags.all_settings();
        let mut condition = String::new();
        if step != 0 {
            condition = format!("{axis}={}", self.value(axis, step));
            settings.push(condition.clone());
        }
        let mut run = Run::new(&self.subject, &self.flags, settings, &self.policies[policy], seed)?;
        if step != 0 {
            run.name = format!("{} {condition}", run.name);
        }
        Ok(run)
    }

    /// Executes a run until its verdict is certain or its trace ends; returns none when it was
    /// stopped.
    pub(super) fn make(
        &self,
        probe: Probe,
        run: &Run<Subject>,
        keep: &Keep,
        stop: &AtomicBool,
    ) -> Result<Option<Tried>, Failure> {
        // Only runs along this axis are equal until the end of the warm-up.
        let warm_ups = (probe.axis == Axis::Depth).then_some(&self.warm_ups);
        let tried = |tally, ended| Some(Tried { inputs: run.inputs.clone(), tally, ended });
        let mut world = match learning::begin(run, warm_ups, Some(keep), stop)? {
            Attempt::Done(world) => world,
            Attempt::Ended(why) => return Ok(tried(Tally::new(self.observations), Some(why))),
            Attempt::Stopped => return Ok(None),
        };
        let (mut tally, mut counted) = (Tally::new(self.observations), 0);
        let mut count = |world: &World| {
            let samples = world.samples();
            tally.count(&samples[counted..]);
            counted = samples.len();
            tally
        };
        let goes_on = |_: Duration, world: &World| count(world).verdict(self.violation).is_none();
        let ended = match play::play_while(&mut world, stop, goes_on) {
            Ok(true) => None,
            Ok(false) => return Ok(None),
            Err(halt) => Some(play::trace_end(halt)?),
        };
        Ok(tried(count(&world), ended))
    }
}
