//! The node's observations for the control loop.

use sherwood_cache::Cache;
use sherwood_control::{AdmissionSeen, CacheReport, CacheSeen, MergedNames, PartitionSeen, Report};
use sherwood_model::{BackendId, Instant, PartitionId};
use sherwood_policy::{MissLatency, MissRatioCurve, Needs, Observation};

use super::Control;
use super::actuator::Held;
use crate::names::{Names, PartitionName};

/// Largest number of points of all curves in a report, some 20 KB encoded.
const CURVES_POINTS_MAX: usize = 4_096;
/// Largest number of points of one curve. Chosen: with it, the miss ratio is off by at most 1/64
/// for any curve, and by a thousandth for most.
const CURVE_POINTS_MAX: usize = 256;
/// Number of points that a curve may have in any case.
const CURVE_POINTS_MIN: usize = 8;

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
        let (held, mut admissions) = (self.actuator.observe(), parts.admission.observe());
        let report = report(&parts.names, &held, &admissions, |partition| {
            needs_curves(needs).then(|| curve(cache, partition)).flatten()
        });
        let names: Vec<_> = parts.names.partitions().iter().map(|of| of.name.as_str()).collect();
        let backends: Vec<_> = parts.names.backends().iter().map(String::as_str).collect();
        let names = MergedNames { partitions: &names, backends: &backends };
        let merged = self.merger.merge(names, needs, total_bytes, &[report]);
        for seen in &mut admissions {
            seen.ended = merged.deadlines[seen.backend.index()];
        }
        self.want_statistics();
        let (merged, requests) = match &parts.statistics {
            None => (merged.partitions, None),
            Some(statistics) => {
                statistics.known(now, &self.wants(needs.clone()), total_bytes, merged.partitions)
            }
        };
        let query_p99 = |index| telemetry.query_sketch(now, BackendId::from_index(index)).quantile(0.99);
        let query_p99: Vec<_> = (0..backends.len()).map(query_p99).collect();
        let each = parts.names.partitions().iter().zip(held).zip(merged).enumerate();
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
        let requests = requests.map(|known| known.observations(needs, backends.len()));
        let requests = requests.unwrap_or_else(|| self.own_requests(now, needs, backends.len()));
        CacheSeen { at: now, total_bytes, partitions, requests, losses: parts.losses.seen(), admissions }
    }

    /// Returns the observations of the node's own requests: of all, or of each tenant where tenants
    /// divide the cache.
    fn own_requests(&self, now: Instant, needs: &Needs, backends: usize) -> Vec<Observation> {
        let telemetry = &self.parts.telemetry;
        let finished = match self.rounds.levels().tenants() {
            _ if !needs.requests => Vec::new(),
            None => vec![telemetry.snapshot(now)],
            Some(levels) => telemetry.snapshots(now, levels.between().terms().len()),
        };
        finished.iter().map(|finished| Observation::of_requests(finished, needs, backends)).collect()
    }

    /// Returns the node's counters that other nodes are told of: without deadlines, and with curves
    /// only if the policy needs them. These have at most 4,096 points in all, but each up to eight.
    pub(crate) fn report(&self) -> Report {
        let needs = self.rounds.levels().needs();
        let (names, held) = (&self.parts.names, self.actuator.observe());
        let points_max = (CURVES_POINTS_MAX / held.len().max(1)).clamp(CURVE_POINTS_MIN, CURVE_POINTS_MAX);
        report(names, &held, &[], |partition| {
            let curve = needs_curves(&needs).then(|| curve(&self.parts.cache, partition)).flatten();
            curve.map(|curve| curve.simplified(points_max))
        })
    }
}

fn needs_curves(needs: &Needs) -> bool {
    needs.shadow_ratio.is_some() || needs.miss_ratio_curves
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
        // A node knows its own report; one that is sent gets the name of the node.
        node: String::new(),
        partitions: names.partitions().iter().zip(held).enumerate().map(cache).collect(),
        deadlines: admissions.iter().map(ended).collect(),
    }
}

fn curve(cache: &Cache, partition: PartitionId) -> Option<MissRatioCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    MissRatioCurve::sampled(curve.sampled_gets, curve.bytes.into_iter().zip(curve.miss_ratio))
}
