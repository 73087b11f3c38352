//! The learned allocation of policy `tao`.
//!
//! This policy freezes the sizes that RobinHood finds in another run, which may take longer to
//! simulate than the run that needs them. The result is therefore kept, identified by the inputs of
//! RobinHood's run, and reused.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Setup, World};

use crate::exit::Failure;
use crate::sim::keep::{Finished, Keep};
use crate::sim::play;
use crate::sim::runs::{Inputs, Run};

/// A run in which policy `tao` learns the sizes of partitions for another run.
pub(in crate::sim) struct Learning {
    /// The setup of the run that determines the sizes.
    learning: Setup,
    inputs: Inputs,
}

/// The outcome of learning sizes for policy `tao`.
pub(in crate::sim) enum Learned {
    /// The sizes in bytes, in the order of the backends.
    Sizes(Vec<u64>),
    /// The trace ended too early, with the reason.
    Ended(String),
    Stopped,
}

/// The sizes that policy `tao` learned, as they are kept in a file.
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

impl Learning {
    /// Returns the learning of sizes that `run` requires, if any.
    pub(in crate::sim) fn of(run: &Run) -> Result<Option<Self>, Failure> {
        let Some(learning) = run.setup.learning().map_err(Failure::usage)? else { return Ok(None) };
        let (scenario, policy) = (learning.scenario.clone(), learning.policy.clone());
        Ok(Some(Self { learning, inputs: Inputs { scenario, policy, ..run.inputs.clone() } }))
    }

    /// The setup of the run that determines the sizes.
    pub(in crate::sim) fn setup(&self) -> &Setup {
        &self.learning
    }

    /// Returns the inputs of the run that determines the sizes; equal inputs give equal sizes.
    pub(in crate::sim) fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Returns the kept sizes, or else learns them in the world that `begin` creates and keeps
    /// them. No world means that the command was stopped.
    pub(in crate::sim) fn find(
        &self,
        keep: &Keep,
        stop: &AtomicBool,
        begin: impl FnOnce(&Setup) -> Result<Option<World>, Failure>,
    ) -> Result<Learned, Failure> {
        if let Some(Sizes { sizes, .. }) = keep.read(&self.inputs)? {
            return Ok(Learned::Sizes(sizes));
        }
        let Some(world) = begin(&self.learning)? else { return Ok(Learned::Stopped) };
        let learned = self.learn(world, stop, |_| ())?;
        if let Learned::Sizes(sizes) = &learned {
            keep.write(&Sizes { inputs: self.inputs.clone(), sizes: sizes.clone() })?;
        }
        Ok(learned)
    }

    /// Learns the sizes in `world`, and repeatedly calls `seen` with the simulated time that has
    /// passed.
    pub(in crate::sim) fn learn(
        &self,
        mut world: World,
        stop: &AtomicBool,
        mut seen: impl FnMut(Duration),
    ) -> Result<Learned, Failure> {
        let goes_on = |passed: Duration, _: &World| {
            seen(passed);
            true
        };
        match play::play_while(&mut world, stop, goes_on) {
            Ok(true) => {}
            Ok(false) => return Ok(Learned::Stopped),
            Err(halt) => return play::trace_end(halt).map(Learned::Ended),
        }
        let sizes = world.learned_allocation(self.learning.knobs.control.tao.mode);
        if sizes.is_empty() {
            return Err(Failure::usage(
                "policy tao learns in the first fifth of a measurement, and no observation falls into it: \
                 lengthen it with --set minutes=WARM-UP+MEASURED",
            ));
        }
        Ok(Learned::Sizes(sizes))
    }
}
