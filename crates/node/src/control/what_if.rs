//! Reads what-if data for policies that ask for it: the cache's miss ratio curves, which cover
//! every protocol, and the latency of the gateway's misses. Read once per decision, and only if
//! asked for.

use sherwood_cache::Cache;
use sherwood_model::{Instant, PartitionId};
use sherwood_policy::{MissLatency, MissRatioCurve, Needs, PartitionObservation};

use super::actuator::Held;
use crate::observe::telemetry::Telemetry;

/// Look-ups of each partition up to the last decision.
#[derive(Debug, Default)]
pub(super) struct WhatIf {
    look_ups: Vec<u64>,
}

impl WhatIf {
    /// Adds the data that `needs` asks for to the observation `seen`; `held` is the state of the
    /// partitions.
    pub(super) fn add(
        &mut self,
        (cache, telemetry, now): (&Cache, &Telemetry, Instant),
        needs: &Needs,
        total_bytes: u64,
        held: &[Held],
        seen: &mut [PartitionObservation],
    ) {
        telemetry.time_misses(needs.miss_latency);
        self.look_ups.resize(held.len(), 0);
        let shadow_bytes = needs.shadow_bytes(total_bytes);
        for (index, (held, seen)) in held.iter().zip(seen).enumerate() {
            let look_ups = held.hits + held.misses;
            let since = look_ups.saturating_sub(std::mem::replace(&mut self.look_ups[index], look_ups));
            if shadow_bytes.is_some() || needs.miss_ratio_curves {
                seen.miss_ratio_curve = curve(cache, PartitionId::from_index(index));
            }
            if let (Some(more), Some(curve)) = (shadow_bytes, &seen.miss_ratio_curve) {
                seen.shadow_hits = Some(curve.shadow_hits(held.allocated_bytes, more, since));
            }
            if needs.miss_latency {
                seen.miss_latency = MissLatency::of(&telemetry.miss_sketch(now, seen.backend));
            }
        }
    }
}

fn curve(cache: &Cache, partition: PartitionId) -> Option<MissRatioCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    MissRatioCurve::sampled(curve.sampled_gets, curve.bytes.into_iter().zip(curve.miss_ratio))
}
