//! Merging of several nodes' observations.
//!
//! The policies were designed for one cache. With several nodes, their measurements are combined
//! and given to all nodes (`RobinHood`, section 5.1): look-ups and shadow-queue hits are summed,
//! curves are averaged with the numbers of look-ups as weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sherwood_policy::{MissRatioCurve, Needs};

use crate::DeadlineCounts;

/// Observations of one node, with counters since its start. Partitions and backends have names,
/// because their ids depend on a node's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the node.
    pub node: String,
    /// The node's cache by partition.
    pub partitions: BTreeMap<String, CacheReport>,
    /// Ended deadlines, by backend.
    pub deadlines: BTreeMap<String, DeadlineCounts>,
}

/// A partition of one node's cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Budget in force, bytes.
    pub budget_bytes: u64,
    /// Look-ups that found an item.
    pub hits: u64,
    /// Look-ups that found no item.
    pub misses: u64,
    /// Miss ratio by size; none if no policy needs it.
    pub curve: Option<MissRatioCurve>,
}

/// The known names of partitions and backends; reports about other names are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergedNames<'a> {
    /// Names of the partitions, in the order of their ids.
    pub partitions: &'a [&'a str],
    /// Names of the backends, in the order of their ids.
    pub backends: &'a [&'a str],
}

/// Observations of all nodes together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedReport {
    /// Each partition, in the order of their ids.
    pub partitions: Vec<Merged>,
    /// Deadlines that ended at each backend, in the order of their ids.
    pub deadlines: Vec<DeadlineCounts>,
}

/// The observations of one partition, merged over all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// Look-ups since the start that found an item.
    pub hits: u64,
    /// Look-ups since the start that found no item.
    pub misses: u64,
    /// Miss ratio by budget of a node; none if no policy needs it.
    pub curve: Option<MissRatioCurve>,
    /// Look-ups since the last merge that missed, and would have hit if the partition were larger
    /// by [`Needs::shadow_ratio`] of the total; none if no policy needs them.
    pub shadow_hits: Option<u64>,
}

/// Maximum number of nodes whose counts are kept while they send no report.
const ABSENT_MAX: usize = 1_024;

/// Merges the reports of each decision. A node may be absent from any number of merges; but if more
/// than 1,024 nodes are absent, their counts are dropped, and their next reports count as first
/// ones.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    last: LookUps,
}

/// Look-ups of each node and partition up to a merge. The next merge estimates shadow hits from the
/// look-ups since then.
pub type LookUps = BTreeMap<String, BTreeMap<String, u64>>;

impl Merger {
    /// Returns a merger that knows these nodes before their first look-ups, so that all look-ups of
    /// their first reports count for shadow hits.
    #[must_use]
    pub fn of_new(nodes: impl IntoIterator<Item = String>) -> Self {
        Self { last: nodes.into_iter().map(|node| (node, BTreeMap::new())).collect() }
    }

    /// Merges the reports of nodes whose caches have `total_bytes` each; see [`merge`].
    pub fn merge(
        &mut self,
        names: MergedNames<'_>,
        needs: &Needs,
        total_bytes: u64,
        reports: &[Report],
    ) -> MergedReport {
        let merged = merge(names, needs, total_bytes, &self.last, reports);
        let of = |report: &Report| {
            let each = report.partitions.iter().map(|(name, cache)| (name.clone(), cache.look_ups()));
            (report.node.clone(), each.collect())
        };
        let reports = by_node(reports);
        self.last.extend(reports.values().copied().map(of));
        if self.last.len() > reports.len() + ABSENT_MAX {
            self.last.retain(|node, _| reports.contains_key(node.as_str()));
        }
        merged
    }

    /// Forgets a node, whose next report counts as its first one.
    pub fn forget(&mut self, node: &str) {
        self.last.remove(node);
    }
}

/// Merges the reports of nodes whose caches have `total_bytes` each. Shadow hits are estimated from
/// the look-ups since the `last` merge; a node that is not in `last` has none, because the age of
/// its look-ups is unknown. The order of nodes has no effect; of several reports of a node, the one
/// with the most look-ups counts, or the first of equal ones. Without reports all counts are zero.
/// O(n log n) for n points of all curves.
#[must_use]
pub fn merge(
    names: MergedNames<'_>,
    needs: &Needs,
    total_bytes: u64,
    last: &LookUps,
    reports: &[Report],
) -> MergedReport {
    let reports = by_node(reports);
    let partition = |name: &&str| {
        let each = reports.values().filter_map(|report| {
            let cache = report.partitions.get(*name)?;
            let before = last.get(&report.node).map(|before| before.get(*name).copied().unwrap_or(0));
            Some((cache, before.unwrap_or(cache.look_ups())))
        });
        merged(each, needs, total_bytes)
    };
    let deadlines = |name: &&str| {
        let each = reports.values().filter_map(|report| report.deadlines.get(*name));
        each.fold(DeadlineCounts::default(), |sum, counts| sum.plus(counts))
    };
    MergedReport {
        partitions: names.partitions.iter().map(partition).collect(),
        deadlines: names.backends.iter().map(deadlines).collect(),
    }
}

