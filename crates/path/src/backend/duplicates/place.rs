//! Layouts that a replicated store can have, and the replicas of its partitions.

use std::ops::Range;

use sherwood_dispatch::{Layout, Marker};
use sherwood_model::ReplicaId;
use thiserror::Error;

/// Largest number of duplicates of a partition.
pub const DUPLICATES_MAX: usize = 8;

/// The reason why a store cannot have a layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The store has no duplicates.
    #[error("the store is not replicated by the node: set duplicates in its [[backend]]")]
    NotReplicated,
    /// The replicas cannot be divided so.
    #[error("a store configured as {configured} cannot be {layout}; it can be {}", possible.iter().map(Layout::to_string).collect::<Vec<_>>().join(", "))]
    Impossible {
        /// The layout that was asked for.
        layout: Layout,
        /// The configured layout.
        configured: Layout,
        /// All layouts that the store can have.
        possible: Vec<Layout>,
    },
}

/// Returns the layouts that a store can have without other servers: fewer duplicates of each
/// configured partition, or partitions put together, each on all replicas of those.
#[must_use]
pub fn possible_layouts(configured: Layout) -> Vec<Layout> {
    let Layout { partitions, duplicates } = configured;
    let fewer = (1..=duplicates).map(|duplicates| Layout { partitions, duplicates });
    let merged = (2..=partitions).filter(|of| partitions.is_multiple_of(*of)).filter_map(|of| {
        let duplicates = usize::from(of) * usize::from(duplicates);
        let duplicates = u8::try_from(duplicates).ok().filter(|_| duplicates <= DUPLICATES_MAX)?;
        Some(Layout { partitions: partitions / of, duplicates })
    });
    fewer.chain(merged).collect()
}

/// Returns the numbers of the replicas that have a configured partition in a possible layout. Those
/// of the configured layout are among them if partitions are put together.
pub(super) fn holders(configured: Layout, layout: Layout, partition: usize) -> Range<usize> {
    let together = usize::from(configured.partitions / layout.partitions);
    let first = partition / together * together * usize::from(configured.duplicates);
    first..first + usize::from(layout.duplicates)
}

/// The replicas of a partition, and how far the store is on its way to a layout there.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The replicas that were ever duplicates, by their numbers in the log.
    pub(super) replicas: Vec<ReplicaId>,
    /// The layout whose duplicates may have changes that the configured ones lack; none if that is
    /// the configured one.
    pub(super) named: Option<Layout>,
    /// The latest marker that was found before the log was open.
    pub(super) latest: Option<Marker>,
    /// False if duplicates have still to join or to leave.
    pub(super) is_settled: bool,
}

impl Place {
    pub(super) fn new(configured: Layout, partition: usize) -> Self {
        let replicas = holders(configured, configured, partition).map(ReplicaId::from_index).collect();
        Self { replicas, named: None, latest: None, is_settled: true }
    }

    /// Returns the number of a replica in the log, which it gets if it has none.
    pub(super) fn place(&mut self, replica: usize) -> usize {
        let replica = ReplicaId::from_index(replica);
        self.replicas.iter().position(|known| *known == replica).unwrap_or_else(|| {
            self.replicas.push(replica);
            self.replicas.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Layout {
        text.parse().expect("a layout")
    }

    #[test]
    fn store_can_have_fewer_duplicates_or_partitions_put_together() {
        let possible = |configured| {
            let all = possible_layouts(layout(configured));
            all.iter().map(Layout::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(possible("1x3"), "1x1 1x2 1x3");
        assert_eq!(possible("6x1"), "6x1 3x2 2x3 1x6");
        assert_eq!(possible("4x2"), "4x1 4x2 2x4 1x8");
        assert_eq!(possible("144x1"), "144x1 72x2 48x3 36x4 24x6 18x8");
    }

    #[test]
    fn partitions_that_are_put_together_are_on_all_of_their_replicas() {
        let on = |to, partition| holders(layout("6x2"), layout(to), partition);
        assert_eq!([on("6x2", 3), on("6x1", 3), on("3x4", 3), on("3x4", 2)], [6..8, 6..7, 4..8, 4..8]);
        assert_eq!([on("2x6", 2), on("2x6", 3)], [0..6, 6..12]);
    }
}
