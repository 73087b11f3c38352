//! Taking back a step whose plan was not applied.

use super::TenantController;
use super::moving::Moving;

/// The state before a call of [`TenantController::advance`].
#[derive(Clone)]
pub(super) enum Undo {
    /// The call made a step: the holdings before it.
    Step(Moving),
    /// The call decided as well: everything before it.
    Decision(Box<TenantController>),
}

impl TenantController {
    /// Returns what undoes a call of [`advance`](Self::advance), which `decides` or only makes a
    /// step.
    pub(super) fn undo_of(&self, decides: bool) -> Undo {
        if decides { Undo::Decision(Box::new(self.clone())) } else { Undo::Step(self.moving.clone()) }
    }

    /// Takes back the latest call of [`advance`](Self::advance), whose bytes and rates were not
    /// applied: holdings, the bytes that are cold, the goal, a freeze and the decision are those
    /// before it. What was observed with a decision counts when the next one is made, as late as
    /// without a refusal.
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
