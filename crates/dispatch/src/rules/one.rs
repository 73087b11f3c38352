//! `copies = "one"`: a fetch has one attempt at a time, and a retry where that fails.

use sherwood_model::Demand;

use super::{AttemptPlan, Replication, Tier};

/// Replication rule that plans a single attempt for every fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One;

impl Replication for One {
    fn plan(&mut self, _demand: &Demand, _tier: &Tier) -> AttemptPlan {
        AttemptPlan::ONE
    }
}
