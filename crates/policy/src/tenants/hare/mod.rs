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
//! 4. *Level* ([`levels`]): tenants that need the resource that is used up stay, and steps 1 to 3
//!    are repeated for the others with what is left. Then rates raise the least throughput first.
//! 5. *Check* by the curves as observed, rising ones included: a division that leaves a tenant
//!    below its baseline, or gains nothing over the baseline's cache, is not used.

mod dual;
mod exchange;
mod few;
mod game;
mod grid;
mod levels;
mod price;

use sherwood_model::Rates;

use super::baseline::base_rates;
use super::{Division, TenantPolicy, Tenants};
use crate::share::share;

use dual::{Dual, MANY};
use grid::{Grid, largest};
use levels::Levels;

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
        let Found { split, bound } = find(tenants, base);
        let bound = bound.map(|bound| bound.max(stay.gain));
        let moved = self.filled(tenants, split, bound);
        if moved.gain >= stay.gain * (1.0 - ROUNDING) && keeps_baselines(&moved) {
            return moved;
        }
        if keeps_baselines(&stay) {
            return Division { bound, ..stay };
        }
        // Only rounding leads here: at the baseline's cache every level is at least 1.
        Division::new(tenants, tenants.base_bytes(), base_rates(tenants), bound)
    }

    fn rates(&self, tenants: &Tenants, bytes: &[u64]) -> Rates {
        levels::fill(tenants, bytes, self.conserving)
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

/// The division of the cache that was found, and the bound of the gain; none if there is nothing to
/// decide.
struct Found {
    split: Vec<u64>,
    bound: Option<f64>,
}

/// Divides the cache for the least throughput; then, with the tenants that reached their level as
/// they are, for the least of the others, as often as there are resources.
fn find(tenants: &Tenants, base: Vec<u64>) -> Found {
    let mut levels = Levels::new(tenants, base);
    let mut bound = None;
    // Tenants without demand take part at first: they cost nothing, and have bytes to give.
    let mut members: Vec<usize> = (0..tenants.len()).collect();
    for round in 0..tenants.kinds().len() {
        let (mut bytes, mut rates) = (tenants.total().bytes, tenants.total().rates.clone());
        let mut given = Vec::new();
        if round > 0 {
            (bytes, rates) = levels.left();
            given = levels.smaller();
            bytes += given.iter().map(|&(index, smaller)| levels.split()[index] - smaller).sum::<u64>();
        }
        let grid = Grid::new(tenants, &members, bytes, &rates);
        let start: Vec<u64> = members.iter().map(|&member| levels.split()[member]).collect();
        if let Some(Searched { split, cost, least }) = search(&grid, &start) {
            if round == 0 {
                bound = Some(if least > 0.0 { 1.0 / least } else { f64::INFINITY });
            }
            if cost < largest(&grid.sums(&start)) * (1.0 - GAIN_MIN) {
                let found = members.iter().copied().zip(split).chain(given);
                found.for_each(|(index, bytes)| levels.set_bytes(index, bytes));
            }
        }
        levels.freeze_next();
        members = levels.open();
        if members.is_empty() || tenants.len() > MANY {
            break;
        }
    }
    Found { split: levels.split().to_vec(), bound }
}

/// Result of a search.
struct Searched {
    split: Vec<u64>,
    /// The largest cost of `split`.
    cost: f64,
    /// A lower bound of the largest cost of any division.
    least: f64,
}

/// Searches the division whose largest cost is least; none if there is nothing to decide.
fn search(grid: &Grid, start: &[u64]) -> Option<Searched> {
    let start_costs = grid.sums(start);
    if grid.tenants() < 2 || largest(&start_costs) <= 0.0 {
        return None;
    }
    let dual = Dual::new(grid, &start_costs);
    let many = grid.tenants() > MANY;
    let enough = dual.least * (1.0 + if many { DISTANCE_OF_MANY } else { DISTANCE });
    let exchanges_max = if many { EXCHANGES_OF_MANY } else { grid.tenants() + EXCHANGES };
    let mut priced: Vec<(f64, Vec<u64>)> =
        dual.splits.into_iter().map(|split| (largest(&grid.sums(&split)), split)).collect();
    priced.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut starts = priced.into_iter().map(|(_, split)| split).take(2);
    let improve = |split| exchange::improve(grid, split, enough, exchanges_max);
    let mut best = improve(starts.next()?);
    if best.1 > dual.least * (1.0 + NEAR) {
        let baseline = (grid.tenants() <= FEW).then(|| start.to_vec());
        for start in starts.chain(few::best(grid)).chain(baseline) {
            let improved = improve(start);
            if improved.1 < best.1 {
                best = improved;
            }
        }
    }
    Some(Searched { split: best.0, cost: best.1, least: dual.least })
}

fn keeps_baselines(division: &Division) -> bool {
    division.normalized.iter().all(|&normalized| normalized >= 1.0 - ROUNDING)
}

/// Divides bytes that no tenant has in proportion to the baselines, except to tenants that would
/// then need more of a resource.
fn hand_out_free_bytes(tenants: &Tenants, split: &mut [u64]) {
    let free = u128::from(tenants.total().bytes) - crate::bounds::sum(split);
    if free == 0 {
        return;
    }
    let weights: Vec<f64> = tenants.seen().iter().map(|tenant| tenant.base.bytes as f64).collect();
    let extras = share(free, &weights, &vec![u64::MAX; split.len()]);
    for ((tenant, bytes), extra) in tenants.seen().iter().zip(split).zip(extras) {
        let more = *bytes + extra;
        if tenant.demand.iter().all(|curve| curve.at(more) <= curve.at(*bytes)) {
            *bytes = more;
        }
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::{BackendId, DemandCurve, ResourceKind, TenantId};

    use super::super::{Share, TenantSeen};
    use super::*;

    type Points = &'static [(u64, f64)];

    const NONE: Points = &[(0, 0.0)];
    const FLAT: Points = &[(0, 1.0)];
    const SLOPE: Points = &[(0, 1.0), (200, 0.1)];
    const GENTLE: Points = &[(0, 1.0), (200, 0.8)];
    const CLIFF: Points = &[(0, 1.0), (179, 1.0), (180, 0.0)];

    /// Tenants with a base of 100 bytes and 100 reads per second of each of two backends, of which
    /// each uses one.
    fn tenants(curves: &[(usize, Points)], floor: f64) -> Tenants {
        let seen = curves.iter().map(|&(backend, points)| {
            let miss_ratio = DemandCurve::new(points.iter().copied());
            let mut demand = vec![DemandCurve::constant(0.0); 2];
            demand[backend] = miss_ratio.clone();
            let base = Share { bytes: 100, rates: vec![100.0; 2] };
            TenantSeen { base, floor: Share { bytes: 0, rates: vec![floor; 2] }, miss_ratio, demand }
        });
        let kinds = [0, 1].map(|backend| ResourceKind::Reads(BackendId(backend))).to_vec();
        let count = curves.len() as u64;
        let total = Share { bytes: 100 * count, rates: vec![100.0 * count as f64; 2] };
        let seen = seen.collect();
        Tenants::new(kinds, total, seen)
    }

    #[test]
    fn tenants_that_do_not_need_the_scarcest_resource_are_raised_with_cache_of_the_others() {
        let tenants = tenants(&[(0, FLAT), (0, FLAT), (1, SLOPE), (1, SLOPE)], 0.0);
        let division = Hare { conserving: false }.divide(&tenants);
        assert_eq!(division.bytes, [0, 0, 200, 200]);
        // Each backend has the rates of four tenants and is used by two.
        assert!((division.gain - 2.0).abs() < 1e-9, "{}", division.gain);
        assert!((division.normalized[3] - 2.0 * 0.55 / 0.1).abs() < 1e-9, "{:?}", division.normalized);
    }

    #[test]
    fn cliff_beyond_a_plateau_is_reached() {
        let division = Hare { conserving: true }.divide(&tenants(&[(0, CLIFF), (0, GENTLE)], 0.0));
        assert_eq!(division.bytes, [180, 20]);
        // The second needs 0.98 / 0.9 of its base then, and the first nothing.
        assert!((division.gain - 2.0 * 0.9 / 0.98).abs() < 1e-9, "{}", division.gain);
    }

    #[test]
    fn tenants_without_demand_or_alone_keep_what_they_have() {
        for curves in [&[(0, NONE), (1, NONE)][..], &[(0, SLOPE)]] {
            let tenants = tenants(curves, 0.0);
            let division = Hare { conserving: true }.divide(&tenants);
            assert_eq!(division.bytes, tenants.base_bytes());
            assert_eq!(division.normalized, vec![1.0; curves.len()]);
        }
    }

    #[test]
    fn tenant_without_demand_keeps_its_floor_of_rates_and_gives_cache() {
        let division = Hare { conserving: false }.divide(&tenants(&[(0, NONE), (0, SLOPE)], 1.0));
        assert_eq!(division.bytes, [0, 200]);
        assert_eq!(division.rates.row(TenantId(0)), [1.0; 2]);
        assert!((division.gain - 1.99 * 0.55 / 0.1).abs() < 1e-9, "{}", division.gain);
    }
}
