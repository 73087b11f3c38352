//! Estimated effects of other cache sizes, over all servers.
//!
//! The policies that use them were designed for one cache. With several servers, their measurements
//! are combined by the statistics server and sent back to all (RobinHood's paper, section 5.1):
//! curves are averaged with the numbers of look-ups as weights, finds in shadow queues are summed.
//! Each server measures its own cache, as a node does; but slopes of hit ratios, for which a node
//! simulates two further caches, are computed from the curves.

use sherwood_cache::Cache;
use sherwood_model::PartitionId;
use sherwood_policy::{MissRatioCurve, Needs};

use crate::server::Server;

/// Estimated effects of other cache sizes on one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimates {
    /// Miss ratio of the partition by a server's budget for it.
    pub(crate) curve: Option<MissRatioCurve>,
    /// Finds in the shadow queues of all servers since the last decision.
    pub(crate) shadow_hits: Option<u64>,
}

/// Look-ups of each server and partition up to the last decision, for weights of estimates.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhatIf {
    look_ups: Vec<Vec<u64>>,
}

impl WhatIf {
    /// Returns the estimated effects of other sizes on each partition; empty if `needs` requires
    /// none. O(n log n) for n points of all curves.
    pub(crate) fn estimates(
        &mut self,
        needs: &Needs,
        servers: &[Server],
        partitions: usize,
    ) -> Vec<Estimates> {
        if !are_needed(needs) {
            return vec![Estimates::default(); partitions];
        }
        self.look_ups.resize(servers.len(), vec![0; partitions]);
        (0..partitions).map(|index| self.of(PartitionId::from_index(index), needs, servers)).collect()
    }

    fn of(&mut self, partition: PartitionId, needs: &Needs, servers: &[Server]) -> Estimates {
        let mut shadow_hits = None;
        let mut curves = Vec::with_capacity(servers.len());
        for (server, before) in servers.iter().zip(&mut self.look_ups) {
            let usage = server.cache.usage(partition);
            let look_ups = usage.hits + usage.misses;
            let since = look_ups - std::mem::replace(&mut before[partition.index()], look_ups);
            let Some(curve) = curve(&server.cache, partition) else { continue };
            if let Some(more) = needs.shadow_bytes(server.cache.total_bytes()) {
                *shadow_hits.get_or_insert(0) += curve.shadow_hits(usage.budget_bytes, more, since);
            }
            curves.push((look_ups, curve));
        }
        let curves: Vec<_> = curves.iter().map(|(look_ups, curve)| (*look_ups, curve)).collect();
        let averaged = needs.miss_ratio_curves || needs.hit_ratio_slope;
        let curve = if averaged { MissRatioCurve::mean(&curves) } else { None };
        Estimates { curve, shadow_hits }
    }
}

/// True if a policy with these needs uses estimates.
pub(crate) fn are_needed(needs: &Needs) -> bool {
    needs.shadow_ratio.is_some() || needs.miss_ratio_curves || needs.hit_ratio_slope
}

fn curve(cache: &Cache, partition: PartitionId) -> Option<MissRatioCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    MissRatioCurve::sampled(curve.sampled_gets, curve.bytes.into_iter().zip(curve.miss_ratio))
}
