//! Acts (actions) that wait for the driver, and the state to return to if it cannot apply a plan.

use std::collections::VecDeque;

use sherwood_model::Plan;

use crate::levels::Standing;
use sherwood_policy::stores::Manager;

use crate::{Act, Admission, Levels, Replication, Said};

/// The acts that follow from one input: at most four plans, and a few reports for each backend.
#[derive(Clone, Default)]
pub(crate) struct Acts {
    waiting: VecDeque<Waiting>,
    /// The round and undo state of the plan that was handed to the driver last.
    handed: Option<(Round, Undo)>,
}

/// The kind of change that acts belong to. A refusal drops all waiting acts of the same round,
/// except [`Act::FadeCurves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A decision about the division among partitions, with the choices of β.
    Partitions,
    /// A step of the division among tenants.
    Tenants,
    /// A decision about copies.
    Copies,
    /// Decisions about replicated stores.
    Stores,
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

/// The state before a plan, which is restored if the driver refuses the plan.
#[derive(Clone)]
pub(crate) enum Undo {
    /// The state before a decision among partitions.
    Decision(Standing, Admission, Option<Box<Replication>>, Vec<Manager>),
    /// The state before a step among tenants.
    Step(Standing),
    /// The state before a decision about copies.
    Copies(Box<Replication>),
    /// The managers before decisions about replicated stores.
    Stores(Vec<Manager>),
    /// The state before a change by the operator.
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

    /// Notes that the driver was given a plan directly instead of as an act.
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

    /// Drops the waiting acts of the round whose plan was handed out last, and returns the state
    /// before that plan; none if no plan was handed out since the last refusal.
    pub(crate) fn refuse(&mut self) -> Option<Undo> {
        let (refused, undo) = self.handed.take()?;
        self.waiting.retain(|Waiting { act, round, .. }| *round != refused || *act == Act::FadeCurves);
        Some(undo)
    }

    /// Replaces the budgets and rates of the waiting plans by those of `present`. Returns false if
    /// no plan waits.
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
