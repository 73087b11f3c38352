//! Undoing a step whose plan was not applied.

use super::TenantController;
use super::moving::Moving;

/// The state before a call of [`TenantController::advance`].
#[derive(Clone)]
pub(super) enum Undo {
    /// The call only made a step: the tenants' bytes and rates before it.
    Step(Moving),
    /// The call also made a decision: the whole controller before it.
    Decision(Box<TenantController>),
}

impl TenantController {
    /// Returns the state to restore if a call of [`advance`](Self::advance) has to be undone.
    /// `decides` is true if the call makes a decision, false if it only makes a step.
    pub(super) fn undo_of(&self, decides: bool) -> Undo {
        if decides { Undo::Decision(Box::new(self.clone())) } else { Undo::Step(self.moving.clone()) }
    }

    /// Undoes the latest call of [`advance`](Self::advance), whose bytes and rates were not
    /// applied. The tenants' bytes and rates, the cold bytes, the goal, the freeze and the decision
    /// are those before that call. The next decision is due as if the plan had been applied, and
    /// then counts what was observed in the undone call, too.
    pub fn restore(&mut self) {
        match self.undo.take() {
            Some(Undo::Step(moving)) => self.moving = moving,
            Some(Undo::Decision(before)) => {
                let (decides_at, steps_at, faded_at) = (self.decides_at, self.steps_at, self.faded_at);
                *self = Self { decides_at, steps_at, faded_at, ..*before };
            }
            None => {}
        }
    }
}
