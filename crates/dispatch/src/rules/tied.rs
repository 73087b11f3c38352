//! `copies = "tied"`: attempts wait at several replicas; the one that starts removes the others.

use sherwood_model::Demand;

use super::{AtStart, AttemptPlan, CopyTerms, Replication, Tier};

/// Replication rule that plans `factor` attempts at once, of which the first that starts takes the
/// others out of their queues (Dean and Barroso, "The tail at scale", 2013, tied requests). Only
/// one of them becomes a call, so that the others cost nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tied {
    pub(crate) factor: u8,
}

impl Replication for Tied {
    fn plan(&mut self, _demand: &Demand, _tier: &Tier) -> AttemptPlan {
        AttemptPlan { now: self.factor, later: None, terms: CopyTerms::Planned }
    }

    fn started(&mut self, _demand: &Demand, _number: u32) -> AtStart {
        AtStart::CancelQueued
    }
}
