//! Samples and results of a run.

use sherwood_model::{Instant, PartitionId, TenantId};
use sherwood_policy::tenants::{TenantObservation, TenantResource};

use super::{Event, NODE, World};
use crate::tenants::part::Part;
use crate::tenants::record::{BUCKET, Measured, TenantMeasured};
use crate::tenants::results::{ByResource, ByTenant, Holdings, Results, normalized};
use crate::world::curve;

impl World {
    pub(super) fn end_bucket(&mut self) {
        if self.now == Instant::ZERO + self.family.scenario.warm_up.0 {
            self.family.used_before = self.used();
        }
        let (gain, bound) = self.predicted();
        let holdings = (0..self.family.scenario.tenants.len()).map(|index| self.holdings(index)).collect();
        self.family.recorder.end_bucket(self.now, gain, bound, holdings);
        self.schedule(self.now + BUCKET, Event::Bucket);
    }

    /// Units of each resource that each tenant has used since the start.
    pub(super) fn used(&self) -> Vec<Vec<f64>> {
        let of_tenant = |seen: &TenantObservation| seen.counts.units.iter().map(|units| units.used).collect();
        self.nodes[NODE].tenants_seen(false).iter().map(of_tenant).collect()
    }

    /// Cache and rates of a tenant at present.
    fn holdings(&self, index: usize) -> Holdings {
        let tenant = TenantId::from_index(index);
        let names = self.family.scenario.resources.iter().map(|resource| resource.name.clone());
        let rates = self.plan().rates.expect("plans of several tenants have rates");
        Holdings {
            cache_bytes: self.bytes(tenant),
            rates: names.zip(rates.row(tenant).iter().copied()).collect(),
        }
    }

    /// Returns the results of the run so far, judged against the figures of a run of `baseline` of
    /// the same length.
    #[must_use]
    pub fn results(&self, base: &Measured) -> Results {
        let measured = self.measured();
        let normalized = normalized(&measured, base);
        let tenant = |(index, tenant): (usize, &TenantMeasured)| ByTenant {
            name: tenant.name.clone(),
            throughput: tenant.requests as f64 / measured.seconds.max(1e-9),
            normalized: normalized[index].0,
            normalized_min: normalized[index].1,
            hit_ratio: tenant.hits as f64 / tenant.reads.max(1) as f64,
            predicted_hit_ratio: self.predicted_hit_ratio(index),
            p50_ms: tenant.p50_ms,
            p99_ms: tenant.p99_ms,
            p999_ms: tenant.p999_ms,
            refused_ratio: tenant.refused as f64 / (tenant.requests + tenant.refused).max(1) as f64,
            holdings: self.holdings(index),
        };
        let (predicted_gain, bound) = self.predicted();
        Results {
            scenario: self.family.scenario.name.clone(),
            policy: self.family.setup.policy.clone(),
            within: self.family.setup.knobs.within.clone(),
            seed: self.family.setup.seed,
            scale: self.family.setup.scale,
            requests: measured.tenants.iter().map(|tenant| tenant.requests).sum(),
            normalized_least: normalized.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min),
            predicted_gain,
            bound,
            decisions: self.family.decisions,
            applied: self.family.applied,
            resources: self.resources(),
            tenants: measured.tenants.iter().enumerate().map(tenant).collect(),
            complete: self.now >= self.end,
        }
    }

    /// Hits per read that the curve predicts for the present size of a tenant with one partition.
    fn predicted_hit_ratio(&self, index: usize) -> Option<f64> {
        let own = |part: &Part| part.tenant.index() == index;
        let partition = PartitionId::from_index(self.family.parts.iter().position(own)?);
        let is_only = self.family.scenario.tenants[index].loads.len() == 1 && !self.family.is_shared;
        let cache = &self.nodes[NODE].cache;
        let curve = curve(cache, partition).filter(|_| is_only)?;
        Some(1.0 - curve.misses_per_read.at(cache.usage(partition).budget_bytes))
    }

    /// Use of each resource in the measurement.
    fn resources(&self) -> Vec<ByResource> {
        let (seconds, used) = (self.measured().seconds.max(1e-9), self.used());
        let resource = |(i, resource): (usize, &TenantResource)| {
            let total = resource.total_per_s;
            let of_tenant = |(now, before): (&Vec<f64>, &Vec<f64>)| (now[i] - before[i]) / seconds / total;
            let used_ratio = used.iter().zip(&self.family.used_before).map(of_tenant).collect();
            ByResource { name: resource.name.clone(), total, used_ratio }
        };
        self.nodes[NODE].between().resources().iter().enumerate().map(resource).collect()
    }
}
