//! Acts that wait for the driver, and the state to return to if it cannot apply a plan.

use std::collections::VecDeque;

use sherwood_model::Plan;

use crate::levels::Standing;
use crate::{Act, Admission, Levels, Said};

/// Acts of one input: at most two plans, and a few reports for each backend.
#[derive(Clone, Default)]
pub(crate) struct Acts {
    waiting: VecDeque<Waiting>,
    /// The plan that was handed out last: its round, and the state before it.
    handed: Option<(Round, Undo)>,
}

/// Acts that are refused together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A decision among partitions, with the choices of β.
    Partitions,
    /// A step among tenants.
    Tenants,
    /// A change by the operator.
    Operator,
}

#[derive(Clone)]
struct Waiting {
    act: Act,
    round: Round,
    /// The state before the plan of an [`Act::Apply`]; none for other acts.
    undo: Option<Undo>,
}

/// The state before a plan, to return to if it is refused.
#[derive(Clone)]
pub(crate) enum Undo {
    /// Before a decision among partitions.
    Decision(Standing, Admission),
    /// Before a step among tenants.
    Step(Standing),
    /// Before a change by the operator.
    Levels(Box<Levels>),
}

impl Acts {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn apply(&mut self, plan: Plan, round: Round, undo: Undo) {
        self.waiting.push_back(Waiting { act: Act::Apply(plan), round, undo: Some(undo) });
    }

    pub(crate) fn say(&mut self, said: Said, round: Round) {
        self.waiting.push_back(Waiting { act: Act::Say(said), round, undo: None });
    }

    pub(crate) fn fade_curves(&mut self) {
        self.waiting.push_back(Waiting { act: Act::FadeCurves, round: Round::Tenants, undo: None });
    }

    /// Notes that a plan is handed out beside the acts.
    pub(crate) fn hand_out(&mut self, undo: Undo) {
        self.handed = Some((Round::Operator, undo));
    }

    pub(crate) fn next(&mut self) -> Option<Act> {
        let Waiting { act, round, undo } = self.waiting.pop_front()?;
        if let Some(undo) = undo {
            self.handed = Some((round, undo));
        }
        Some(act)
    }

    /// Drops the reports about the plan that was handed out last, and returns the state before it;
    /// none if that was done.
    pub(crate) fn refuse(&mut self) -> Option<Undo> {
        let (refused, undo) = self.handed.take()?;
        self.waiting.retain(|Waiting { act, round, .. }| *round != refused || *act == Act::FadeCurves);
        Some(undo)
    }

    /// Has plans that wait divide the cache and rates as `present` does. False if none waits.
    pub(crate) fn replan(&mut self, present: &Plan) -> bool {
        let mut waits = false;
        for Waiting { act, .. } in &mut self.waiting {
            if let Act::Apply(plan) = act {
                *plan = Plan { backends: std::mem::take(&mut plan.backends), ..present.clone() };
                waits = true;
            }
        }
        waits
    }
}
