//! The account of a simulated backend's calls, kept apart from the dispatcher.

use std::collections::{BTreeMap, BTreeSet};

use super::backend::{Key, Value, Waiter};
use crate::slab::Id;
use crate::{AttemptId, CopiesChoice, Dispatch, Options, RetryOptions};

/// The calls of a backend: the waiters of those in flight, and what each fetch has cost.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Ids of all calls ever made.
    ids: BTreeSet<AttemptId>,
    /// Waiters that each call in flight had at its start.
    waiters: BTreeMap<AttemptId, BTreeSet<Waiter>>,
    /// Number of calls of each fetch.
    calls: BTreeMap<Id, u32>,
    /// Number of calls of all fetches.
    total: u64,
}

impl Account {
    /// Notes a call, and checks that its id is new and that its fetch may have one more. An id that
    /// returned would give a late answer to another call.
    pub(super) fn note_call(
        &mut self,
        dispatch: &Dispatch<Key, Value, Waiter>,
        options: &Options,
        id: AttemptId,
    ) {
        assert!(self.ids.insert(id), "{id:?} is used again");
        self.total += 1;
        let mut waiters = BTreeSet::new();
        dispatch.observe_call(id, |waiter| _ = waiters.insert(*waiter));
        self.waiters.insert(id, waiters);
        // A call that was cancelled by the input which made it is an extra one.
        let Some(attempt) = dispatch.attempts.get(id.0) else { return };
        let calls = self.calls.entry(attempt.fetch).or_default();
        *calls += 1;
        if let Some(copies) = copies_max(options) {
            let most = 1 + copies + options.retry.per_call_max;
            assert!(*calls <= most, "{calls} calls of a fetch that may have {most}");
        }
    }

    /// Notes that a call was answered or cancelled.
    pub(super) fn note_end(&mut self, id: AttemptId) {
        self.waiters.remove(&id);
    }

    /// Returns true if a call in flight may still answer this waiter.
    pub(super) fn has_call_for(&self, waiter: Waiter) -> bool {
        self.waiters.values().any(|waiters| waiters.contains(&waiter))
    }

    /// Checks that the calls beyond the first of each fetch are paid for: by the budget, to which
    /// each fetch pays once, or by an allowance of the rule. `planned` are those that a rule of the
    /// simulation has planned.
    pub(super) fn check(&self, options: &Options, planned: u64) {
        let RetryOptions { ratio, burst, .. } = options.retry;
        let fetches = self.calls.len() as u64;
        let allowance = match options.copies {
            CopiesChoice::One => planned,
            CopiesChoice::Fixed { factor } => (u64::from(factor) - 1) * fetches,
            CopiesChoice::Hedge { .. } | CopiesChoice::Tied { .. } | CopiesChoice::Idle { .. } => 0,
        };
        let extra = self.total - fetches;
        let paid = f64::from(burst) + ratio * fetches as f64;
        assert!(extra as f64 <= paid + allowance as f64, "{extra} extra calls of {fetches} fetches");
    }
}

/// Returns the most calls beside the first and retries that a fetch may have by its rule; none if
/// the simulation has a rule of its own.
fn copies_max(options: &Options) -> Option<u32> {
    match options.copies {
        CopiesChoice::One => None,
        CopiesChoice::Fixed { factor } | CopiesChoice::Idle { factor } => Some(u32::from(factor) - 1),
        CopiesChoice::Hedge { .. } => Some(1),
        CopiesChoice::Tied { .. } => Some(0),
    }
}
