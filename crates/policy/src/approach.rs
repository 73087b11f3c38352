//! A bounded step from the present budgets towards a target.
//!
//! A policy's target is estimated from measurements that may be noise, and a partition that gains
//! space must refill it before it hits more. A round therefore moves at most a small part of the
//! total, as the tax round does, and the next round decides again.

use crate::bounds::{add, sum};
use crate::share::share;

/// Returns `from` moved towards `to` by at most `limit_bytes`. Givers and receivers each share the
/// amount in proportion to their distance from `to`. A partition closer to its target than
/// `page_bytes` moves nothing. If both have the same sum, so has the result, and each element lies
/// between the two. O(n log n).
pub(crate) fn approach(from: &[u64], to: &[u64], limit_bytes: u128, page_bytes: u64) -> Vec<u64> {
    let gap = |from: &[u64], to: &[u64]| -> Vec<u64> {
        from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).collect()
    };
    let (up, down) = (gap(from, to), gap(to, from));
    let distance = sum(&up).min(sum(&down));
    let amount = distance.min(limit_bytes);
    if distance < page_bytes.into() || amount == 0 {
        return from.to_vec();
    }
    let part = |gaps: &[u64]| share(amount, &gaps.iter().map(|&gap| gap as f64).collect::<Vec<_>>(), gaps);
    let (gets, gives) = (part(&up), part(&down));
    let kept: Vec<u64> = from.iter().zip(gives).map(|(bytes, gives)| bytes - gives).collect();
    add(&kept, &gets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn step_towards_a_target_is_bounded_and_shared_in_proportion_to_distance() {
        assert_eq!(approach(&[100, 100, 100], &[160, 80, 60], 30, 1), [130, 90, 80]);
        assert_eq!(approach(&[100, 100, 100], &[160, 80, 60], 600, 1), [160, 80, 60]);
        assert_eq!(approach(&[100, 100], &[109, 91], 600, 10), [100, 100], "less than a page");
        assert_eq!(approach(&[100, 100], &[109, 91], 0, 1), [100, 100]);
    }

    proptest! {
        #[test]
        fn step_towards_a_target_keeps_the_sum_and_stays_between_start_and_target(
            from in prop::collection::vec(any::<u64>(), 1..20), limit: u64, page in 1..1_000_u64,
        ) {
            // A reversed copy has the same sum.
            let to: Vec<u64> = from.iter().rev().copied().collect();
            let after = approach(&from, &to, limit.into(), page);
            prop_assert_eq!(sum(&after), sum(&from));
            for (after, (from, to)) in after.iter().zip(from.iter().zip(&to)) {
                prop_assert!(after >= from.min(to) && after <= from.max(to));
            }
            let moved: Vec<u64> = after.iter().zip(&from).map(|(after, from)| after.saturating_sub(*from)).collect();
            prop_assert!(sum(&moved) <= limit.into());
        }
    }
}
