//! Input of a decision between tenants.

use sherwood_model::{DemandCurve, ResourceKind};

use crate::share::share;

/// Largest rate in units per second; larger ones, infinity among them, count as this, so that sums
/// stay finite.
const RATE_MAX: f64 = 1e15;

/// Throughput that counts as not limited by any resource, in requests per second.
const THROUGHPUT_MAX: f64 = 1e15;

/// Cache and rates of a tenant, or of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// Bytes of cache.
    pub bytes: u64,
    /// Units per second of each resource, in the order of their ids; missing elements count as 0.
    pub rates: Vec<f64>,
}

/// Observation of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSeen {
    /// The tenant's baseline: the share that it may count on.
    pub base: Share,
    /// The least that the tenant is given, at most its baseline. `hare` respects it; the published
    /// policies respect its bytes only.
    pub floor: Share,
    /// Misses of an average read by bytes of cache.
    pub miss_ratio: DemandCurve,
    /// Units of each resource that an average request takes, in the order of the resources' ids;
    /// missing elements count as no demand.
    pub demand: Vec<DemandCurve>,
}

/// Input of a [`TenantPolicy`](super::TenantPolicy): tenants, resources and totals.
///
/// Figures are not trusted: rates that are NaN or negative count as 0; baselines that sum to more
/// than a total are scaled down to it, and a floor counts as at most the baseline. The floor of a
/// tenant that needs no resource at its baseline, because all its requests hit, is raised to the
/// bytes with which that remains so.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenants {
    kinds: Vec<ResourceKind>,
    total: Share,
    seen: Vec<TenantSeen>,
    base_throughput: Vec<f64>,
}

impl Tenants {
    /// Returns the input for resources of these kinds. O(tenants × resources × points).
    #[must_use]
    pub fn new(kinds: Vec<ResourceKind>, mut total: Share, mut seen: Vec<TenantSeen>) -> Self {
        repair(&mut total.rates, kinds.len());
        for tenant in &mut seen {
            repair(&mut tenant.base.rates, kinds.len());
            repair(&mut tenant.floor.rates, kinds.len());
            tenant.demand.resize(kinds.len(), DemandCurve::constant(0.0));
        }
        fit(&total, &mut seen);
        for TenantSeen { base, floor, .. } in &mut seen {
            floor.bytes = floor.bytes.min(base.bytes);
            floor.rates.iter_mut().zip(&base.rates).for_each(|(floor, base)| *floor = floor.min(*base));
        }
        let mut base_throughput = Vec::with_capacity(seen.len());
        for tenant in &mut seen {
            let unlimited = size_without_demand(tenant);
            if let Some(bytes) = unlimited.filter(|_| has_demand(tenant)) {
                tenant.floor.bytes = tenant.floor.bytes.max(bytes);
            }
            let base = &tenant.base;
            let limited = unlimited.is_none();
            base_throughput.push(if limited { throughput(tenant, base.bytes, &base.rates) } else { 0.0 });
        }
        Self { kinds, total, seen, base_throughput }
    }

    /// Number of tenants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// True without tenants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The kind of each resource, in the order of their ids.
    #[must_use]
    pub fn kinds(&self) -> &[ResourceKind] {
        &self.kinds
    }

    /// Cache and rates to divide.
    #[must_use]
    pub fn total(&self) -> &Share {
        &self.total
    }

    /// The tenants in the order of their ids, repaired.
    #[must_use]
    pub fn seen(&self) -> &[TenantSeen] {
        &self.seen
    }

    /// Requests per second of each tenant at its baseline, 0 if it needs nothing of any resource.
    #[must_use]
    pub fn base_throughput(&self) -> &[f64] {
        &self.base_throughput
    }

    /// Requests per second of the tenant at `index` with this cache and these rates: 0 without
    /// demand at any size, 10¹⁵ if no resource limits them.
    ///
    /// # Panics
    /// If there is no such tenant.
    #[must_use]
    pub fn throughput(&self, index: usize, bytes: u64, rates: &[f64]) -> f64 {
        throughput(&self.seen[index], bytes, rates)
    }

    /// The bytes of each tenant's baseline.
    pub(super) fn base_bytes(&self) -> Vec<u64> {
        self.seen.iter().map(|tenant| tenant.base.bytes).collect()
    }

    /// Sum of the baselines' rates of each resource.
    pub(super) fn base_rates(&self) -> Vec<f64> {
        let rate = |i: usize| self.seen.iter().map(|tenant| tenant.base.rates[i]).sum();
        (0..self.kinds.len()).map(rate).collect()
    }
}

fn throughput(tenant: &TenantSeen, bytes: u64, rates: &[f64]) -> f64 {
    if !has_demand(tenant) {
        return 0.0;
    }
    let demands = tenant.demand.iter().map(|curve| curve.at(bytes));
    let limits = demands.zip(rates).filter(|(units, _)| *units > 0.0).map(|(units, rate)| rate / units);
    limits.fold(THROUGHPUT_MAX, f64::min)
}

