//! The node's observations for the control loop.

use sherwood_cache::Cache;
use sherwood_control::{AdmissionSeen, CacheReport, CacheSeen, MergedNames, PartitionSeen, Report};
use sherwood_model::{BackendId, Instant, PartitionId, RequestSnapshot};
use sherwood_policy::{MissLatency, MissRatioCurve, Needs, Observation};

use super::Control;
use super::actuator::Held;
use crate::names::{Names, PartitionName};

impl Control {
    /// Makes the observations that a decision among partitions needs, and no others. Simulated
    /// caches run, and misses are timed, only while a policy needs them.
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
        let (held, mut admissions) = (self.actuator.observe(), parts.admission.observe());
        let report = report(&parts.names, &held, &admissions, |partition| {
            curves.then(|| curve(cache, partition)).flatten()
        });
        let names: Vec<_> = parts.names.partitions().iter().map(|of| of.name.as_str()).collect();
        let backends: Vec<_> = parts.names.backends().iter().map(String::as_str).collect();
        let names = MergedNames { partitions: &names, backends: &backends };
        let merged = self.merger.merge(names, needs, total_bytes, &[report]);
        for seen in &mut admissions {
            seen.ended = merged.deadlines[seen.backend.index()];
        }
        let query_p99 = |index| telemetry.query_sketch(now, BackendId::from_index(index)).quantile(0.99);
        let query_p99: Vec<_> = (0..backends.len()).map(query_p99).collect();
        let each = parts.names.partitions().iter().zip(held).zip(merged.partitions).enumerate();
        let partitions = each.map(|(index, ((name, held), merged))| PartitionSeen {
            reached: held.reached,
            allocated_bytes: held.allocated_bytes,
            used_bytes: held.used_bytes,
            hits: merged.hits,
            misses: merged.misses,
            restarts: held.restarts,
            query_p99: query_p99[name.backend.index()],
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
        let seen = |finished: &RequestSnapshot| Observation::of_requests(finished, needs, backends.len());
        CacheSeen {
            at: now,
            total_bytes,
            partitions,
            requests: finished.iter().map(seen).collect(),
            losses: parts.losses.seen(),
            admissions,
        }
    }
}

/// Returns the node's counters by the names of its configuration.
fn report(
    names: &Names,
    held: &[Held],
    admissions: &[AdmissionSeen],
    curve: impl Fn(PartitionId) -> Option<MissRatioCurve>,
) -> Report {
    let cache = |(index, (partition, held)): (usize, (&PartitionName, &Held))| {
        let Held { allocated_bytes: budget_bytes, hits, misses, .. } = *held;
        let curve = curve(PartitionId::from_index(index));
        (partition.name.clone(), CacheReport { budget_bytes, hits, misses, curve })
    };
    let ended = |seen: &AdmissionSeen| (names.backend(seen.backend).to_owned(), seen.ended);
    Report {
        // A node merges its own report alone.
        node: String::new(),
        partitions: names.partitions().iter().zip(held).enumerate().map(cache).collect(),
        deadlines: admissions.iter().map(ended).collect(),
    }
}

fn curve(cache: &Cache, partition: PartitionId) -> Option<MissRatioCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    MissRatioCurve::sampled(curve.sampled_gets, curve.bytes.into_iter().zip(curve.miss_ratio))
}
