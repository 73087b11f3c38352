//! Merging of what several nodes saw of their caches.
//!
//! The policies were designed for one cache. With several nodes, their measurements are combined
//! and given to all (`RobinHood`, section 5.1): look-ups and finds in shadow queues are summed,
//! curves are averaged with the numbers of look-ups as weights.

use sherwood_policy::{MissRatioCurve, Needs};

/// A partition of one node's cache, with counters since the node's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheReport {
    /// Budget in force, bytes.
    pub budget_bytes: u64,
    /// Look-ups that found an item.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Miss ratio by size; none if no policy needs it.
    pub curve: Option<MissRatioCurve>,
}

/// A partition over all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// Look-ups since the start that found an item.
    pub hits: u64,
    /// Look-ups since the start that found none.
    pub misses: u64,
    /// Miss ratio by a node's budget; none without a need of it.
    pub curve: Option<MissRatioCurve>,
    /// Look-ups since the last merge that missed and would have hit with [`Needs::shadow_ratio`] of
    /// the total more; none without a need of them.
    pub shadow_hits: Option<u64>,
}

/// Merges reports, decision by decision.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    /// Look-ups of each node and partition up to the last decision, for weights of estimates.
    look_ups: Vec<Vec<u64>>,
}

impl Merger {
    /// Returns each partition over all nodes. `reports` has a list of each node, always of the same
    /// partitions in the same order; `total_bytes` is the size of each node's cache. Of nothing it
    /// makes nothing. O(n log n) for n points of all curves.
    pub fn merge(&mut self, needs: &Needs, total_bytes: u64, reports: &[Vec<CacheReport>]) -> Vec<Merged> {
        let partitions = reports.iter().map(Vec::len).max().unwrap_or(0);
        self.look_ups.resize(reports.len(), Vec::new());
        self.look_ups.iter_mut().for_each(|before| before.resize(partitions, 0));
        (0..partitions).map(|index| self.of(index, needs, total_bytes, reports)).collect()
    }

    fn of(&mut self, index: usize, needs: &Needs, total_bytes: u64, reports: &[Vec<CacheReport>]) -> Merged {
        let mut merged = Merged::default();
        let mut curves = Vec::new();
        for (report, before) in reports.iter().zip(&mut self.look_ups) {
            let Some(CacheReport { budget_bytes, hits, misses, curve }) = report.get(index) else { continue };
            (merged.hits, merged.misses) =
                (merged.hits.saturating_add(*hits), merged.misses.saturating_add(*misses));
            let look_ups = hits.saturating_add(*misses);
            // A node that has started anew counts from zero.
            let since = look_ups.saturating_sub(std::mem::replace(&mut before[index], look_ups));
            let Some(curve) = curve else { continue };
            if let Some(more) = needs.shadow_bytes(total_bytes) {
                let found = curve.shadow_hits(*budget_bytes, more, since);
                merged.shadow_hits = Some(merged.shadow_hits.unwrap_or(0).saturating_add(found));
            }
            curves.push((look_ups, curve));
        }
        if needs.miss_ratio_curves || needs.hit_ratio_slope {
            merged.curve = MissRatioCurve::mean(&curves);
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(hits: u64, misses: u64, sizes: &[(u64, f64)]) -> Vec<CacheReport> {
        let curve = Some(MissRatioCurve::new(sizes.iter().copied()));
        vec![CacheReport { budget_bytes: 100, hits, misses, curve }]
    }

    #[test]
    fn nothing_merges_to_nothing() {
        assert_eq!(Merger::default().merge(&Needs::default(), 1_000, &[]), []);
    }

    #[test]
    fn look_ups_and_shadow_hits_are_summed_and_curves_averaged_by_look_ups() {
        let needs = Needs { shadow_ratio: Some(0.1), miss_ratio_curves: true, ..Needs::default() };
        let mut merger = Merger::default();
        // One node would find half of what it looks up with 100 bytes more, the other nothing.
        let (steep, flat) = (&[(100, 0.5), (200, 0.0)][..], &[(100, 0.5), (200, 0.5)][..]);
        let first = merger.merge(&needs, 1_000, &[report(200, 100, steep), report(50, 50, flat)]);
        let [merged] = &first[..] else { panic!("{first:?}") };
        assert_eq!((merged.hits, merged.misses, merged.shadow_hits), (250, 150, Some(150)));
        assert_eq!(merged.curve.as_ref().map(|curve| curve.at(200)), Some(0.125));
        let second = merger.merge(&needs, 1_000, &[report(210, 110, steep), report(50, 50, flat)]);
        assert_eq!(second[0].shadow_hits, Some(10), "of the 20 look-ups since");
        // A node that starts anew.
        let third = merger.merge(&needs, 1_000, &[report(0, 4, steep), report(50, 50, flat)]);
        assert_eq!((third[0].misses, third[0].shadow_hits), (54, Some(0)));
    }
}
