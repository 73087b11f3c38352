//! Observations of the node for the control loop.

use sherwood_cache::Cache;
use sherwood_control::{CacheReport, CacheSeen, PartitionSeen};
use sherwood_model::{Instant, PartitionId, RequestSnapshot};
use sherwood_policy::{MissLatency, MissRatioCurve, Needs, Observation};

use super::Control;
use super::actuator::Held;

impl Control {
    /// Observes what a decision among partitions needs, and no more. Simulated caches run, and
    /// misses are timed, only while a policy needs them.
    pub(super) fn observe(&mut self, now: Instant, needs: &Needs) -> CacheSeen {
        let (parts, levels) = (&self.parts, self.rounds.levels());
        let (cache, telemetry, shadow) = (&parts.cache, &parts.telemetry, &parts.shadow);
        let total_bytes = self.actuator.total_bytes();
        telemetry.time_misses(needs.miss_latency);
        let slopes = if needs.hit_ratio_slope {
            shadow.slopes(&levels.budgets())
        } else {
            shadow.rest(now);
            Vec::new()
        };
        let curves = needs.shadow_ratio.is_some() || needs.miss_ratio_curves;
        let held = self.actuator.observe();
        let report = |(index, held): (usize, &Held)| CacheReport {
            budget_bytes: held.allocated_bytes,
            hits: held.hits,
            misses: held.misses,
            curve: curves.then(|| curve(cache, PartitionId::from_index(index))).flatten(),
        };
        let report = held.iter().enumerate().map(report).collect();
        let merged = self.merger.merge(needs, total_bytes, &[report]);
        let each = parts.names.partitions().iter().zip(held).zip(merged).enumerate();
        let partitions = each.map(|(index, ((name, held), merged))| PartitionSeen {
            reached: held.reached,
            allocated_bytes: held.allocated_bytes,
            used_bytes: held.used_bytes,
            hits: merged.hits,
            misses: merged.misses,
            restarts: held.restarts,
            query_p99: telemetry.query_sketch(now, name.backend).quantile(0.99),
            hit_ratio_slope: slopes.get(index).copied().flatten(),
            shadow_hits: merged.shadow_hits,
            miss_ratio_curve: merged.curve,
            miss_latency: needs
                .miss_latency
                .then(|| MissLatency::of(&telemetry.miss_sketch(now, name.backend)))
                .flatten(),
            ..PartitionSeen::new(name.tenant, name.backend)
        });
        let partitions = partitions.collect();
        let finished = match levels.tenants() {
            _ if !needs.requests => Vec::new(),
            None => vec![telemetry.snapshot(now)],
            Some(levels) => telemetry.snapshots(now, levels.between().terms().len()),
        };
        let backends = parts.names.backends().len();
        let seen = |finished: &RequestSnapshot| Observation::of_requests(finished, needs, backends);
        CacheSeen {
            at: now,
            total_bytes,
            partitions,
            requests: finished.iter().map(seen).collect(),
            losses: parts.losses.seen(),
            admissions: parts.admission.observe(),
        }
    }
}

fn curve(cache: &Cache, partition: PartitionId) -> Option<MissRatioCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    MissRatioCurve::sampled(curve.sampled_gets, curve.bytes.into_iter().zip(curve.miss_ratio))
}
