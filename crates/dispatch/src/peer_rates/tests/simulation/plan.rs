//! The configurations of a simulated cluster and the times of its faults.

use std::time::Duration;

use sherwood_model::Instant;

use super::super::super::PeerNode;
use crate::draws::{Draws, below};

/// Names of all nodes that may exist.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Faults end at this time; the world ends after a calm phase.
pub(super) const FAULTS_END: Instant = Instant::from_millis(8_000);
pub(super) const END: Instant = Instant::from_millis(11_000);

/// The totals of the resources, and the nodes with their weights.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    pub(super) totals: Vec<f64>,
    pub(super) nodes: Vec<PeerNode>,
}

/// The configurations before and after the change of a world, which comes to one node after the
/// other.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) before: Configuration,
    pub(super) after: Configuration,
    /// True if there is a change.
    pub(super) is_one: bool,
}

impl Change {
    /// Draws the nodes, weights and totals of a world; half of them change.
    pub(super) fn draw(draws: &mut Draws) -> Self {
        let count = 2 + pick(draws, 3);
        let before = Configuration { totals: vec![3_000.0, 500.0], nodes: nodes(draws, count) };
        let mut after = before.clone();
        match pick(draws, 8) {
            0 => after.nodes = nodes(draws, count),
            1 if count < NAMES.len() => after.nodes = nodes(draws, count + 1),
            2 if count > 2 => after.nodes = nodes(draws, count - 1),
            3 => after.totals = vec![2_000.0, 900.0],
            _ => {}
        }
        let is_one = after.nodes != before.nodes || after.totals != before.totals;
        Self { before, after, is_one }
    }

    /// The larger total of a resource.
    pub(super) fn most(&self, resource: usize) -> f64 {
        self.before.totals[resource].max(self.after.totals[resource])
    }
}

fn nodes(draws: &mut Draws, count: usize) -> Vec<PeerNode> {
    let node = |name: &&str| PeerNode { name: (*name).into(), weight: (1 + pick(draws, 3)) as f64 };
    NAMES[..count].iter().map(node).collect()
}

/// Draws a number below `bound`.
pub(super) fn pick(draws: &mut Draws, bound: usize) -> usize {
    below(draws.next(), bound as u64) as usize
}

/// Draws a duration below `bound`.
pub(super) fn time(draws: &mut Draws, bound: Duration) -> Duration {
    Duration::from_nanos(below(draws.next(), bound.as_nanos() as u64))
}
