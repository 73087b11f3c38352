//! The urgency of a query, carried from the query to the call that answers it.

use crate::{Instant, TenantId};

/// The tenant, the urgency and the kind of a query, as queues and replicas take them into account.
///
/// The default is a read of the default tenant without a deadline, which counts in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The tenant on whose behalf the query is made.
    pub tenant: TenantId,
    /// The class that the deadline belongs to.
    pub class: DeadlineClass,
    /// The time by which the caller wants its answer; none if any time will do. It decides order
    /// and admission. The backend's timeout bounds the wait whatever the deadline is.
    pub deadline: Option<Instant>,
    /// The kind of access.
    pub kind: DemandKind,
    /// True if the caller can do without the answer.
    pub best_effort: bool,
}

/// The kind of access that a [`Demand`] asks a backend for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DemandKind {
    /// A read, which may be repeated and duplicated.
    #[default]
    Read,
    /// An access that changes the backend's data.
    Write,
}

/// A class of deadlines, numbered from 0, the default and most urgent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadlineClass(pub u8);

impl Demand {
    /// Takes in the demand of one more waiter for the same answer. The earlier deadline counts and
    /// brings its class; the result is best effort only if both are.
    pub fn join(&mut self, other: &Self) {
        if let Some(theirs) = other.deadline
            && self.deadline.is_none_or(|ours| theirs < ours)
        {
            (self.deadline, self.class) = (Some(theirs), other.class);
        }
        self.best_effort &= other.best_effort;
    }
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            tenant: TenantId(0),
            class: DeadlineClass::default(),
            deadline: None,
            kind: DemandKind::Read,
            best_effort: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(ms: u64, class: u8) -> Demand {
        let deadline = Some(Instant::from_millis(ms));
        Demand { deadline, class: DeadlineClass(class), ..Demand::default() }
    }

    #[test]
    fn joined_demand_has_the_earlier_deadline_and_its_class() {
        let mut demand = Demand::default();
        for (joining, expected) in [
            (due(30, 1), due(30, 1)),
            (due(50, 0), due(30, 1)),
            (Demand::default(), due(30, 1)),
            (due(20, 2), due(20, 2)),
        ] {
            demand.join(&joining);
            assert_eq!(demand, expected);
        }
    }

    #[test]
    fn joined_demand_is_best_effort_only_if_all_are() {
        let best_effort = Demand { best_effort: true, ..Demand::default() };
        let mut demand = best_effort;
        demand.join(&best_effort);
        assert!(demand.best_effort);
        demand.join(&Demand::default());
        demand.join(&best_effort);
        assert!(!demand.best_effort);
    }
}
