//! Scenarios: what requests ask for, and how often.

use sherwood_policy::slo::{Composition, Objective};

/// A scenario of Zoolander.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A store by day and at night.
    Diurnal,
    /// Service levels measured and predicted, at a constant load.
    Model,
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 2] = [Scenario::Diurnal, Scenario::Model];

/// Accesses an hour by day and at night.
const RATES_PER_HOUR: [f64; 2] = [40e6, 20e6];

impl Scenario {
    /// Returns the scenario called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        SCENARIOS.into_iter().find(|scenario| scenario.name() == name)
    }

    /// The scenario's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Diurnal => "zoolander-diurnal",
            Self::Model => "zoolander-model",
        }
    }

    /// Description, for help texts.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Diurnal => "Zoolander's day and night; policies and settings of its own",
            Self::Model => "Zoolander's model beside measured levels; policies and settings of its own",
        }
    }

    /// The accesses of a request, one after the other, and the time within which they are to end;
    /// `constant` is the rate of the model's scenario, in accesses a second.
    pub(super) fn objective(self, phase: usize, constant: f64) -> Objective {
        let (rate_per_s, accesses, bound_ms) = match self {
            Self::Diurnal => (RATES_PER_HOUR[phase] / 3_600.0, 20, 150.0),
            Self::Model => (constant, 1, 15.0),
        };
        Objective { rate_per_s, accesses, composition: Composition::Sequence, bound_ms }
    }
}
