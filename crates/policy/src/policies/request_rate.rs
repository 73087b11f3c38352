//! `req_rate`: memory for the partitions with the most queries.

use super::Fill;
use crate::{Needs, Options, Policy, Proposal, Signal, View};

/// Claims to the pool by queries: weights are the numbers of queries in the window.
#[derive(Clone)]
pub(crate) struct RequestRate {
    fill: Fill,
}

impl RequestRate {
    pub(crate) fn new(options: &Options) -> Self {
        Self { fill: Fill::strict(options) }
    }
}

impl Policy for RequestRate {
    fn name(&self) -> &'static str {
        "req_rate"
    }

    fn needs(&self) -> Needs {
        Needs { requests: true, ..Needs::default() }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let weights = view.seen.partitions.iter().map(|seen| seen.queries as f64).collect();
        let signal = Signal { before: "", after: " of the queries" };
        Proposal::Claims(self.fill.claims(view, weights, signal))
    }
}
