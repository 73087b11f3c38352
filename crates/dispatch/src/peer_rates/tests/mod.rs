//! Tests of rates in a cluster.

mod loans;
mod members;
mod served;
mod simulation;

use std::time::Duration;

use sherwood_model::{Instant, ResourceId, TenantId};

use super::*;

const READS: ResourceId = ResourceId(0);
const T0: TenantId = TenantId(0);

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn nodes(weights: &[(&str, f64)]) -> Vec<PeerNode> {
    weights.iter().map(|(name, weight)| PeerNode { name: (*name).into(), weight: *weight }).collect()
}

fn options(node: &str, nodes: Vec<PeerNode>, tenants: u16) -> PeerRateOptions {
    PeerRateOptions { node: node.into(), nodes, incarnation: 1, totals: vec![3_000.0], tenants, lends: true }
}

/// Returns the messages to another node that wait to be sent.
fn sent(rates: &mut PeerRates) -> (Vec<RateAsk>, Vec<RateGrant>) {
    let (mut asks, mut grants) = (Vec::new(), Vec::new());
    while let Some(action) = rates.poll_action() {
        match action {
            RateAction::SetRates(..) => {}
            RateAction::Ask(_, ask) => asks.push(ask),
            RateAction::Grant(_, grant) => grants.push(grant),
        }
    }
    (asks, grants)
}
