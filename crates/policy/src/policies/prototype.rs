//! `prototype`: the authors' first design, by rank of query latency.

use std::time::Duration;

use crate::{Claims, Needs, Policy, Proposal, Signal, View};

/// Ranks partitions by their 99th percentile of query latency: the slowest has weight 2, the
/// fastest one above the floor 0, and the others 1. With fewer than two partitions above the floor
/// all weights are 0. Unfilled partitions are treated like others; partitions without queries have
/// no rank and weight 0. Ties go to the lower id.
#[derive(Clone)]
pub(crate) struct Prototype;

impl Policy for Prototype {
    fn name(&self) -> &'static str {
        "prototype"
    }

    fn needs(&self) -> Needs {
        Needs { requests: true, query_p99: true, ..Needs::default() }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        let p99: Vec<Option<Duration>> = view.seen.partitions.iter().map(|seen| seen.query_p99).collect();
        let above_floor: Vec<bool> = view.budgets.iter().map(|&bytes| bytes > view.floor_bytes).collect();
        let signal = Signal { before: "", after: " by rank of query latency" };
        Proposal::Claims(Claims { weights: weights(&p99, &above_floor), unfilled: Vec::new(), signal })
    }
}

pub(super) fn weights(p99: &[Option<Duration>], above_floor: &[bool]) -> Vec<f64> {
    let mut weights = vec![0.0; p99.len()];
    if above_floor.iter().filter(|&&above| above).count() < 2 {
        return weights;
    }
    let mut ranked: Vec<usize> = (0..p99.len()).filter(|&i| p99[i].is_some()).collect();
    // Slowest first; the sort is stable, so the lower of two equals counts as the slower.
    ranked.sort_by_key(|&i| std::cmp::Reverse(p99[i]));
    for &i in &ranked {
        weights[i] = 1.0;
    }
    if let Some(&slowest) = ranked.first() {
        weights[slowest] = 2.0;
    }
    if let Some(&fastest) = ranked.iter().rev().find(|&&i| above_floor[i]) {
        weights[fastest] = 0.0;
    }
    weights
}
