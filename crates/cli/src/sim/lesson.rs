//! What policy `tao` learns before its run.
//!
//! It freezes the sizes that RobinHood finds in another run, which may take longer to simulate than
//! what needs them. So what was found is kept by what it follows from, the inputs of that run of
//! RobinHood, and whoever needs it looks there first.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Setup, World};

use super::keep::{Finished, Keep};
use super::play;
use super::runs::{Inputs, Run};
use crate::exit::Failure;

/// What a run has to learn from another one.
pub(super) struct Lesson {
    /// The run it is learnt from.
    learning: Setup,
    inputs: Inputs,
}

/// How far learning came.
pub(super) enum Learnt {
    /// The sizes, in bytes, in the order of the backends.
    Sizes(Vec<u64>),
    /// The trace ended before, for this reason.
    Ended(String),
    Stopped,
}

/// What is kept of a lesson.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    inputs: Inputs,
    sizes: Vec<u64>,
}

impl Finished for Sizes {
    const PREFIX: &str = "sizes_";

    fn inputs(&self) -> &Inputs {
        &self.inputs
    }
}

impl Lesson {
    /// What `run` has to learn; none where it knows all it needs.
    pub(super) fn of(run: &Run) -> Result<Option<Self>, Failure> {
        let Some(learning) = run.setup.learning().map_err(Failure::usage)? else { return Ok(None) };
        let (scenario, policy) = (learning.scenario.clone(), learning.policy.clone());
        Ok(Some(Self { learning, inputs: Inputs { scenario, policy, ..run.inputs.clone() } }))
    }

    /// The run it is learnt from.
    pub(super) fn setup(&self) -> &Setup {
        &self.learning
    }

    /// What the lesson follows from; those with equal ones are the same.
    pub(super) fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The sizes that were kept, or else those that are learnt in the world that `begin` makes, and
    /// kept; no world is a stop.
    pub(super) fn find(
        &self,
        keep: &Keep,
        stop: &AtomicBool,
        begin: impl FnOnce(&Setup) -> Result<Option<World>, Failure>,
    ) -> Result<Learnt, Failure> {
        if let Some(Sizes { sizes, .. }) = keep.read(&self.inputs)? {
            return Ok(Learnt::Sizes(sizes));
        }
        let Some(world) = begin(&self.learning)? else { return Ok(Learnt::Stopped) };
        let learnt = self.learn(world, stop, |_| ())?;
        if let Learnt::Sizes(sizes) = &learnt {
            keep.write(&Sizes { inputs: self.inputs.clone(), sizes: sizes.clone() })?;
        }
        Ok(learnt)
    }

    /// Learns from the run that `world` begins, and tells `seen` how much time passed, again and
    /// again.
    pub(super) fn learn(
        &self,
        mut world: World,
        stop: &AtomicBool,
        mut seen: impl FnMut(Duration),
    ) -> Result<Learnt, Failure> {
        let goes_on = |passed: Duration, _: &World| {
            seen(passed);
            true
        };
        match play::play_while(&mut world, stop, goes_on) {
            Ok(true) => {}
            Ok(false) => return Ok(Learnt::Stopped),
            Err(halt) => return play::trace_end(halt).map(Learnt::Ended),
        }
        let sizes = world.learnt(self.learning.knobs.control.tao.mode);
        if sizes.is_empty() {
            return Err(Failure::usage(
                "policy tao learns in the first fifth of a measurement, and no observation falls into it: \
                 lengthen it with --set minutes=WARM-UP+MEASURED",
            ));
        }
        Ok(Learnt::Sizes(sizes))
    }
}
