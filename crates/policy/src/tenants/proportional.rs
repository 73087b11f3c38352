//! Dominant resource fairness at a fixed division of the cache, as HARE uses it.
//!
//! Each tenant keeps what its throughput at the baseline needs, the rest becomes a pool, and the
//! pool is divided in proportion to what tenants kept: steps 1 and 3 of the published algorithm.

use sherwood_model::{Rates, TenantId};

use super::Tenants;

/// Share of a resource's total below which its pool counts as empty.
const EMPTY_RATIO: f64 = 1e-12;

/// Rates that tenants hold, and the pool of those that no tenant holds.
#[derive(Clone, Debug)]
pub(super) struct Holdings {
    pub(super) held: Rates,
    pub(super) pool: Vec<f64>,
    /// Sum of held rates and pool.
    pub(super) total: Vec<f64>,
}

impl Holdings {
    /// Returns what each tenant needs for the throughput that it has with `bytes` of cache and the
    /// rates of its baseline; the rest of the baselines is the pool.
    pub(super) fn needed(tenants: &Tenants, bytes: &[u64]) -> Self {
        let total = tenants.base_rates();
        let mut held = Rates::zero(tenants.len(), total.len());
        let mut pool = vec![0.0; total.len()];
        for (index, (tenant, &bytes)) in tenants.seen().iter().zip(bytes).enumerate() {
            let throughput = tenants.throughput(index, bytes, &tenant.base.rates);
            let row = held.row_mut(TenantId::from_index(index));
            for (i, (held, &base)) in row.iter_mut().zip(&tenant.base.rates).enumerate() {
                // Rounding may give more than the baseline, which the pool must not owe.
                *held = (throughput * tenant.demand[i].at(bytes)).min(base);
                pool[i] += base - *held;
            }
        }
        Self { held, pool, total }
    }

    /// Returns what each tenant needs with `bytes` of cache for the throughput of its baseline; the
    /// rest of the baselines is the pool. Where the needs of a resource exceed the baselines, each
    /// tenant has its part of them and the pool is empty.
    pub(super) fn compensated(tenants: &Tenants, bytes: &[u64]) -> Self {
        let total = tenants.base_rates();
        let mut held = Rates::zero(tenants.len(), total.len());
        let mut sums = vec![0.0; total.len()];
        for (index, (tenant, &bytes)) in tenants.seen().iter().zip(bytes).enumerate() {
            let row = held.row_mut(TenantId::from_index(index));
            for (i, held) in row.iter_mut().enumerate() {
                *held = tenants.base_throughput()[index] * tenant.demand[i].at(bytes);
                sums[i] += *held;
            }
        }
        for index in 0..tenants.len() {
            for (i, held) in held.row_mut(TenantId::from_index(index)).iter_mut().enumerate() {
                if sums[i] > total[i] {
                    *held *= total[i] / sums[i];
                }
            }
        }
        let pool = total.iter().zip(&sums).map(|(total, sum)| (total - sum).max(0.0)).collect();
        Self { held, pool, total }
    }

    /// The gain if this pool were divided now: the least ratio of a pool to what tenants hold of
    /// the resource, infinite if tenants hold nothing.
    pub(super) fn score(&self, pool: &[f64]) -> f64 {
        self.ratios(pool).fold(f64::INFINITY, f64::min)
    }

    /// The ratio of each pool to what tenants hold of the resource.
    pub(super) fn ratios(&self, pool: &[f64]) -> impl Iterator<Item = f64> {
        let ratio = |(pool, total): (&f64, &f64)| {
            let held = total - pool;
            if held > total * EMPTY_RATIO { pool / held } else { f64::INFINITY }
        };
        pool.iter().zip(&self.total).map(ratio)
    }

    /// Divides the pool. `conserving`: in proportion to what tenants hold of each resource, equally
    /// where they hold nothing, so that nothing is left. Otherwise every tenant gets the score's
    /// ratio of what it holds, and the rest stays in the pool.
    pub(super) fn redistribute(self, conserving: bool) -> Rates {
        let score = self.score(&self.pool);
        let ratios: Vec<f64> = if conserving {
            self.ratios(&self.pool).collect()
        } else {
            vec![if score.is_finite() { score } else { 0.0 }; self.pool.len()]
        };
        let Self { mut held, pool, total } = self;
        let tenants = held.tenants();
        for index in 0..tenants {
            for (i, held) in held.row_mut(TenantId::from_index(index)).iter_mut().enumerate() {
                if pool[i] > total[i] * EMPTY_RATIO {
                    *held += if ratios[i].is_finite() { *held * ratios[i] } else { pool[i] / tenants as f64 };
                }
            }
        }
        held
    }
}
