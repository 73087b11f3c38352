//! HARE without the faults of its published search.
//!
//! Everyone at the baseline's throughput costs each resource a share of its total that depends on
//! the division of the cache only. The inverse of the largest share is what everyone's throughput
//! can be multiplied by, so the division is chosen to make the largest share least:
//!
//! 1. *Price* ([`dual`]): divisions that are cheapest at some prices of the resources, mixed so
//!    that resources are balanced. This also gives a bound for every division.
//! 2. *Exchange* ([`exchange`]): moves of any size between two tenants, from the best of these.
//! 3. Far from the bound, exchanges also start from the second best, from the best coarse division
//!    of a few tenants ([`few`]), and from the baseline.
//! 4. *Level* ([`levels`]): rates that raise the least throughput first.
//! 5. *Check* by the curves as observed, rising ones included: a division that leaves a tenant
//!    below its baseline, or gains nothing over the baseline's cache, is not used.

mod dual;
mod exchange;
mod few;
mod game;
mod grid;
mod levels;
mod price;

use super::baseline::base_rates;
use super::{Division, TenantPolicy, Tenants};
use crate::share::share;

use dual::{Dual, MANY};
use grid::{Grid, largest};

/// Relative gain over the cache's division at the baselines for which cache is moved.
const GAIN_MIN: f64 = 1e-6;
/// Relative distance from the bound at which a division is not improved further.
const DISTANCE: f64 = 1e-5;
/// The same above [`MANY`] tenants.
const DISTANCE_OF_MANY: f64 = 1e-3;
/// Relative distance from the bound at which exchanges start from one division only.
const NEAR: f64 = 1e-3;
/// Number of tenants up to which exchanges also start from the baseline, where every pair may
/// exchange something.
const FEW: usize = 8;
/// Most exchanges from a start: one for each tenant, and this many more.
const EXCHANGES: usize = 64;
/// Most exchanges above [`MANY`] tenants.
const EXCHANGES_OF_MANY: usize = 16;
/// Loss of normalized throughput that counts as rounding.
const ROUNDING: f64 = 1e-9;

/// The `hare` policy.
#[derive(Clone, Debug)]
pub(super) struct Hare {
    /// False leaves rates that do not raise the least throughput undivided.
    pub(super) conserving: bool,
}

impl TenantPolicy for Hare {
    fn name(&self) -> &'static str {
        "hare"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        let base = tenants.base_bytes();
        let stay = self.filled(tenants, base.clone(), None);
        let Some(Found { split, bound }) = search(tenants, &base) else { return stay };
        let kept = Division { bound: Some(bound.max(stay.gain)), ..stay };
        let moved = self.filled(tenants, split, Some(bound.max(kept.gain)));
        if moved.gain > kept.gain * (1.0 + GAIN_MIN) && keeps_baselines(&moved) {
            return moved;
        }
        if keeps_baselines(&kept) {
            return kept;
        }
        // Only rounding leads here: at the baseline's cache every level is at least 1.
        Division::new(tenants, base, base_rates(tenants), Some(bound.max(1.0)))
    }
}

impl Hare {
    fn filled(&self, tenants: &Tenants, mut split: Vec<u64>, bound: Option<f64>) -> Division {
        if self.conserving {
            hand_out_free_bytes(tenants, &mut split);
        }
        let rates = levels::fill(tenants, &split, self.conserving);
        Division::new(tenants, split, rates, bound)
    }
}

/// The division that the search ended with, and the bound of the gain.
struct Found {
    split: Vec<u64>,
    bound: f64,
}

/// Searches the division whose largest cost is least; none if there is nothing to decide.
fn search(tenants: &Tenants, base: &[u64]) -> Option<Found> {
    let grid = Grid::new(tenants);
    if grid.tenants() < 2 || grid.resources == 0 {
        return None;
    }
    let base_costs = grid.sums(base);
    if largest(&base_costs) <= 0.0 {
        return None;
    }
    let dual = Dual::new(&grid, &base_costs);
    let many = grid.tenants() > MANY;
    let enough = dual.least * (1.0 + if many { DISTANCE_OF_MANY } else { DISTANCE });
    let exchanges_max = if many { EXCHANGES_OF_MANY } else { grid.tenants() + EXCHANGES };
    let mut priced: Vec<(f64, Vec<u64>)> =
        dual.splits.into_iter().map(|split| (largest(&grid.sums(&split)), split)).collect();
    priced.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut starts = priced.into_iter().map(|(_, split)| split).take(2);
    let improve = |split| exchange::improve(&grid, split, enough, exchanges_max);
    let mut best = improve(starts.next()?);
    if best.1 > dual.least * (1.0 + NEAR) {
        let baseline = (grid.tenants() <= FEW).then(|| base.to_vec());
        for start in starts.chain(few::best(&grid)).chain(baseline) {
            let improved = improve(start);
            if improved.1 < best.1 {
                best = improved;
            }
        }
    }
    let bound = if dual.least > 0.0 { 1.0 / dual.least } else { f64::INFINITY };
    Some(Found { split: best.0, bound })
}

fn keeps_baselines(division: &Division) -> bool {
    division.normalized.iter().all(|&normalized| normalized >= 1.0 - ROUNDING)
}

/// Divides bytes that no tenant has in proportion to the baselines, except to tenants that would
/// then need more of a resource.
fn hand_out_free_bytes(tenants: &Tenants, split: &mut [u64]) {
    let free = u128::from(tenants.total().bytes) - crate::bounds::sum(split);
    let weights: Vec<f64> = tenants.seen().iter().map(|tenant| tenant.base.bytes as f64).collect();
    let extras = share(free, &weights, &vec![u64::MAX; split.len()]);
    for ((tenant, bytes), extra) in tenants.seen().iter().zip(split).zip(extras) {
        let more = *bytes + extra;
        if tenant.demand.iter().all(|curve| curve.at(more) <= curve.at(*bytes)) {
            *bytes = more;
        }
    }
}
