//! Failures of a comparison by scenario.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::Failure;
use crate::sim::study::{Run, Study};

/// The first failure of each scenario. Other runs of the scenario would mostly fail for the same
/// reason, such as a setting or the end of a trace, but hours later. Other scenarios are
/// unaffected.
#[derive(Default)]
pub(super) struct Failures {
    first: Mutex<BTreeMap<String, Failure>>,
}

impl Failures {
    /// Records a failure; returns true if it is the first of the run's scenario.
    pub(super) fn note<S: Study>(&self, run: &Run<S>, failure: Failure) -> bool {
        let mut first = self.first();
        let is_first = !first.contains_key(&run.inputs.scenario);
        first.entry(run.inputs.scenario.clone()).or_insert(failure);
        is_first
    }

    /// Returns true when a run of this scenario failed.
    pub(super) fn are_of<S: Study>(&self, run: &Run<S>) -> bool {
        self.first().contains_key(&run.inputs.scenario)
    }

    /// Combines all failures into one, if there are any.
    pub(super) fn into_one(self) -> Option<Failure> {
        let first = self.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.into_values().reduce(Failure::and)
    }

    fn first(&self) -> MutexGuard<'_, BTreeMap<String, Failure>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