/// Returns the report of each node, in the order of their names.
fn by_node(reports: &[Report]) -> BTreeMap<&str, &Report> {
    let mut by_node: BTreeMap<&str, &Report> = BTreeMap::new();
    for report in reports {
        let kept = by_node.entry(&report.node).or_insert(report);
        if report.look_ups() > kept.look_ups() {
            *kept = report;
        }
    }
    by_node
}

/// Merges the reports of a partition, each given with the node's look-ups up to the last merge.
fn merged<'a>(each: impl Iterator<Item = (&'a CacheReport, u64)>, needs: &Needs, total_bytes: u64) -> Merged {
    let mut merged = Merged::default();
    let mut curves = Vec::new();
    for (report, before) in each {
        merged.hits = merged.hits.saturating_add(report.hits);
        merged.misses = merged.misses.saturating_add(report.misses);
        let Some(curve) = &report.curve else { continue };
        if let Some(more) = needs.shadow_bytes(total_bytes) {
            // A node that has started anew counts from zero.
            let since = report.look_ups().saturating_sub(before);
            let found = curve.shadow_hits(report.budget_bytes, more, since);
            merged.shadow_hits = Some(merged.shadow_hits.unwrap_or(0).saturating_add(found));
        }
        curves.push((report.look_ups(), curve));
    }
    if needs.miss_ratio_curves || needs.hit_ratio_slope {
        merged.curve = MissRatioCurve::mean(&curves);
    }
    merged
}

impl Report {
    fn look_ups(&self) -> u64 {
        self.partitions.values().fold(0, |sum: u64, cache| sum.saturating_add(cache.look_ups()))
    }
}

