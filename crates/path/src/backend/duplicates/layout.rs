//! The way of a replicated store from one layout to another, while it is in use.

use std::hash::Hash;
use std::ops::Range;

use sherwood_dispatch::{Layout, Marker};
use sherwood_model::{Instant, ReplicaId};

use super::Duplicates;
use super::place::{LayoutError, holders, possible_layouts};
use crate::backend::{AnswerCache, Backend};

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
        let is_ours = usize::from(marker.partitions) == self.options.partitions;
        if !is_ours || log.is_open() || place.latest >= Some(marker) {
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
