//! Division of units among partitions at least cost.
//!
//! A table has one row per partition: its costs with 0, 1, 2 … units, up to its maximum. At most
//! the available units are given, and none that does not lower a cost.

/// Returns the number of units for each row (partition) that minimises the sum of costs; of equal
/// sums the one with fewer units for the later row. O(rows x units²).
pub(super) fn least_sum(costs: &[Vec<f64>], units: usize) -> Vec<usize> {
    // The least cost of the rows so far with at most that many units, and the choices that lead to
    // it.
    let mut least = vec![0.0; units + 1];
    let mut choices = Vec::with_capacity(costs.len());
    for row in costs {
        let best = |at: usize| {
            let mut best = (least[at] + row[0], 0);
            for (given, cost) in row.iter().enumerate().take(at + 1).skip(1) {
                let sum = least[at - given] + cost;
                if sum < best.0 {
                    best = (sum, given);
                }
            }
            best
        };
        let (sums, choice): (Vec<f64>, Vec<usize>) = (0..=units).map(best).unzip();
        least = sums;
        choices.push(choice);
    }
    let mut left = units;
    let mut given: Vec<usize> = choices
        .iter()
        .rev()
        .map(|choice| {
            let given = choice[left];
            left -= given;
            given
        })
        .collect();
    given.reverse();
    given
}

/// Returns the number of units for each row (partition) that minimises the largest of `values`, and
/// then the sum of `costs`. `values` are non-increasing along a row. O(rows x units²).
pub(super) fn least_largest(values: &[Vec<f64>], costs: &[Vec<f64>], units: usize) -> Vec<usize> {
    let first = first_units(values, units);
    let rest: Vec<Vec<f64>> = costs.iter().zip(&first).map(|(row, &first)| row[first..].to_vec()).collect();
    let more = least_sum(&rest, units - first.iter().sum::<usize>());
    first.iter().zip(more).map(|(first, more)| first + more).collect()
}

/// Units that each row (partition) needs so that no value exceeds the least bound that all can
/// keep.
fn first_units(values: &[Vec<f64>], units: usize) -> Vec<usize> {
    let mut bounds: Vec<f64> = values.iter().flatten().copied().collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    let needed = |bound: f64| -> Option<Vec<usize>> {
        let least = |row: &Vec<f64>| row.iter().position(|&value| value <= bound);
        let needed = values.iter().map(least).collect::<Option<Vec<_>>>()?;
        (needed.iter().sum::<usize>() <= units).then_some(needed)
    };
    let fails = bounds.partition_point(|&bound| needed(bound).is_none());
    // The largest value of all is a bound that every row meets without a unit.
    bounds.get(fails).and_then(|&bound| needed(bound)).unwrap_or_else(|| vec![0; values.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns every way to divide at most `units` among the rows of a table.
    fn every_way(table: &[Vec<f64>], units: usize) -> Vec<Vec<usize>> {
        let Some((row, rows)) = table.split_first() else { return vec![Vec::new()] };
        let mut ways = Vec::new();
        for given in 0..row.len().min(units + 1) {
            for rest in every_way(rows, units - given) {
                ways.push([vec![given], rest].concat());
            }
        }
        ways
    }

    fn sum(table: &[Vec<f64>], way: &[usize]) -> f64 {
        table.iter().zip(way).map(|(row, &given)| row[given]).sum()
    }

    fn largest(table: &[Vec<f64>], way: &[usize]) -> f64 {
        table.iter().zip(way).map(|(row, &given)| row[given]).fold(0.0, f64::max)
    }

    /// Cost tables of four rows of falling whole numbers for up to twelve units, some of them
    /// shorter.
    fn falling() -> impl Strategy<Value = Vec<Vec<f64>>> {
        let row = prop::collection::vec(0..20_u32, 1..=13).prop_map(|mut row| {
            row.sort_unstable_by(|a, b| b.cmp(a));
            row.into_iter().map(f64::from).collect()
        });
        prop::collection::vec(row, 4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn division_of_least_cost_equals_exhaustive_search(costs in falling(), units in 0..=12_usize) {
            let found = least_sum(&costs, units);
            prop_assert!(found.iter().sum::<usize>() <= units);
            let least = every_way(&costs, units).iter().map(|way| sum(&costs, way)).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(sum(&costs, &found), least);
        }

        #[test]
        fn division_of_least_largest_value_equals_exhaustive_search(rows in prop::collection::vec(falling(), 2), units in 0..=12_usize) {
            // Both tables have the same shape.
            let cut = |row: &Vec<f64>, other: &Vec<f64>| row[..row.len().min(other.len())].to_vec();
            let values: Vec<Vec<f64>> = rows[0].iter().zip(&rows[1]).map(|(a, b)| cut(a, b)).collect();
            let costs: Vec<Vec<f64>> = rows[1].iter().zip(&rows[0]).map(|(a, b)| cut(a, b)).collect();
            let found = least_largest(&values, &costs, units);
            prop_assert!(found.iter().sum::<usize>() <= units);
            let both = |way: &Vec<usize>| (largest(&values, way), sum(&costs, way));
            let least = every_way(&values, units).iter().map(both).reduce(|a, b| if b < a { b } else { a });
            prop_assert_eq!(Some(both(&found)), least);
        }
    }

    #[test]
    fn unit_of_space_that_lowers_no_cost_is_not_given() {
        assert_eq!(least_sum(&[vec![3.0; 5], vec![2.0, 1.0, 1.0]], 10), [0, 1]);
        assert_eq!(least_largest(&[vec![3.0; 5], vec![2.0; 3]], &[vec![1.0; 5], vec![1.0; 3]], 10), [0, 0]);
        assert_eq!(least_sum(&[], 3), Vec::<usize>::new());
    }
}