impl CacheReport {
    fn look_ups(&self) -> u64 {
        self.hits.saturating_add(self.misses)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: u64 = 1_000;

    const NAMES: MergedNames<'_> = MergedNames { partitions: &["a", "b"], backends: &["a", "b"] };

    fn needs() -> Needs {
        Needs { shadow_ratio: Some(0.1), miss_ratio_curves: true, ..Needs::default() }
    }

    fn report(node: &str, partition: &str, hits: u64, misses: u64, sizes: &[(u64, f64)]) -> Report {
        let curve = Some(MissRatioCurve::new(sizes.iter().copied()));
        let cache = CacheReport { budget_bytes: 100, hits, misses, curve };
        let deadlines = DeadlineCounts { met: hits, missed: misses, rejected: 0 };
        Report {
            node: node.to_owned(),
            partitions: [(partition.to_owned(), cache)].into(),
            deadlines: [(partition.to_owned(), deadlines)].into(),
        }
    }

    fn merged_by(merger: &mut Merger, reports: &[Report]) -> MergedReport {
        merger.merge(NAMES, &needs(), TOTAL, reports)
    }

    #[test]
    fn merging_no_reports_yields_zeros() {
        let nothing = MergedReport {
            partitions: vec![Merged::default(); 2],
            deadlines: vec![DeadlineCounts::default(); 2],
        };
        assert_eq!(merged_by(&mut Merger::default(), &[]), nothing);
        assert_eq!(
            Merger::default().merge(MergedNames::default(), &needs(), 0, &[]),
            MergedReport::default()
        );
        let unknown = report("n1", "unknown", 5, 5, &[(100, 0.5)]);
        assert_eq!(merged_by(&mut Merger::default(), &[unknown]), nothing, "the name is not known");
    }

    #[test]
    fn merged_counts_are_summed_and_curves_are_averaged_with_look_ups_as_weights() {
        let mut merger = Merger::default();
        merged_by(&mut merger, &["n1", "n2"].map(|node| report(node, "a", 0, 0, &[(100, 0.5)])));
        // One node would find half of what it looks up with 100 bytes more, the other nothing.
        let (steep, flat) = (&[(100, 0.5), (200, 0.0)][..], &[(100, 0.5), (200, 0.5)][..]);
        let mut merge = |hits, misses| {
            let reports = [report("n1", "a", hits, misses, steep), report("n2", "a", 50, 50, flat)];
            merged_by(&mut merger, &reports)
        };
        let first = merge(200, 100);
        let merged = &first.partitions[0];
        assert_eq!((merged.hits, merged.misses, merged.shadow_hits), (250, 150, Some(150)));
        assert_eq!(merged.curve.as_ref().map(|curve| curve.at(200)), Some(0.125));
        assert_eq!(first.deadlines[0], DeadlineCounts { met: 250, missed: 150, rejected: 0 });
        let second = merge(210, 110);
        assert_eq!(second.partitions[0].shadow_hits, Some(10), "of the 20 look-ups since");
        // A node that starts anew.
        let third = &merge(0, 4).partitions[0];
        assert_eq!((third.misses, third.shadow_hits), (54, Some(0)));
    }

    #[test]
    fn shadow_hits_count_look_ups_since_a_nodes_last_report_and_none_for_its_first_report() {
        let found = |merger: &mut Merger, reports: &[Report]| {
            merged_by(merger, reports).partitions[0].shadow_hits.unwrap_or(0)
        };
        let of = |node: &str, misses| report(node, "a", 0, misses, &[(100, 1.0), (200, 0.0)]);
        let mut merger = Merger::default();
        assert_eq!(found(&mut merger, &[of("n1", 100), of("n2", 100)]), 0, "first reports");
        assert_eq!(found(&mut merger, &[of("n2", 110)]), 10, "n1 is absent");
        assert_eq!(found(&mut merger, &[of("n1", 105), of("n2", 110)]), 5);
        assert_eq!(found(&mut Merger::of_new(["n1".to_owned()]), &[of("n1", 7)]), 7, "known from the start");
        let many: Vec<_> = (0..=ABSENT_MAX).map(|node| of(&format!("other{node}"), 1)).collect();
        merged_by(&mut merger, &many);
        assert_eq!(merger.last.len(), ABSENT_MAX + 3);
        merged_by(&mut merger, &[of("n1", 106)]);
        assert_eq!(merger.last.len(), 1, "too many were absent");
    }

    #[test]
    fn first_of_several_reports_of_a_node_with_equal_look_ups_is_used() {
        let reports = [report("n1", "a", 4, 6, &[]), report("n1", "a", 6, 4, &[])];
        assert_eq!(merged_by(&mut Merger::default(), &reports).partitions[0].hits, 4);
    }

    #[test]
    fn report_has_the_documented_fields() {
        let report = report("n1", "a", 2, 1, &[(100, 0.5)]);
        let json = serde_json::json!({
            "node": "n1",
            "partitions": {"a": {"budget_bytes": 100, "hits": 2, "misses": 1, "curve": [[0, 1.0], [100, 0.5]]}},
            "deadlines": {"a": {"met": 2, "missed": 1, "rejected": 0}},
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), json);
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
        // Curves that were received are repaired.
        let broken =
            serde_json::json!({"budget_bytes": 1, "hits": 0, "misses": 0, "curve": [[9, 7.0], [5, 0.1]]});
        let broken: CacheReport = serde_json::from_value(broken).unwrap();
        assert_eq!(broken.curve, Some(MissRatioCurve::new([(9, 1.0)])));
    }

    fn any_report() -> impl Strategy<Value = Report> {
        let parts = (0_u8..4, 0_usize..3, 0_u64..1_000, any::<u64>(), 0.0..1.0_f64);
        parts.prop_map(|(node, partition, hits, misses, ratio)| {
            let sizes = [(100, ratio), (200, ratio / 2.0)];
            report(&node.to_string(), ["a", "b", "unknown"][partition], hits, misses, &sizes)
        })
    }

    fn reports_and_shuffled() -> impl Strategy<Value = (Vec<Report>, Vec<Report>)> {
        let reports = proptest::collection::vec(any_report(), 0..8).prop_map(|mut reports| {
            let mut seen = std::collections::BTreeSet::new();
            reports.retain(|report| seen.insert((report.node.clone(), report.look_ups())));
            reports
        });
        reports.prop_flat_map(|reports| (Just(reports.clone()), Just(reports).prop_shuffle()))
    }

    proptest! {
        #[test]
        fn order_of_reports_does_not_change_the_merged_result((reports, shuffled) in reports_and_shuffled()) {
            let (mut one, mut other) = (Merger::default(), Merger::default());
            for _ in 0..2 {
                prop_assert_eq!(merged_by(&mut one, &reports), merged_by(&mut other, &shuffled));
            }
        }
    }
}
