//! Runs that share a warm-up.
//!
//! No backend is limited before the measurement, so runs with the same policy, seed and settings
//! are equal until then, in every scenario. Their warm-up is simulated once, and each run continues
//! from a copy of the world at its end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sherwood_sim::World;

use crate::exit::Failure;
use crate::sim::runs::Run;

/// A group of at least one run.
pub(super) struct Family<'a> {
    pub(super) runs: Vec<&'a Run>,
    state: Mutex<State>,
}

/// Progress of a family of runs. The lock is held while the warm-up is simulated, since the next
/// run needs it anyway.
#[derive(Default)]
pub(super) struct State {
    /// Number of the family's runs taken by threads.
    pub(super) taken: usize,
    /// The world at the end of the warm-up, until the last run has continued from it.
    pub(super) warm: Option<World>,
}

impl<'a> Family<'a> {
    /// Groups `runs` into families; the order is kept.
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

    /// Simulated seconds of the family's warm-up.
    pub(super) fn warm_up_seconds(&self) -> u64 {
        self.runs[0].setup.warm_up().map_or(0, |duration| duration.as_secs())
    }

    /// Simulated seconds of all runs of the family.
    pub(super) fn seconds(&self) -> u64 {
        let measured: u64 = self.runs.iter().map(|run| run.seconds()).sum();
        measured - self.warm_up_seconds() * (self.runs.len() as u64 - 1)
    }
}
