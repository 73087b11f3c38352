//! Settings of the manager.

use crate::slo::{Composition, Costs, Objective};

/// Settings of a [`Manager`](super::Manager).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagerOptions {
    /// Nodes at hand, at least 1.
    pub nodes: u32,
    /// Accesses of a request, at least 1.
    pub accesses: u32,
    /// The order of a request's accesses.
    pub composition: Composition,
    /// Time within which a request is to end, milliseconds.
    pub bound_ms: f64,
    /// Share of the requests that are to end within the bound.
    pub level: f64,
    /// The plan that is best.
    pub aim: ManagerAim,
    /// Prices of nodes.
    pub costs: Costs,
    /// Least gain for which the plan is changed: a share of the requests, or with
    /// [`ManagerAim::Cheapest`] of the price of all nodes in use.
    pub gain_min: f64,
    /// The gain that moving the data of a whole store once has to bring, as a share like
    /// `gain_min`.
    pub move_cost: f64,
    /// Largest difference between predicted and measured level at which plans are changed.
    pub error_max: f64,
    /// Largest share of the accesses that may have a hedge.
    pub hedged_max: f64,
    /// True if partitions and duplicates stay, and only the way to ask changes.
    pub keeps_layout: bool,
    /// True if changes are said and not made.
    pub dry_run: bool,
}

/// The plan that is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManagerAim {
    /// The one with the highest service level for the nodes at hand.
    #[default]
    BestLevel,
    /// The cheapest one that meets the SLO, or that with the highest level if none does.
    Cheapest,
    /// The present one, whose level is predicted and compared with the measured one.
    Present,
}

impl ManagerOptions {
    /// Default of [`gain_min`](Self::gain_min).
    pub const GAIN_MIN: f64 = 0.000_5;
    /// Default of [`move_cost`](Self::move_cost).
    pub const MOVE_COST: f64 = 0.001;
    /// Default of [`error_max`](Self::error_max).
    pub const ERROR_MAX: f64 = 0.02;

    /// Returns the objective at a rate, in accesses a second.
    pub(super) fn objective(&self, rate_per_s: f64) -> Objective {
        let &Self { accesses, composition, bound_ms, .. } = self;
        Objective { rate_per_s, accesses, composition, bound_ms }
    }
}
