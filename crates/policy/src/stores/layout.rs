//! Layouts of a store, and the data that moves between them.

use crate::slo::StorePlan;

/// Returns the share of a layout's data, all duplicates counted, that its nodes do not have yet
/// when the store is in another layout.
///
/// Nodes are numbered by partition: the duplicates of the first one come first. Each partition has
/// an equal range of the keys' hashes.
#[must_use]
pub fn moved_ratio(from: &StorePlan, to: &StorePlan) -> f64 {
    moved((from, from), (to, to))
}

/// The layouts that a store can have on the nodes of its configured one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PossibleLayouts {
    configured: StorePlan,
    layouts: Vec<StorePlan>,
}

impl PossibleLayouts {
    pub(super) fn new(configured: StorePlan, layouts: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let plan = |(partitions, duplicates)| StorePlan::all_asked(partitions, duplicates);
        Self { configured, layouts: layouts.into_iter().map(plan).collect() }
    }

    /// Returns the layouts that use at most so many nodes.
    pub(super) fn on(&self, nodes: u32) -> impl Iterator<Item = &StorePlan> {
        self.layouts.iter().filter(move |layout| layout.nodes() <= nodes)
    }

    /// Returns the same as [`moved_ratio`], where the nodes keep their configured numbers.
    pub(super) fn moved_ratio(&self, from: &StorePlan, to: &StorePlan) -> f64 {
        moved((&self.configured, from), (&self.configured, to))
    }
}

/// Returns the share of data that moves between two layouts, each beside the one by which its nodes
/// are numbered.
fn moved(from: (&StorePlan, &StorePlan), to: (&StorePlan, &StorePlan)) -> f64 {
    let missing = |node: u32| {
        let ((begin, end), (had_begin, had_end)) = (range(to, node), range(from, node));
        let had = (end.min(had_end) - begin.max(had_begin)).max(0.0);
        end - begin - had
    };
    let (numbered, to) = to;
    (0..numbered.nodes()).map(missing).sum::<f64>() / f64::from(to.duplicates)
}

/// Returns the part of the keys' hashes that a node has, from 0 to 1; an empty one if it has none.
/// Nodes are numbered by the first layout, of which the other one has some of the duplicates, or
/// puts partitions together.
fn range((numbered, plan): (&StorePlan, &StorePlan), node: u32) -> (f64, f64) {
    let together = (numbered.partitions / plan.partitions).max(1);
    let partition = node / numbered.duplicates / together;
    let first = partition * together * numbered.duplicates;
    if partition >= plan.partitions || node - first >= plan.duplicates {
        return (0.0, 0.0);
    }
    let bound = |partition: u32| f64::from(partition) / f64::from(plan.partitions);
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

    #[test]
    fn nodes_keep_their_configured_numbers_in_other_layouts() {
        let layouts = [(2, 1), (2, 2), (1, 4)];
        let possible = PossibleLayouts::new(StorePlan::all_asked(2, 2), layouts);
        let moved = |from: usize, to: usize| {
            let [from, to] = [from, to].map(|of| StorePlan::all_asked(layouts[of].0, layouts[of].1));
            possible.moved_ratio(&from, &to)
        };
        assert_eq!([moved(1, 0), moved(1, 1)], [0.0, 0.0]);
        // The second duplicate of each partition is filled, which is half of the data.
        assert_eq!(moved(0, 1), 0.5);
        // Each of four nodes has half of the keys, or two of them have.
        assert_eq!([moved(1, 2), moved(0, 2)], [0.5, 0.75]);
        assert_eq!(moved(2, 0), 0.0);
        assert_eq!(possible.on(3).map(StorePlan::nodes).collect::<Vec<_>>(), [2]);
    }
}
