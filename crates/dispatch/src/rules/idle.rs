//! `copies = "idle"`: copies at replicas where nothing waits or runs.

use sherwood_model::Demand;

use super::{AttemptPlan, CopyTerms, Replication, Tier};

/// Replication rule that plans up to `factor` attempts at once, the copies only at idle replicas
/// and while nothing waits for any replica, so that they delay no other call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    pub(crate) factor: u8,
}

impl Replication for Idle {
    fn plan(&mut self, _demand: &Demand, tier: &Tier) -> AttemptPlan {
        let now = if tier.waiting == 0 { self.factor } else { 1 };
        AttemptPlan { now, later: None, terms: CopyTerms::Idle }
    }
}
