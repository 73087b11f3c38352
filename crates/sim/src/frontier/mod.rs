//! Frontiers: the hardest conditions under which a policy meets the SLO.
//!
//! Policies that all meet the SLO are indistinguishable, and so are those that all violate it. They
//! differ in how much harder, or milder, conditions may become before the SLO is just met: how deep
//! the limits of the backends, how small the caches, how high the load. This is the headroom that a
//! policy gives an operator.
//!
//! Conditions are searched on a grid with steps of 5%, so that all policies and seeds are tried at
//! the same points, and each point once. A search assumes that the SLO stays violated under harder
//! conditions; randomness may break this assumption within a few steps, which is why several seeds
//! are used.

mod board;
mod search;

use std::fmt::{self, Display};

use crate::setup::Knobs;

pub use board::{Board, Probe, WorkerAction};
pub use search::{Bracket, Search};

/// A condition of a simulation (load, cache size or slowdowns) that can be made harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Time that the limits of backends add to service times; more is harder.
    Depth,
    /// Cache size of each server; less is harder.
    Cache,
    /// Rate of requests; more is harder.
    Load,
}

/// Ratio between the values of a condition at two adjacent steps.
const STEP_RATIO: f64 = 1.05;
/// Largest number of steps in either direction: from a fifteenth to fifteen times the base.
pub const STEPS_MAX: i32 = 56;

impl Axis {
    /// All conditions that can be made harder.
    pub const ALL: [Self; 3] = [Self::Depth, Self::Cache, Self::Load];

    /// The value of the condition `step` steps harder (milder below 0) than `base`, to four digits.
    ///
    /// ```
    /// use sherwood_sim::Axis;
    /// assert_eq!([-1, 0, 1, 8].map(|step| Axis::Load.value(1.0, step)), [0.9524, 1.0, 1.05, 1.477]);
    /// assert_eq!([0, 8].map(|step| Axis::Cache.value(0.5, step)), [0.5, 0.3384]);
    /// ```
    #[must_use]
    pub fn value(self, base: f64, step: i32) -> f64 {
        let more = match self {
            Self::Depth | Self::Load => step,
            Self::Cache => -step,
        };
        // By repeated multiplication, for the same digits on every machine.
        let ratio = (0..more.unsigned_abs()).fold(1.0, |ratio, _| ratio * STEP_RATIO);
        four_digits(if more < 0 { base / ratio } else { base * ratio })
    }

    /// Returns the condition's value in `knobs`.
    #[must_use]
    pub fn of(self, knobs: &Knobs) -> f64 {
        match self {
            Self::Depth => knobs.limit_depth,
            Self::Cache => knobs.cache_ratio,
            Self::Load => knobs.load_ratio,
        }
    }

    /// Key of the condition's setting ([`Knobs::set`](crate::Knobs::set)).
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Depth => "depth",
            Self::Cache => "cache",
            Self::Load => "load",
        }
    }
}

impl Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}

/// Rounds a positive number to four digits.
fn four_digits(value: f64) -> f64 {
    let mut unit = 1.0;
    while value > 0.0 && value * unit < 1e3 {
        unit *= 10.0;
    }
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_conditions_are_five_percent_and_harder_means_less_cache() {
        for axis in Axis::ALL {
            for step in -STEPS_MAX..STEPS_MAX {
                let (milder, harder) = (axis.value(1.0, step), axis.value(1.0, step + 1));
                let ratio = if axis == Axis::Cache { milder / harder } else { harder / milder };
                assert!((ratio - 1.05).abs() < 0.001, "{axis} {step}: {milder} {harder}");
            }
        }
        assert_eq!((Axis::Depth.value(1.0, STEPS_MAX), Axis::Depth.value(1.0, -STEPS_MAX)), (15.37, 0.06507));
    }

    #[test]
    fn key_of_a_condition_names_its_setting() {
        for axis in Axis::ALL {
            let mut knobs = Knobs::default();
            assert_eq!(axis.of(&knobs), 1.0);
            knobs.set(axis.key(), "0.75").expect("a setting");
            assert_eq!(axis.of(&knobs), 0.75, "{axis}");
        }
    }
}
