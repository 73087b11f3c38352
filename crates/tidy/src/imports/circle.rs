//! Finds the largest circle (strongly connected component) of a small graph.

use std::collections::BTreeSet;

/// Returns the largest set of `nodes` in which each node reaches every other along `edges`, in
/// order; the first one of equal size. Empty when no two nodes reach each other. Needs time
/// proportional to `nodes` times `edges`, which is short for the files of a crate.
pub(super) fn largest(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let reached: Vec<BTreeSet<usize>> = (0..nodes).map(|node| reached_from(node, edges)).collect();
    let mut largest = Vec::new();
    for node in 0..nodes {
        let circle: Vec<usize> =
            reached[node].iter().copied().filter(|&other| reached[other].contains(&node)).collect();
        if circle.len() > largest.len().max(1) {
            largest = circle;
        }
    }
    largest
}

/// Returns every node that can be reached from `start` along at least one edge.
fn reached_from(start: usize, edges: &[(usize, usize)]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        for &(_, to) in edges.iter().filter(|&&(from, _)| from == node) {
            if reached.insert(to) {
                waiting.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_lead_to_a_circle_of_imports_are_not_members() {
        assert_eq!(largest(6, &[(0, 1), (1, 2), (2, 3), (3, 1), (3, 4), (5, 0)]), [1, 2, 3]);
    }

    #[test]
    fn circles_of_imports_that_share_a_file_are_one() {
        assert_eq!(largest(3, &[(0, 1), (1, 0), (1, 2), (2, 1)]), [0, 1, 2]);
    }

    #[test]
    fn chain_of_imports_has_no_circle() {
        assert!(largest(3, &[(0, 1), (1, 2), (0, 2)]).is_empty());
    }
}
