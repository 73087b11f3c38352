//! Policies: the layout of the store and the way to ask, by day and at night, by name.

use std::time::Duration;

use sherwood_dispatch::{CopiesChoice, Layout};
use sherwood_model::Percent;
use sherwood_policy::slo::StorePlan;

use super::{NODES, Scenario};
pub(super) use crate::policy::PolicyError;
use crate::policy::by_name;
use crate::record::ms;

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

    /// Returns the use of all nodes in which one duplicate is asked, and another one after a delay
    /// of a percentile of latencies, at least `min`.
    const fn hedged(duplicates: u8, percentile: Percent, min: Duration) -> Self {
        Self {
            copies: CopiesChoice::Hedge { percentile, min },
            ..Self::all_asked(NODES / duplicates as u16, duplicates)
        }
    }

    /// Returns the use that a plan of the manager describes.
    pub(super) fn planned(plan: &StorePlan) -> Self {
        let layout = plan.layout();
        Self {
            layout: Layout { partitions: layout.partitions, duplicates: layout.duplicates },
            copies: (&layout).into(),
        }
    }

    /// Returns the same as a plan, but for a delay before a copy that follows from latencies.
    pub(super) fn plan(&self) -> StorePlan {
        let Layout { partitions, duplicates } = self.layout;
        StorePlan {
            partitions: partitions.into(),
            duplicates: duplicates.into(),
            asked: self.copies.factor().into(),
            hedge_ms: match self.copies {
                CopiesChoice::Hedge { percentile: AT_ONCE, min } => Some(ms(min)),
                _ => None,
            },
        }
    }
}

/// The percentile of hedges after a fixed delay: so few latencies are within it that it is below
/// the least delay.
const AT_ONCE: Percent = Percent::MIN;
/// The delay before the second duplicate is asked in the model's scenario. Where it does not wait,
/// an access in 300 takes longer.
const HEDGE_AFTER: Duration = Duration::from_millis(8);

/// The store without duplicates, at the start of every run.
pub(super) const DIVIDED: Use = Use::all_asked(NODES, 1);
/// The store with two duplicates of half as many partitions.
const DOUBLED: Use = Use::all_asked(NODES / 2, 2);
const HEDGED: Use = Use::hedged(2, Percent::HEDGE, Duration::from_millis(1));

const DIURNAL: [Policy; 5] = [
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

const MODEL: [Policy; 8] = [
    Policy::constant("divide", "144 partitions of one node", DIVIDED),
    Policy::constant("mix", "72 partitions of two duplicates, both asked", DOUBLED),
    Policy::constant("mix-3", "48 partitions of three duplicates, all asked", Use::all_asked(NODES / 3, 3)),
    Policy::constant(
        "replicate",
        "36 partitions of four duplicates, all asked",
        Use::all_asked(NODES / 4, 4),
    ),
    Policy::constant("hedge", "as mix; one is asked, and after 8 ms another", hedged(2)),
    Policy::constant("hedge-3", "as mix-3; one is asked, and after 8 ms another", hedged(3)),
    Policy::constant("hedge-4", "as replicate; one is asked, and after 8 ms another", hedged(4)),
    Policy {
        name: "sherwood",
        about: "the manager: the best predicted share of accesses within 15 ms",
        uses: None,
    },
];

const fn hedged(duplicates: u8) -> Use {
    Use::hedged(duplicates, AT_ONCE, HEDGE_AFTER)
}

impl Policy {
    const fn constant(name: &'static str, about: &'static str, used: Use) -> Self {
        Self { name, about, uses: Some([used; 2]) }
    }

    /// Returns the policy of a scenario that is called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(scenario: Scenario, name: &str) -> Result<Self, PolicyError> {
        let what = match scenario {
            Scenario::Diurnal => "scenarios of Zoolander have",
            Scenario::Model => "the scenario of Zoolander's model has",
        };
        by_name(what, scenario.policies(), |policy| policy.name, name)
    }
}

impl Scenario {
    /// All policies of the scenario.
    #[must_use]
    pub fn policies(self) -> &'static [Policy] {
        match self {
            Self::Diurnal => &DIURNAL,
            Self::Model => &MODEL,
        }
    }
}
