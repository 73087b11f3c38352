//! Prices at which the cheapest division is also balanced, and the bound that they give.
//!
//! Column generation (Dantzig and Wolfe): the divisions that were cheapest at some prices form a
//! game, whose solution gives the next prices, until no prices make another division cheaper than
//! the best mixture.

use super::game::{self, Solution};
use super::grid::{Grid, largest};
use super::price::Pricer;

/// Most prices tried; each takes a pass over all points.
const PRICES_MAX: usize = 48;
/// Relative distance between the best mixture and the bound at which the search ends. It doubles
/// as the accuracy of the bound.
const DISTANCE: f64 = 1e-6;
/// The same above [`MANY`] tenants, where a pass takes most of a millisecond.
const DISTANCE_OF_MANY: f64 = 3e-4;
/// Number of tenants above which less accuracy is asked for.
pub(super) const MANY: usize = 128;

/// Result of the search for prices.
#[derive(Debug)]
pub(super) struct Dual {
    /// A lower bound of the largest cost of any division.
    pub(super) least: f64,
    /// Divisions near the optimum: the mean of the best mixture, and the parts of it.
    pub(super) splits: Vec<Vec<u64>>,
}

impl Dual {
    /// Searches prices for `grid`, whose costs at the baseline are `base`.
    pub(super) fn new(grid: &Grid, base: &[f64]) -> Self {
        let mut pricer = Pricer::default();
        let distance = if grid.tenants() > MANY { DISTANCE_OF_MANY } else { DISTANCE };
        let scarcest = (0..base.len()).fold(0, |best, i| if base[i] > base[best] { i } else { best });
        let mut prices = vec![0.0; base.len()];
        prices[scarcest] = 1.0;
        let (mut splits, mut columns) = (Vec::new(), Vec::new());
        let mut least: f64 = 0.0;
        let mut weights = Vec::new();
        for _ in 0..PRICES_MAX {
            let priced = pricer.price(grid, &prices);
            least = least.max(priced.costs.iter().zip(&prices).map(|(cost, price)| cost * price).sum());
            splits.push(priced.split);
            columns.push(priced.costs);
            let Solution { value, weights: mixed, prices: next } = game::solve(&columns);
            (weights, prices) = (mixed, next);
            if value - least <= distance * value || largest(&prices) <= 0.0 {
                break;
            }
        }
        let mut mixed: Vec<(f64, Vec<u64>)> =
            weights.into_iter().zip(splits).filter(|(weight, _)| *weight > 0.0).collect();
        if mixed.len() > 1 {
            let mean = mean(grid, &mixed);
            mixed.push((1.0, mean));
        }
        Self { least, splits: mixed.into_iter().map(|(_, split)| split).collect() }
    }
}

/// The mean of divisions by weight, in whole bytes and within the total.
fn mean(grid: &Grid, mixed: &[(f64, Vec<u64>)]) -> Vec<u64> {
    let mut excess: i128 = -i128::from(grid.total_bytes);
    let mut split: Vec<u64> = (0..grid.tenants())
        .map(|tenant| {
            let first = mixed[0].1[tenant];
            let same = mixed.iter().all(|(_, split)| split[tenant] == first);
            let weighted = || mixed.iter().map(|(weight, split)| weight * split[tenant] as f64).sum::<f64>();
            // Rounding must not move a tenant from a point of its curve, or below its floor.
            let bytes = if same { first } else { (weighted() as u64).max(grid.sizes(tenant)[0]) };
            excess += i128::from(bytes);
            bytes
        })
        .collect();
    for (tenant, bytes) in split.iter_mut().enumerate() {
        let cut = u64::try_from(excess).unwrap_or(0).min(*bytes - grid.sizes(tenant)[0].min(*bytes));
        *bytes -= cut;
        excess -= i128::from(cut);
    }
    split
}
