//! The best mixture of divisions, and the prices that it implies.

/// Tolerance of reduced costs and pivots, for costs of about 1.
const EPSILON: f64 = 1e-12;
/// Most pivots; a game of a few resources takes about twice as many pivots as resources.
const PIVOTS_MAX: usize = 1_000;

/// Solution of a [`solve`]d game.
#[derive(Debug)]
pub(super) struct Solution {
    /// The largest cost of the best mixture.
    pub(super) value: f64,
    /// Weight of each division in the best mixture; their sum is 1.
    pub(super) weights: Vec<f64>,
    /// Price of each resource, at which no division given is cheaper than `value`; their sum is 1.
    pub(super) prices: Vec<f64>,
}

/// Finds the mixture of divisions whose largest cost is least. `columns` holds the costs of each
/// division, at least 0, one for each resource; there is at least one of both.
///
/// A matrix game, solved as a linear program by the simplex method with Bland's rule.
/// O(pivots × divisions × resources).
pub(super) fn solve(columns: &[Vec<f64>]) -> Solution {
    let (rows, mixed) = (columns[0].len(), columns.len());
    let width = mixed + rows + 1;
    // Maximise the sum of y, with (cost + 1) · y at most 1 for each resource and y at least 0. The
    // 1 makes all coefficients positive, so that the program is bounded.
    let mut table = vec![0.0; (rows + 1) * width];
    for row in 0..rows {
        for (column, costs) in columns.iter().enumerate() {
            table[row * width + column] = costs[row] + 1.0;
        }
        table[row * width + mixed + row] = 1.0;
        table[row * width + width - 1] = 1.0;
    }
    table[rows * width..rows * width + mixed].fill(-1.0);
    let mut basis: Vec<usize> = (mixed..mixed + rows).collect();
    for _ in 0..PIVOTS_MAX {
        let objective = &table[rows * width..(rows + 1) * width - 1];
        let Some(entering) = objective.iter().position(|&cost| cost < -EPSILON) else { break };
        let ratio = |row: usize| {
            let pivot = table[row * width + entering];
            (pivot > EPSILON).then(|| table[row * width + width - 1] / pivot)
        };
        let ratios = (0..rows).filter_map(|row| Some((ratio(row)?, basis[row], row)));
        let least = ratios.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let Some((_, _, leaving)) = least else { break };
        pivot(&mut table, width, leaving, entering);
        basis[leaving] = entering;
    }
    let sum = table[(rows + 1) * width - 1];
    let mut weights = vec![0.0; mixed];
    for (row, &column) in basis.iter().enumerate().filter(|(_, column)| **column < mixed) {
        weights[column] = (table[row * width + width - 1] / sum).max(0.0);
    }
    let prices = (0..rows).map(|row| (table[rows * width + mixed + row] / sum).max(0.0)).collect();
    Solution { value: 1.0 / sum - 1.0, weights, prices }
}

fn pivot(table: &mut [f64], width: usize, row: usize, column: usize) {
    let scale = 1.0 / table[row * width + column];
    table[row * width..(row + 1) * width].iter_mut().for_each(|value| *value *= scale);
    let pivot: Vec<f64> = table[row * width..(row + 1) * width].to_vec();
    for (other, values) in table.chunks_mut(width).enumerate() {
        let factor = values[column];
        if other != row && factor != 0.0 {
            values.iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn best_mixture_of_two_opposite_divisions_is_between_them() {
        let Solution { value, weights, prices } = solve(&[vec![3.0, 1.0], vec![1.0, 2.0]]);
        assert!((value - 5.0 / 3.0).abs() < 1e-12);
        assert!((weights[0] - 1.0 / 3.0).abs() < 1e-12);
        assert!((prices[0] - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn division_that_costs_least_of_every_resource_is_taken_alone() {
        let Solution { value, weights, .. } = solve(&[vec![3.0, 1.0], vec![2.0, 0.0], vec![2.0, 1.0]]);
        assert!((value - 2.0).abs() < 1e-12);
        assert!(weights[0] < 1e-12);
    }

    proptest! {
        #[test]
        fn mixture_and_prices_prove_each_other_optimal(
            columns in (1..7_usize).prop_flat_map(|rows| {
                prop::collection::vec(prop::collection::vec(0.0..2.0_f64, rows), 1..20)
            }),
        ) {
            let Solution { value, weights, prices } = solve(&columns);
            prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!((prices.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for row in 0..prices.len() {
                let mixed: f64 = columns.iter().zip(&weights).map(|(costs, weight)| costs[row] * weight).sum();
                prop_assert!(mixed <= value + 1e-9);
            }
            for costs in &columns {
                let priced: f64 = costs.iter().zip(&prices).map(|(cost, price)| cost * price).sum();
                prop_assert!(priced >= value - 1e-9);
            }
        }
    }
}
