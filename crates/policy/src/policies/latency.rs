//! `latency`: memory for the backends whose queries are slow.
//!
//! It considers queries rather than requests, which is its weakness: a slow backend that few
//! requests need takes memory from those that requests wait for.

use super::Fill;
use crate::{Needs, Options, Policy, Proposal, Signal, View};

/// A backend counts as slow if its 99th percentile of query latency is above this part of the mean.
const SLOW: f64 = 0.9;

/// Claims to the pool by query latency: weights are the 99th percentiles of query latency above 0.9
/// of their mean over the partitions that had queries.
#[derive(Clone)]
pub(crate) struct Latency {
    fill: Fill,
}

impl Latency {
    pub(crate) fn new(options: &Options) -> Self {
        Self { fill: Fill::strict(options) }
    }
}

impl Policy for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn needs(&self) -> Needs {
        Needs { requests: true, query_p99: true, ..Needs::default() }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let p99: Vec<Option<f64>> =
            view.seen.partitions.iter().map(|seen| Some(seen.query_p99?.as_secs_f64())).collect();
        let signal = Signal { before: "", after: " of the latency of slow queries" };
        Proposal::Claims(self.fill.claims(view, weights(&p99), signal))
    }
}

pub(super) fn weights(p99: &[Option<f64>]) -> Vec<f64> {
    let known: Vec<f64> = p99.iter().flatten().copied().collect();
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let weight = |p99: &Option<f64>| p99.filter(|&p99| p99 > SLOW * mean).unwrap_or(0.0);
    p99.iter().map(weight).collect()
}
