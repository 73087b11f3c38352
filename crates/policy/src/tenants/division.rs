//! Output of a decision between tenants.

use sherwood_model::{Rates, ResourceId, TenantId};

use super::Tenants;

/// A division of the cache and of the rates among tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// Bytes of cache of each tenant; their sum is at most the total.
    pub bytes: Vec<u64>,
    /// Rates of each tenant; the sum over tenants is at most the total of each resource.
    pub rates: Rates,
    /// Throughput of each tenant by the model, divided by that at its baseline; 1 for a tenant
    /// without demand, or that no resource limits at its baseline.
    pub normalized: Vec<f64>,
    /// Least normalized throughput of the tenants that have one at their baseline; 1 without any.
    pub gain: f64,
    /// An upper bound of the gain of any division of the totals; none if the policy has none.
    pub bound: Option<f64>,
    /// The exchanges that lead from the baselines to `bytes`.
    pub trades: Vec<Trade>,
}

/// Cache that one tenant gives to another, and the units that it receives for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trade {
    /// The tenant that gives cache.
    pub donor: TenantId,
    /// The tenant that gets it.
    pub receiver: TenantId,
    /// Bytes of cache that change hands.
    pub bytes: u64,
    /// Units per second with which the donor keeps its baseline throughput without these bytes;
    /// resources of which it needs no more are left out.
    pub compensation: Vec<(ResourceId, f64)>,
}

/// Baseline throughput below which a tenant counts as having none, in requests per second.
const THROUGHPUT_MIN: f64 = 1e-12;

/// Normalized throughput from which on a tenant counts as limited by no resource. The misses that
/// would limit it are fewer than a sampled curve can tell from none.
const NORMALIZED_MAX: f64 = 1_000.0;

impl Division {
    /// Returns the division with its normalized throughput and its trades.
    pub(super) fn new(tenants: &Tenants, bytes: Vec<u64>, rates: Rates, bound: Option<f64>) -> Self {
        let normalized = normalized(tenants, &bytes, &rates);
        let served = tenants.base_throughput().iter().zip(&normalized);
        let gains = served.filter(|(base, _)| **base > THROUGHPUT_MIN).map(|(_, gain)| *gain);
        let gain = gains.reduce(f64::min).unwrap_or(1.0);
        let trades = trades(tenants, &bytes);
        Self { bytes, rates, normalized, gain, bound, trades }
    }

    /// Returns the normalized throughput of the tenant at `index`; none if it is 1,000 or more:
    /// nearly all its requests hit, and the model cannot tell what limits it.
    ///
    /// # Panics
    /// If there is no such tenant.
    #[must_use]
    pub fn limited(&self, index: usize) -> Option<f64> {
        Some(self.normalized[index]).filter(|normalized| *normalized < NORMALIZED_MAX)
    }
}

fn normalized(tenants: &Tenants, bytes: &[u64], rates: &Rates) -> Vec<f64> {
    let ratio = |(index, &base): (usize, &f64)| {
        let throughput = tenants.throughput(index, bytes[index], rates.row(TenantId::from_index(index)));
        if base > THROUGHPUT_MIN { throughput / base } else { 1.0 }
    };
    tenants.base_throughput().iter().enumerate().map(ratio).collect()
}

/// Pairs what tenants gave with what others gained, in the order of their ids. At most as many
/// trades as tenants.
fn trades(tenants: &Tenants, bytes: &[u64]) -> Vec<Trade> {
    let base = tenants.base_bytes();
    let mut gained: Vec<u64> = bytes.iter().zip(&base).map(|(now, base)| now.saturating_sub(*base)).collect();
    let mut trades = Vec::new();
    let mut receiver = 0;
    for donor in 0..tenants.len() {
        let given = base[donor].saturating_sub(bytes[donor]);
        let mut left = given;
        while left > 0 && receiver < gained.len() {
            let moved = left.min(gained[receiver]);
            if moved > 0 {
                trades.push(Trade {
                    donor: TenantId::from_index(donor),
                    receiver: TenantId::from_index(receiver),
                    bytes: moved,
                    compensation: compensation(tenants, donor, bytes[donor], moved as f64 / given as f64),
                });
            }
            left -= moved;
            gained[receiver] -= moved;
            receiver += usize::from(gained[receiver] == 0);
        }
    }
    trades
}

/// Units per second that the donor needs in addition for its baseline throughput with `bytes`,
/// times `part`.
fn compensation(tenants: &Tenants, donor: usize, bytes: u64, part: f64) -> Vec<(ResourceId, f64)> {
    let seen = &tenants.seen()[donor];
    let more = seen.demand.iter().enumerate().map(|(i, curve)| {
        let units = curve.at(bytes) - curve.at(seen.base.bytes);
        (ResourceId::from_index(i), units * tenants.base_throughput()[donor] * part)
    });
    more.filter(|(_, units)| *units > 0.0).collect()
}
