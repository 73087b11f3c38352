//! The replication lever: chooses the copies of each request in the tiers of an application.

use sherwood_model::{BackendId, BackendPlan, Copies, Instant};
use sherwood_policy::replication::{Outcome, Replicator, TierSeen};

use crate::ReplicationSeen;
use crate::admission::Leave;
use crate::history::History;

/// Chooses the copies of each request for the backends that are tiers of one application (sPARE).
///
/// It decides after each measuring window. The first decision is due at once and puts the first
/// copies in force.
#[derive(Clone, Debug)]
pub struct Replication {
    replicator: Replicator,
    /// The backend of each tier.
    backends: Vec<BackendId>,
    /// The start of the measuring window.
    since: Instant,
    /// The time of the next decision.
    due: Instant,
    /// The factors that were put in force.
    history: History<Vec<u8>>,
}

/// A decision about the copies of all tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesDecision {
    /// The backend of each tier.
    pub backends: Vec<BackendId>,
    /// The factors and the reason.
    pub outcome: Outcome,
    /// True if the decision takes effect; false in a dry run.
    pub applied: bool,
}

impl Replication {
    /// Returns the lever over these backends, one for each tier of the replicator's options.
    ///
    /// # Panics
    /// If the number of backends is another one.
    #[must_use]
    pub fn new(replicator: Replicator, backends: Vec<BackendId>, now: Instant) -> Self {
        assert_eq!(backends.len(), replicator.options().tiers.len(), "each tier has a backend");
        Self { replicator, backends, since: now, due: now, history: History::default() }
    }

    /// Returns the replicator.
    #[must_use]
    pub fn replicator(&self) -> &Replicator {
        &self.replicator
    }

    /// Returns the backend of each tier.
    #[must_use]
    pub fn backends(&self) -> &[BackendId] {
        &self.backends
    }

    /// The start of the measuring window: observations are those since then.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// The time of the next decision.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.due
    }

    /// Decides at the end of a measuring window, and returns the decision if it changes something.
    /// A window goes on while too few requests, or not all tiers, were seen.
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        seen: &[ReplicationSeen],
        leave: Leave,
    ) -> Option<CopiesDecision> {
        if now < self.due {
            return None;
        }
        self.due = now + self.replicator.options().window;
        let applied = match leave {
            Leave::Act => true,
            Leave::Report => false,
            Leave::Frozen | Leave::BackTo(_) => {
                self.since = now;
                return None;
            }
        };
        let is_first = applied && self.history.at(now).is_none();
        let before = self.replicator.outcome();
        let mut next = self.replicator.clone();
        let outcome = if is_first { before.clone() } else { next.handle_window(&self.tiers(seen)?) };
        if applied || outcome.goes_on {
            self.replicator = next;
        } else {
            self.replicator.observe(&self.tiers(seen)?);
        }
        if outcome.goes_on {
            return None;
        }
        self.since = now;
        if applied {
            self.history.note(now, outcome.factors.clone());
        }
        let is_change = outcome.factors != before.factors || outcome.state != before.state;
        (is_first || is_change).then(|| self.decision(outcome, applied))
    }

    /// Restores the factors that were in force at `at`, and returns the decision if these are
    /// others. In either case a new measuring window begins.
    pub(crate) fn go_back(&mut self, now: Instant, at: Instant) -> Option<CopiesDecision> {
        let then = self.history.at(at)?.clone();
        (self.since, self.due) = (now, now + self.replicator.options().window);
        if then == self.replicator.factors() {
            return None;
        }
        self.history.note(now, then.clone());
        self.replicator.restore(then, "moves made requests slower");
        Some(self.decision(self.replicator.outcome(), true))
    }

    /// Takes back the latest decision, because its plan was not applied: the factors `before` are
    /// measured again.
    pub(crate) fn take_back(&mut self, before: Self) {
        *self = Self { since: self.since, due: self.due, ..before };
    }

    /// Returns what was seen of each tier; none if a tier is missing.
    fn tiers(&self, seen: &[ReplicationSeen]) -> Option<Vec<TierSeen>> {
        let of = |backend| seen.iter().find(|seen| seen.backend == backend).map(|seen| seen.tier);
        self.backends.iter().map(|&backend| of(backend)).collect()
    }

    fn decision(&self, outcome: Outcome, applied: bool) -> CopiesDecision {
        CopiesDecision { backends: self.backends.clone(), outcome, applied }
    }
}

impl CopiesDecision {
    /// Returns the backends' plans if the decision takes effect.
    pub(crate) fn plans(&self) -> Vec<BackendPlan> {
        let each = self.backends.iter().zip(&self.outcome.factors).filter(|_| self.applied);
        let plan = |(&backend, &factor)| BackendPlan {
            copies: Some(Copies { factor }),
            ..BackendPlan::unchanged(backend)
        };
        each.map(plan).collect()
    }
}
