//! Counters of look-ups that never decrease, whatever source they are taken from.

use sherwood_policy::Needs;

use crate::{Merged, Report};

/// Look-ups of a partition since some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) shadow_hits: u64,
}

impl Counts {
    pub(super) fn plus(self, more: Self) -> Self {
        let Self { hits, misses, shadow_hits } = more;
        Self {
            hits: self.hits.saturating_add(hits),
            misses: self.misses.saturating_add(misses),
            shadow_hits: self.shadow_hits.saturating_add(shadow_hits),
        }
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        let Self { hits, misses, shadow_hits } = earlier;
        Self {
            hits: self.hits.saturating_sub(hits),
            misses: self.misses.saturating_sub(misses),
            shadow_hits: self.shadow_hits.saturating_sub(shadow_hits),
        }
    }

    /// Returns the look-ups of the partitions called `names` in a report.
    pub(super) fn of_report(report: &Report, names: &[String]) -> Vec<Self> {
        let counts = |name| {
            let cache = report.partitions.get(name)?;
            Some(Self { hits: cache.hits, misses: cache.misses, shadow_hits: 0 })
        };
        names.iter().map(|name| counts(name).unwrap_or_default()).collect()
    }
}

/// Adds the counts of each partition.
pub(super) fn add(sums: &mut [Counts], more: &[Counts]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.plus(*more));
}

/// Returns the counts of each partition since `earlier` ones.
pub(super) fn since(counts: &[Counts], earlier: &[Counts]) -> Vec<Counts> {
    counts.iter().zip(earlier).map(|(counts, earlier)| counts.since(*earlier)).collect()
}

/// Number of sources that are no followed nodes: the node's own look-ups, and those that it merges.
pub(super) const OWN_SOURCES: usize = 2;

/// Counters of a source at one time.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// The incarnation since whose start is counted.
    pub(super) incarnation: u64,
    /// Counts by partition.
    pub(super) counts: Vec<Counts>,
}

/// Counters that decisions read. They advance by those of one source at a time: by its counts since
/// the decision before, so that a change of the source, or its restart, is no jump.
#[derive(Clone, Debug)]
pub(super) struct DecidedCounts {
    total: Vec<Counts>,
    /// The reading of each source at the last decision; none if there was none.
    last: Vec<Option<Reading>>,
}

impl DecidedCounts {
    /// Returns counters of zero for so many partitions. The first sources have counted since these
    /// `readings`; so many further ones are `followed` nodes.
    pub(super) fn new(partitions: usize, readings: Vec<Option<Reading>>, followed: usize) -> Self {
        let mut counts = Self { total: vec![Counts::default(); partitions], last: readings };
        counts.replace_followed(followed);
        counts
    }

    /// Replaces the followed nodes by others of which nothing is known.
    pub(super) fn replace_followed(&mut self, followed: usize) {
        self.last.truncate(OWN_SOURCES);
        self.last.resize(OWN_SOURCES + followed, None);
    }

    /// Advances by the source at `chosen`, and returns by how much. A source without a reading at
    /// the last decision, or of another incarnation since, adds nothing yet.
    pub(super) fn advance(&mut self, readings: Vec<Option<Reading>>, chosen: usize) -> Vec<Counts> {
        let added = match (&self.last[chosen], &readings[chosen]) {
            (Some(last), Some(now)) if last.incarnation == now.incarnation => {
                since(&now.counts, &last.counts)
            }
            _ => vec![Counts::default(); self.total.len()],
        };
        add(&mut self.total, &added);
        self.last = readings;
        added
    }

    /// Returns the partitions with these counters, the shadow hits that the last decision `added`
    /// and the `curves` of the source.
    pub(super) fn partitions(
        &self,
        needs: &Needs,
        added: &[Counts],
        curves: impl Iterator<Item = Merged>,
    ) -> Vec<Merged> {
        let each = self.total.iter().zip(added).zip(curves);
        let partition = |((total, added), Merged { curve, .. }): ((&Counts, &Counts), _)| Merged {
            hits: total.hits,
            misses: total.misses,
            curve,
            shadow_hits: needs.shadow_ratio.map(|_| added.shadow_hits),
        };
        each.map(partition).collect()
    }
}
