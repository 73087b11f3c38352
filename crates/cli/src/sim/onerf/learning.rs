//! The learned allocation of policy `tao`.
//!
//! This policy freezes the sizes that RobinHood finds in another run, which may take longer to
//! simulate than the run that needs them. The result is therefore kept, identified by the inputs of
//! RobinHood's run, and reused.

use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_sim::{Setup, World};

use super::subject::Subject;
use super::warm::WarmUps;
use crate::exit::Failure;
use crate::sim::inputs::Inputs;
use crate::sim::keep::{Finished, Keep};
use crate::sim::study::Run;
use crate::sim::{play, progress};

/// A run in which policy `tao` learns the sizes of partitions for another run.
struct Learning {
    /// The setup of the run that determines the sizes.
    learning: Setup,
    inputs: Inputs,
}

/// The outcome of a simulation that may end early.
pub(in crate::sim) enum Attempt<T> {
    Done(T),
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

/// Returns the world of a run, with the cache sizes that its policy learns, if it learns any. With
/// `warm_ups`, the world is at the end of the warm-up, unless its requests come from a trace.
/// Learned sizes are kept in `keep`.
pub(in crate::sim) fn begin(
    run: &Run<Subject>,
    warm_ups: Option<&WarmUps>,
    keep: Option<&Keep>,
    stop: &AtomicBool,
) -> Result<Attempt<World>, Failure> {
    let warm_ups = warm_ups.filter(|_| run.setup.trace.is_none());
    let world = |setup: &Setup| match warm_ups {
        Some(warm_ups) => warm_ups.world(setup, stop),
        None => World::new(setup).map(Some).map_err(Failure::usage),
    };
    let mut setup = run.setup.clone();
    if let Some(learning) = Learning::of(run)? {
        let learned = match keep {
            Some(keep) => learning.find(keep, stop, world)?,
            None => learning.learn_alone(stop)?,
        };
        setup.knobs.control.tao.budgets_bytes = match learned {
            Attempt::Done(sizes) => sizes,
            Attempt::Ended(why) => return Ok(Attempt::Ended(why)),
            Attempt::Stopped => return Ok(Attempt::Stopped),
        };
    }
    Ok(world(&setup)?.map_or(Attempt::Stopped, Attempt::Done))
}

impl Learning {
    /// Returns the learning of sizes that `run` requires, if any.
    fn of(run: &Run<Subject>) -> Result<Option<Self>, Failure> {
        let Some(learning) = run.setup.learning().map_err(Failure::usage)? else { return Ok(None) };
        let (scenario, policy) = (learning.scenario.clone(), learning.policy.clone());
        Ok(Some(Self { learning, inputs: Inputs { scenario, policy, ..run.inputs.clone() } }))
    }

    /// Returns the kept sizes, or else learns them in the world that `begin` creates and keeps
    /// them. No world means that the command was stopped.
    fn find(
        &self,
        keep: &Keep,
        stop: &AtomicBool,
        begin: impl Fn(&Setup) -> Result<Option<World>, Failure>,
    ) -> Result<Attempt<Vec<u64>>, Failure> {
        let lock = keep.lock(&self.inputs);
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Sizes { sizes, .. }) = keep.read(&self.inputs)? {
            return Ok(Attempt::Done(sizes));
        }
        let Some(world) = begin(&self.learning)? else { return Ok(Attempt::Stopped) };
        let learned = self.learn(world, stop, |_| ())?;
        if let Attempt::Done(sizes) = &learned {
            keep.write(&Sizes { inputs: self.inputs.clone(), sizes: sizes.clone() })?;
        }
        Ok(learned)
    }

    /// Learns the sizes without keeping them, and shows the progress.
    fn learn_alone(&self, stop: &AtomicBool) -> Result<Attempt<Vec<u64>>, Failure> {
        let world = World::new(&self.learning).map_err(Failure::usage)?;
        let duration = self.learning.duration().map_err(Failure::usage)?;
        let bar = progress::bar("what RobinHood finds", duration.as_secs());
        let learned = self.learn(world, stop, |passed| bar.inc(passed.as_secs()));
        bar.finish_and_clear();
        learned
    }

    /// Learns the sizes in `world`, and repeatedly calls `seen` with the simulated time that has
    /// passed.
    fn learn(
        &self,
        mut world: World,
        stop: &AtomicBool,
        mut seen: impl FnMut(Duration),
    ) -> Result<Attempt<Vec<u64>>, Failure> {
        let goes_on = |passed: Duration, _: &World| {
            seen(passed);
            true
        };
        match play::play_while(&mut world, stop, goes_on) {
            Ok(true) => {}
            Ok(false) => return Ok(Attempt::Stopped),
            Err(halt) => return play::trace_end(halt).map(Attempt::Ended),
        }
        let sizes = world.learned_allocation(self.learning.knobs.control.tao.mode);
        if sizes.is_empty() {
            return Err(Failure::usage(
                "policy tao learns in the first fifth of a measurement, and no observation falls into it: \
                 lengthen it with --set minutes=WARM-UP+MEASURED",
            ));
        }
        Ok(Attempt::Done(sizes))
    }
}
