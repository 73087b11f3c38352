//! Layouts that a replicated store can have, and the way from one to another while it is in use.

use std::hash::Hash;
use std::ops::Range;

use sherwood_dispatch::{Layout, Marker};
use sherwood_model::{Instant, ReplicaId};
use thiserror::Error;

use super::{DUPLICATES_MAX, Duplicates};
use crate::backend::{AnswerCache, Backend};

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
    named: Option<Layout>,
    /// The latest marker that was found before the log was open.
    latest: Option<Marker>,
    /// False if duplicates have still to join or to leave.
    pub(super) is_settled: bool,
}

impl Place {
    pub(super) fn new(configured: Layout, partition: usize) -> Self {
        let replicas = holders(configured, configured, partition).map(ReplicaId::from_index).collect();
        Self { replicas, named: None, latest: None, is_settled: true }
    }

    /// Returns the number of a replica in the log, which it gets if it has none.
    fn place(&mut self, replica: usize) -> usize {
        let replica = ReplicaId::from_index(replica);
        self.replicas.iter().position(|known| *known == replica).unwrap_or_else(|| {
            self.replicas.push(replica);
            self.replicas.len() - 1
        })
    }
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Duplicates<K, V, W> {
    /// Returns the layout that the store has, or is on its way to.
    pub(in crate::backend) fn layout(&self) -> Layout {
        self.target
    }

    /// Has the store go to another layout, from the next wake-up of its logs on, which is due.
    pub(in crate::backend) fn aim_at(&mut self, layout: Layout) -> Result<(), LayoutError> {
        if layout == self.target {
            return Ok(());
        }
        let configured = self.options.layout();
        let possible = possible_layouts(configured);
        if !possible.contains(&layout) {
            return Err(LayoutError::Impossible { layout, configured, possible });
        }
        self.target = layout;
        for partition in 0..self.places.len() {
            self.places[partition].is_settled = false;
            self.arm(partition, Some(Instant::ZERO));
        }
        Ok(())
    }

    /// Asks all replicas that may have a partition at the start of a process if they have it: an
    /// earlier process may have changed the layout, and the configured ones may have lost what they
    /// had.
    pub(super) fn ask_candidates(&mut self, now: Instant, partition: usize) {
        let configured = self.options.layout();
        let place = &mut self.places[partition];
        for layout in possible_layouts(configured) {
            for replica in holders(configured, layout, partition) {
                let known = place.replicas.len();
                if place.place(replica) == known {
                    self.logs[partition].ask(now);
                    place.is_settled = false;
                }
            }
        }
    }

    /// Takes in the marker of a duplicate of a new process. If an earlier process had changed the
    /// layout, the duplicates of that layout are asked, too, before the log is open.
    pub(super) fn take_marker(&mut self, now: Instant, partition: usize, marker: Marker) {
        let (log, place) = (&mut self.logs[partition], &mut self.places[partition]);
        if log.is_open() || place.latest >= Some(marker) {
            return;
        }
        place.latest = Some(marker);
        let configured = self.options.layout();
        let named = marker.layout.filter(|layout| possible_layouts(configured).contains(layout));
        place.named = named;
        place.is_settled &= named.is_none();
        for replica in named.into_iter().flat_map(|layout| holders(configured, layout, partition)) {
            log.join(now, place.place(replica));
        }
        log.set_layout(now, named);
    }

    /// Has duplicates of a partition join and leave, as far as the target wants that now. Two
    /// layouts of which none has all duplicates of the other are changed by way of the configured
    /// one, so that a marker has to name one layout only.
    pub(super) fn follow_target(&mut self, now: Instant, partition: usize) {
        let (log, place) = (&mut self.logs[partition], &mut self.places[partition]);
        if place.is_settled || !log.is_open() {
            return;
        }
        let configured = self.options.layout();
        let of = |layout| holders(configured, layout, partition);
        let (own, named) = (of(configured), place.named.map_or_else(|| of(configured), of));
        let mut wanted = of(self.target);
        if !contains(&wanted, &named) && !contains(&named, &wanted) {
            wanted = own.clone();
        }
        let next = (!contains(&own, &wanted)).then_some(self.target);
        if !contains(&named, &wanted) {
            place.named = next;
            log.set_layout(now, next);
        }
        for replica in wanted.clone() {
            log.join(now, place.place(replica));
        }
        let wants = |replica: &ReplicaId| wanted.contains(&replica.index());
        let is_current = |(number, replica): (usize, &ReplicaId)| {
            !wants(replica) || (log.is_current(number) && log.stays(number))
        };
        if !place.replicas.iter().enumerate().all(is_current) {
            return;
        }
        let mut are_gone = true;
        for (number, _) in place.replicas.iter().enumerate().filter(|(_, replica)| !wants(replica)) {
            if log.stays(number) {
                log.leave(now, number);
            }
            are_gone &= log.is_gone(number);
        }
        if are_gone {
            if place.named != next {
                place.named = next;
                log.set_layout(now, next);
            }
            place.is_settled = wanted == of(self.target);
            if !place.is_settled {
                self.follow_target(now, partition);
            }
        }
    }
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Changes the number of partitions and duplicates of a replicated store while it is used.
    /// Duplicates that a partition gets are filled by copies; those that it had are read and
    /// written until all of the new ones are read. No write is lost or waits.
    ///
    /// # Errors
    /// If the store is not replicated or cannot have the layout.
    pub fn set_layout(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        layout: Layout,
    ) -> Result<(), LayoutError> {
        let duplicates = self.duplicates.as_mut().ok_or(LayoutError::NotReplicated)?;
        duplicates.aim_at(layout)?;
        self.check_due_next();
        self.advance(now, cache);
        self.keep_answers(now, cache);
        Ok(())
    }
}

/// Returns true if all of `inner` is in `outer`.
fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
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
