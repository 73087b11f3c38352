//! Policies: the layout of the store and the way to ask, by day and at night, by name.

use std::time::Duration;

use sherwood_dispatch::CopiesChoice;
use sherwood_model::Percent;
use sherwood_policy::slo::StorePlan;

use super::NODES;
use super::key::Layout;
pub(super) use crate::policy::PolicyError;
use crate::policy::by_name;

/// A use of the nodes by day and at night.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The policy's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    /// The use by day and at night; none if the manager decides.
    pub(super) uses: Option<[Use; 2]>,
}

/// A layout of the store, and the way to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Use {
    pub(super) layout: Layout,
    pub(super) copies: CopiesChoice,
}

impl Use {
    /// Returns the use in which all duplicates are asked.
    const fn all_asked(partitions: u16, duplicates: u8) -> Self {
        Self { layout: Layout { partitions, duplicates }, copies: CopiesChoice::Fixed { factor: duplicates } }
    }

    /// Returns the use that a plan of the manager describes.
    pub(super) fn planned(plan: &StorePlan) -> Self {
        let layout = plan.layout();
        Self {
            layout: Layout { partitions: layout.partitions, duplicates: layout.duplicates },
            copies: (&layout).into(),
        }
    }

    /// Returns the same as a plan, but for the delay before a copy that follows from latencies.
    pub(super) fn plan(&self) -> StorePlan {
        let Layout { partitions, duplicates } = self.layout;
        StorePlan {
            partitions: partitions.into(),
            duplicates: duplicates.into(),
            asked: self.copies.factor().into(),
            hedge_ms: None,
        }
    }
}

/// The store without duplicates, at the start of every run.
pub(super) const DIVIDED: Use = Use::all_asked(NODES, 1);
/// The store with two duplicates of half as many partitions.
const DOUBLED: Use = Use::all_asked(NODES / 2, 2);
const HEDGED: Use = Use {
    copies: CopiesChoice::Hedge { percentile: Percent::HEDGE, min: Duration::from_millis(1) },
    ..DOUBLED
};

const POLICIES: [Policy; 5] = [
    Policy {
        name: "idle",
        about: "144 partitions of one node each, by day and at night",
        uses: Some([DIVIDED; 2]),
    },
    Policy {
        name: "switch-off",
        about: "the same by day, and half of the nodes at night",
        uses: Some([DIVIDED, Use::all_asked(NODES / 2, 1)]),
    },
    Policy {
        name: "zoolander",
        about: "the same by day; at night two duplicates of 72 partitions, both asked",
        uses: Some([DIVIDED, DOUBLED]),
    },
    Policy {
        name: "hedge",
        about: "two duplicates of 72 partitions; the second is asked after the 95th percentile of latencies",
        uses: Some([HEDGED; 2]),
    },
    Policy {
        name: "sherwood",
        about: "the manager: the layout and the way to ask with the best predicted service level",
        uses: None,
    },
];

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &POLICIES
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        by_name("scenarios of Zoolander have", &POLICIES, |policy| policy.name, name)
    }
}
