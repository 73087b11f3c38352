//! What went wrong in a comparison, scenario by scenario.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::Failure;
use crate::sim::runs::Run;

/// The first failure of each scenario that had one. Its other runs would mostly fail of the same, a
/// trace that ends or a setting, but after hours; those of other scenarios have nothing to do with
/// it.
#[derive(Default)]
pub(super) struct Failures {
    first: Mutex<BTreeMap<String, Failure>>,
}

impl Failures {
    /// Takes note of a failure; whether it is the first of the run's scenario.
    pub(super) fn note(&self, run: &Run, failure: Failure) -> bool {
        let mut first = self.first();
        let is_first = !first.contains_key(&run.inputs.scenario);
        first.entry(run.inputs.scenario.clone()).or_insert(failure);
        is_first
    }

    /// Whether runs of this scenario failed.
    pub(super) fn are_of(&self, run: &Run) -> bool {
        self.first().contains_key(&run.inputs.scenario)
    }

    /// All of them in one, if there are any.
    pub(super) fn into_one(self) -> Option<Failure> {
        let first = self.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.into_values().reduce(Failure::and)
    }

    fn first(&self) -> MutexGuard<'_, BTreeMap<String, Failure>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
