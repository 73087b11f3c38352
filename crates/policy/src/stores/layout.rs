//! Layouts of a store, and the data that moves between them.

use crate::slo::StorePlan;

/// Returns the share of a layout's data, all duplicates counted, that its nodes do not have yet
/// when the store is in another layout.
///
/// Nodes are numbered by partition: the duplicates of the first one come first. Each partition has
/// an equal range of the keys' hashes.
#[must_use]
pub fn moved_ratio(from: &StorePlan, to: &StorePlan) -> f64 {
    let missing = |node: u32| {
        let (begin, end) = range(to, node);
        let (had_begin, had_end) = if node < from.nodes() { range(from, node) } else { (0.0, 0.0) };
        let had = (end.min(had_end) - begin.max(had_begin)).max(0.0);
        end - begin - had
    };
    (0..to.nodes()).map(missing).sum::<f64>() / f64::from(to.duplicates)
}

/// Returns the part of the keys' hashes that a node has, from 0 to 1.
fn range(plan: &StorePlan, node: u32) -> (f64, f64) {
    let bound = |partition: u32| f64::from(partition) / f64::from(plan.partitions);
    let partition = node / plan.duplicates;
    (bound(partition), bound(partition + 1))
}

/// Returns true if both plans place the keys on the same nodes.
pub(super) fn is_same_layout(a: &StorePlan, b: &StorePlan) -> bool {
    (a.partitions, a.duplicates) == (b.partitions, b.duplicates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_data_are_what_the_nodes_do_not_have_yet() {
        let moved = |from: (u32, u32), to: (u32, u32)| {
            let [from, to] =
                [from, to].map(|(partitions, duplicates)| StorePlan::all_asked(partitions, duplicates));
            moved_ratio(&from, &to)
        };
        assert_eq!(moved((4, 1), (4, 1)), 0.0);
        // Each node keeps its half of a partition of twice the size.
        assert_eq!(moved((4, 1), (2, 2)), 0.5);
        // Each node drops half of what it has.
        assert_eq!(moved((2, 2), (4, 1)), 0.0);
        assert_eq!(moved((4, 1), (2, 1)), 0.75);
        assert_eq!(moved((2, 1), (4, 1)), 0.75);
    }
}
