//! Samples and results of a run.

use sherwood_model::{Instant, PartitionId, TenantId};
use sherwood_workload::tenants::Resource;

use super::{Event, World};
use crate::tenants::control::curve;
use crate::tenants::part::Asked;
use crate::tenants::record::{BUCKET, Measured, TenantMeasured};
use crate::tenants::results::{ByResource, ByTenant, Holdings, Results, normalized};

impl World {
    pub(super) fn end_bucket(&mut self) {
        if self.now == Instant::ZERO + self.scenario.warm_up.0 {
            self.used_before = self.used();
        }
        let (gain, bound) = self.control.predicted();
        let holdings = (0..self.scenario.tenants.len()).map(|index| self.holdings(index)).collect();
        self.recorder.end_bucket(self.now, gain, bound, holdings);
        self.events.schedule(self.now + BUCKET, Event::Bucket);
    }

    /// Units of each resource that each tenant has used since the start.
    fn used(&self) -> Vec<Vec<f64>> {
        let of_tenant =
            |asked: &Vec<Asked>| self.control.units(asked).iter().map(|units| units.used).collect();
        self.asked().iter().map(of_tenant).collect()
    }

    /// Cache and rates of a tenant at present.
    fn holdings(&self, index: usize) -> Holdings {
        let tenant = TenantId::from_index(index);
        let names = self.scenario.resources.iter().map(|resource| resource.name.clone());
        let rates = self.control.plan().rates.expect("plans of several tenants have rates");
        Holdings {
            cache_bytes: self.control.bytes(tenant, &self.parts),
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
        let (predicted_gain, bound) = self.control.predicted();
        Results {
            scenario: self.scenario.name.clone(),
            policy: self.setup.policy.clone(),
            within: self.setup.knobs.within.clone(),
            seed: self.setup.seed,
            scale: self.setup.scale,
            requests: measured.tenants.iter().map(|tenant| tenant.requests).sum(),
            normalized_least: normalized.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min),
            predicted_gain,
            bound,
            decisions: self.control.decisions,
            applied: self.control.applied,
            resources: self.resources(),
            tenants: measured.tenants.iter().enumerate().map(tenant).collect(),
            complete: self.now >= self.end(),
        }
    }

    /// Hits per read that the curve predicts for the present size of a tenant with one partition.
    fn predicted_hit_ratio(&self, index: usize) -> Option<f64> {
        let partition = PartitionId(self.first_part(TenantId::from_index(index)));
        let is_only = self.scenario.tenants[index].loads.len() == 1 && !self.is_shared;
        let curve = curve(&self.cache, partition).filter(|_| is_only)?;
        Some(1.0 - curve.misses_per_read.at(self.cache.usage(partition).budget_bytes))
    }

    /// Use of each resource in the measurement.
    fn resources(&self) -> Vec<ByResource> {
        let (seconds, used) = (self.measured().seconds.max(1e-9), self.used());
        let resource = |(i, resource): (usize, &Resource)| {
            let total = self.total(i);
            let of_tenant = |(now, before): (&Vec<f64>, &Vec<f64>)| (now[i] - before[i]) / seconds / total;
            let used_ratio = used.iter().zip(&self.used_before).map(of_tenant).collect();
            ByResource { name: resource.name.clone(), total, used_ratio }
        };
        self.scenario.resources.iter().enumerate().map(resource).collect()
    }
}
