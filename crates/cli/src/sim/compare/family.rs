//! Runs with one warm-up.
//!
//! Nothing is limited before the measurement, so runs of one policy, seed and settings are the same
//! until then, whatever the scenario. They are a family: its warm-up is simulated once, and each
//! goes on from a copy of the world at its end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sherwood_sim::World;

use crate::exit::Failure;
use crate::sim::runs::Run;

/// At least one run.
pub(super) struct Family<'a> {
    pub(super) runs: Vec<&'a Run>,
    state: Mutex<State>,
}

/// How far a family has come. Held while its warm-up is simulated: who wants the next run waits for
/// that anyway.
#[derive(Default)]
pub(super) struct State {
    /// Runs that somebody has taken.
    pub(super) taken: usize,
    /// The world at the end of the warm-up, until the last run has gone on from it.
    pub(super) warm: Option<World>,
}

impl<'a> Family<'a> {
    /// The families of `runs`, which keep their order.
    pub(super) fn all(runs: &[&'a Run]) -> Result<Vec<Self>, Failure> {
        let mut families: Vec<Self> = Vec::new();
        for &run in runs {
            let mut found = None;
            for (index, family) in families.iter().enumerate() {
                if family.runs[0].setup.shares_warm_up(&run.setup).map_err(Failure::usage)? {
                    found = Some(index);
                }
            }
            match found {
                Some(index) => families[index].runs.push(run),
                None => families.push(Self { runs: vec![run], state: Mutex::default() }),
            }
        }
        Ok(families)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulated seconds of the warm-up.
    pub(super) fn warm_up_seconds(&self) -> u64 {
        self.runs[0].setup.warm_up().map_or(0, |duration| duration.as_secs())
    }

    /// Simulated seconds of all its runs together.
    pub(super) fn seconds(&self) -> u64 {
        let measured: u64 = self.runs.iter().map(|run| run.seconds()).sum();
        measured - self.warm_up_seconds() * (self.runs.len() as u64 - 1)
    }
}