fn has_demand(tenant: &TenantSeen) -> bool {
    tenant.demand.iter().any(|curve| curve.points().iter().any(|point| point.1 > 0.0))
}

/// The least size up to its baseline from which on the tenant needs nothing of any resource; none
/// if it needs something at its baseline.
fn size_without_demand(tenant: &TenantSeen) -> Option<u64> {
    let base = tenant.base.bytes;
    let needs = |bytes: u64| tenant.demand.iter().any(|curve| curve.at(bytes) > 0.0);
    if needs(base) {
        return None;
    }
    let points = tenant.demand.iter().flat_map(|curve| curve.points().iter().map(|point| point.0));
    let mut sizes: Vec<u64> = points.filter(|&size| size < base).collect();
    sizes.sort_unstable();
    let below = sizes.iter().rposition(|&size| needs(size));
    Some(below.map_or(0, |below| sizes.get(below + 1).copied().unwrap_or(base)))
}

fn repair(rates: &mut Vec<f64>, resources: usize) {
    rates.resize(resources, 0.0);
    for rate in rates {
        // Also false for NaN.
        *rate = if *rate > 0.0 { rate.min(RATE_MAX) } else { 0.0 };
    }
}

/// Scales the baselines down where they sum to more than the total.
fn fit(total: &Share, seen: &mut [TenantSeen]) {
    let bytes: Vec<u64> = seen.iter().map(|tenant| tenant.base.bytes).collect();
    if crate::bounds::sum(&bytes) > u128::from(total.bytes) {
        let weights: Vec<f64> = bytes.iter().map(|&bytes| bytes as f64).collect();
        let fitted = share(total.bytes.into(), &weights, &bytes);
        seen.iter_mut().zip(fitted).for_each(|(tenant, bytes)| tenant.base.bytes = bytes);
    }
    for (i, &most) in total.rates.iter().enumerate() {
        let sum: f64 = seen.iter().map(|tenant| tenant.base.rates[i]).sum();
        if sum > most {
            seen.iter_mut().for_each(|tenant| tenant.base.rates[i] *= most / sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::BackendId;

    use super::*;

    fn tenant(bytes: u64, rate: f64, units: f64) -> TenantSeen {
        TenantSeen {
            base: Share { bytes, rates: vec![rate] },
            floor: Share { bytes: u64::MAX, rates: vec![f64::INFINITY] },
            miss_ratio: DemandCurve::constant(1.0),
            demand: vec![DemandCurve::constant(units)],
        }
    }

    fn tenants(total: Share, seen: Vec<TenantSeen>) -> Tenants {
        Tenants::new(vec![ResourceKind::Reads(BackendId(0))], total, seen)
    }

    #[test]
    fn baselines_above_the_totals_are_scaled_down_to_them() {
        let total = Share { bytes: 10, rates: vec![30.0] };
        let tenants = tenants(total, vec![tenant(10, 40.0, 1.0), tenant(30, 20.0, 2.0)]);
        assert_eq!(tenants.base_bytes(), [3, 7]);
        assert_eq!(tenants.base_rates(), [30.0]);
        assert_eq!(tenants.base_throughput(), [20.0, 5.0]);
        assert_eq!(tenants.seen()[0].floor, tenants.seen()[0].base, "a floor is at most the baseline");
    }

    #[test]
    fn tenant_that_needs_nothing_at_its_baseline_keeps_the_bytes_for_that() {
        let mut full = tenant(100, 10.0, 0.0);
        full.floor.bytes = 3;
        full.demand = vec![DemandCurve::new([(0, 1.0), (40, 0.0), (70, 0.0)])];
        let mut idle = tenant(100, 10.0, 0.0);
        idle.floor.bytes = 3;
        let tenants = tenants(Share { bytes: 200, rates: vec![20.0] }, vec![full, idle]);
        assert_eq!([0, 1].map(|index| tenants.seen()[index].floor.bytes), [40, 3]);
        assert_eq!(tenants.base_throughput(), [0.0, 0.0]);
        assert_eq!(tenants.throughput(0, 40, &[0.0]), THROUGHPUT_MAX);
        assert_eq!(tenants.throughput(0, 39, &[0.0]), 0.0);
        assert_eq!(tenants.throughput(1, 40, &[5.0]), 0.0);
    }

    #[test]
    fn rates_that_are_invalid_or_missing_count_as_zero() {
        let total = Share { bytes: 10, rates: vec![f64::INFINITY] };
        let mut poor = tenant(1, -5.0, 1.0);
        poor.floor.rates = vec![];
        let tenants = tenants(total, vec![poor, tenant(1, f64::NAN, 1.0), tenant(1, 5.0, 0.0)]);
        assert_eq!(tenants.base_rates(), [5.0]);
        assert_eq!(tenants.base_throughput(), [0.0; 3], "no rate, no rate, no demand");
        assert_eq!(tenants.total().rates, [RATE_MAX]);
    }
}
