//! Division of a whole number into whole parts.

/// Weights are converted to multiples of 2^-32 of the largest, because sums must be exact.
const SHARE_MAX: f64 = 4_294_967_296.0;

/// Remainders that round to the same 4,096th of a unit count as equal, so that a float's last digit
/// never decides a tie.
const REMAINDER_STEPS: u128 = 4_096;

/// Divides `amount` in proportion to `weights`, each part at most its cap, by largest remainder,
/// ties to the lower index.
///
/// The excess over a cap is shared among the others. The parts sum to `amount`, or to the caps of
/// the positive weights if that is less. Weights that are not positive and finite get nothing.
/// O(n²) if the parts reach their caps one after the other, O(n log n) otherwise.
pub(crate) fn share(amount: u128, weights: &[f64], caps: &[u64]) -> Vec<u64> {
    debug_assert_eq!(weights.len(), caps.len(), "one cap per weight");
    let shares = fixed(weights);
    let mut parts = vec![0; weights.len()];
    let mut open: Vec<usize> = (0..parts.len()).filter(|&i| shares[i] > 0 && caps[i] > 0).collect();
    let mut left = amount;
    // Each iteration closes at least one part or ends the loop.
    while !open.is_empty() {
        let whole: u128 = open.iter().map(|&i| u128::from(shares[i])).sum();
        let quota = |i: usize| left * u128::from(shares[i]) / whole;
        let (full, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&i| quota(i) >= u128::from(caps[i]));
        if full.is_empty() {
            return round(left, whole, &shares, &open, parts);
        }
        for i in full {
            parts[i] = caps[i];
            left -= u128::from(caps[i]);
        }
        open = rest;
    }
    parts
}

/// Divides `amount` equally, each part at most its cap.
pub(crate) fn share_equally(amount: u128, caps: &[u64]) -> Vec<u64> {
    share(amount, &vec![1.0; caps.len()], caps)
}

/// The whole part of each weight's share of `amount`, at most its cap: the parts of [`share`]
/// before rounding and before the excess over caps is shared. They sum to at most `amount`.
pub(crate) fn quotas(amount: u128, weights: &[f64], caps: &[u64]) -> Vec<u64> {
    let shares = fixed(weights);
    let whole = shares.iter().map(|&share| u128::from(share)).sum::<u128>().max(1);
    let mut left = amount;
    let mut quota = |(share, &cap): (u64, &u64)| {
        // Adds 1/4,096 before rounding down: a share that lies below a whole number only by a
        // float's rounding error counts as that number.
        let quota = (REMAINDER_STEPS * amount * u128::from(share) + whole) / (REMAINDER_STEPS * whole);
        let quota = quota.min(u128::from(cap)).min(left);
        left -= quota;
        u64::try_from(quota).expect("at most the cap")
    };
    shares.into_iter().zip(caps).map(&mut quota).collect()
}

/// Completes `parts`: whole quotas first, then one unit each to the largest remainders.
fn round(left: u128, whole: u128, shares: &[u64], open: &[usize], mut parts: Vec<u64>) -> Vec<u64> {
    let mut units = left;
    for &i in open {
        let quota = left * u128::from(shares[i]) / whole;
        parts[i] = u64::try_from(quota).expect("a quota is below its cap here");
        units -= quota;
    }
    let mut order = open.to_vec();
    let remainder = |i: usize| left * u128::from(shares[i]) % whole;
    let steps = |i: usize| (2 * REMAINDER_STEPS * remainder(i) + whole) / (2 * whole);
    order.sort_by_key(|&i| (std::cmp::Reverse(steps(i)), i));
    for &i in order.iter().take(usize::try_from(units).unwrap_or(usize::MAX)) {
        parts[i] += 1;
    }
    parts
}

/// Weights as whole numbers; a positive weight never becomes zero.
fn fixed(weights: &[f64]) -> Vec<u64> {
    let claim = |weight: f64| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 };
    let max = weights.iter().copied().map(claim).fold(0.0, f64::max);
    let to_share = |weight: f64| match claim(weight) {
        0.0 => 0,
        weight => ((weight / max * SHARE_MAX).round() as u64).max(1),
    };
    weights.iter().copied().map(to_share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FREE: [u64; 3] = [u64::MAX; 3];

    #[test]
    fn units_of_equal_remainders_go_to_the_lower_index() {
        assert_eq!(share(30, &[0.55, 0.25, 0.20], &FREE), [17, 7, 6]);
        assert_eq!(share(30, &[55.0, 25.0, 20.0], &FREE), [17, 7, 6]);
        assert_eq!(share(2, &[1.0, 1.0, 1.0], &FREE), [1, 1, 0]);
    }

    #[test]
    fn quotas_of_a_divided_amount_are_rounded_down_and_capped() {
        assert_eq!(quotas(30, &[0.55, 0.25, 0.20], &FREE), [16, 7, 6]);
        assert_eq!(quotas(30, &[0.55, 0.25, 0.0], &[10, 80, 80]), [10, 9, 0]);
        assert_eq!(quotas(30, &[0.0, f64::NAN], &[80, 80]), [0, 0]);
    }

    #[test]
    fn excess_over_the_cap_of_a_part_is_shared_by_the_others() {
        assert_eq!(share(100, &[8.0, 1.0, 1.0], &[10, 80, 80]), [10, 45, 45]);
        assert_eq!(share(100, &[8.0, 1.0, 0.0], &[10, 20, 80]), [10, 20, 0], "no weight, no part");
    }

    #[test]
    fn part_with_an_invalid_weight_gets_nothing() {
        let weights = [f64::NAN, f64::INFINITY, -1.0];
        assert_eq!(share(100, &weights, &FREE), [0, 0, 0]);
        assert_eq!(share(100, &[f64::NAN, f64::MAX, f64::MIN_POSITIVE], &FREE)[1], 100);
    }

    proptest! {
        #[test]
        fn parts_of_a_divided_amount_sum_to_it_or_to_their_caps(
            amount: u64,
            parts in prop::collection::vec((any::<f64>(), any::<u64>()), 0..20),
        ) {
            let (weights, caps): (Vec<f64>, Vec<u64>) = parts.into_iter().unzip();
            let given = share(amount.into(), &weights, &caps);
            let claimed = |i: &usize| weights[*i].is_finite() && weights[*i] > 0.0;
            let most: u128 = (0..caps.len()).filter(claimed).map(|i| u128::from(caps[i])).sum();
            prop_assert!(given.iter().zip(&caps).all(|(part, cap)| part <= cap));
            prop_assert_eq!(given.iter().map(|&part| u128::from(part)).sum::<u128>(), most.min(amount.into()));
        }
    }
}
