//! Lower and upper bounds of partitions, and budgets fitted to them.

use crate::PartitionObservation;
use crate::share::{share, share_equally};

/// Least and most bytes (lower and upper bound) of every partition, adjusted so that budgets which
/// sum to the total exist.
///
/// A partition's lower bound is its minimum pin or the floor, whichever is larger; its upper bound
/// is its maximum pin. A maximum pin below the floor wins over the floor; a maximum below the
/// minimum counts as the minimum. Bounds that contradict the total are adjusted in this order:
/// 1. floors shrink in proportion until they fit beside the minimum pins,
/// 2. minimum pins shrink in proportion when they alone exceed the total,
/// 3. maximum pins are all raised by the same number of bytes when together they leave some of the
///    total unused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: Vec<u64>,
    pub(crate) high: Vec<u64>,
    total: u64,
}

impl Bounds {
    pub(crate) fn new(total: u64, floor: u64, partitions: &[PartitionObservation]) -> Self {
        let min: Vec<u64> = partitions.iter().map(|seen| seen.min_bytes).collect();
        let high: Vec<u64> =
            partitions.iter().map(|seen| seen.max_bytes.unwrap_or(u64::MAX).max(seen.min_bytes)).collect();
        let low = lower(total, floor, &min, &high);
        let missing = u128::from(total).saturating_sub(sum(&high));
        let room: Vec<u64> = high.iter().map(|&high| u64::MAX - high).collect();
        let high = add(&high, &share_equally(missing, &room));
        Self { low, high, total }
    }

    /// Like [`new`](Self::new), but partitions in a dry run are pinned to their `budgets`.
    pub(crate) fn holding(
        total: u64,
        floor: u64,
        partitions: &[PartitionObservation],
        budgets: &[u64],
    ) -> Self {
        let held = |(seen, &budget): (&PartitionObservation, &u64)| {
            let unpinned = PartitionObservation::new(seen.tenant, seen.backend);
            let (min_bytes, max_bytes) =
                if seen.dry_run { (budget, Some(budget)) } else { (seen.min_bytes, seen.max_bytes) };
            PartitionObservation { min_bytes, max_bytes, ..unpinned }
        };
        Self::new(total, floor, &partitions.iter().zip(budgets).map(held).collect::<Vec<_>>())
    }

    /// Fits `desired` to the bounds and to exactly the total (to an empty result if there is no
    /// partition): missing bytes are added in proportion to `desired`, excess is taken in
    /// proportion to the bytes above the lower bounds.
    pub(crate) fn fit(&self, desired: &[u64]) -> Vec<u64> {
        let clipped = self.clip(desired);
        let (total, sum) = (u128::from(self.total), sum(&clipped));
        if sum > total { self.take(&clipped, sum - total) } else { self.give(&clipped, total - sum) }
    }

    /// Fits `desired` to the lower and upper bounds and to at most the total.
    pub(crate) fn fit_under(&self, desired: &[u64]) -> Vec<u64> {
        let clipped = self.clip(desired);
        let excess = sum(&clipped).saturating_sub(self.total.into());
        self.take(&clipped, excess)
    }

    /// Clamps each of `desired` to its own lower and upper bound; the sum may be any.
    pub(crate) fn clip(&self, desired: &[u64]) -> Vec<u64> {
        desired
            .iter()
            .zip(self.low.iter().zip(&self.high))
            .map(|(&bytes, (&low, &high))| bytes.clamp(low, high))
            .collect()
    }

    /// Bytes by which each of `budgets` may still grow to its upper bound.
    pub(crate) fn room(&self, budgets: &[u64]) -> Vec<u64> {
        self.high.iter().zip(budgets).map(|(high, bytes)| high.saturating_sub(*bytes)).collect()
    }

    fn take(&self, budgets: &[u64], excess: u128) -> Vec<u64> {
        let spare: Vec<u64> = budgets.iter().zip(&self.low).map(|(bytes, low)| bytes - low).collect();
        subtract(budgets, &share(excess, &as_weights(&spare), &spare))
    }

    fn give(&self, budgets: &[u64], missing: u128) -> Vec<u64> {
        let grown = add(budgets, &share(missing, &as_weights(budgets), &self.room(budgets)));
        // Partitions of zero bytes have no weight; they share what the others could not take.
        let left = u128::from(self.total).saturating_sub(sum(&grown));
        add(&grown, &share_equally(left, &self.room(&grown)))
    }
}

/// Lower bounds that sum to at most the total: minimum pins first, then floors.
fn lower(total: u64, floor: u64, min: &[u64], high: &[u64]) -> Vec<u64> {
    let pinned = share(total.into(), &as_weights(min), min);
    let up_to_floor: Vec<u64> =
        min.iter().zip(high).map(|(&min, &high)| floor.min(high).saturating_sub(min)).collect();
    let left = u128::from(total) - sum(&pinned);
    add(&pinned, &share(left, &as_weights(&up_to_floor), &up_to_floor))
}

/// Returns the sum of `bytes`, which cannot overflow.
pub(crate) fn sum(bytes: &[u64]) -> u128 {
    bytes.iter().map(|&bytes| u128::from(bytes)).sum()
}

/// Returns the element-wise sum of `bytes` and `more`.
pub(crate) fn add(bytes: &[u64], more: &[u64]) -> Vec<u64> {
    bytes.iter().zip(more).map(|(bytes, more)| bytes + more).collect()
}

fn subtract(bytes: &[u64], less: &[u64]) -> Vec<u64> {
    bytes.iter().zip(less).map(|(bytes, less)| bytes - less).collect()
}

/// Returns `bytes` as weights of a division in proportion to them.
pub(crate) fn as_weights(bytes: &[u64]) -> Vec<f64> {
    bytes.iter().map(|&bytes| bytes as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherwood_model::{BackendId, TenantId};

    fn pinned(min_bytes: u64, max_bytes: Option<u64>) -> PartitionObservation {
        PartitionObservation { min_bytes, max_bytes, ..PartitionObservation::new(TenantId(0), BackendId(0)) }
    }

    fn bounds(total: u64, floor: u64, pins: &[(u64, Option<u64>)]) -> Bounds {
        let partitions: Vec<_> = pins.iter().map(|&(min, max)| pinned(min, max)).collect();
        Bounds::new(total, floor, &partitions)
    }

    #[test]
    fn bytes_above_a_maximum_pin_are_shared_by_the_others_in_proportion() {
        let bounds = bounds(1_000, 30, &[(0, Some(100)), (0, None), (0, None)]);
        assert_eq!(bounds.fit(&[400, 400, 200]), [100, 600, 300]);
        assert_eq!(bounds.fit(&[100, 600, 300]), [100, 600, 300], "a fitting allocation is unchanged");
    }

    #[test]
    fn budgets_above_the_total_lose_bytes_above_their_lower_bounds() {
        let bounds = bounds(100, 30, &[(50, None), (0, None), (0, None)]);
        assert_eq!(bounds.low, [50, 25, 25], "floors shrink beside a minimum");
        assert_eq!(bounds.fit(&[500, 500, 500]), [50, 25, 25]);
    }

    #[test]
    fn minimum_pins_above_the_total_shrink_in_proportion() {
        assert_eq!(bounds(100, 30, &[(300, None), (100, None)]).low, [75, 25]);
    }

    #[test]
    fn maximum_pins_below_the_total_are_raised_by_equal_bytes() {
        assert_eq!(bounds(100, 0, &[(0, Some(10)), (0, Some(30))]).high, [40, 60]);
    }

    #[test]
    fn maximum_pin_overrides_floor_and_minimum_pin_overrides_maximum() {
        let bounds = bounds(1_000, 30, &[(0, Some(10)), (50, Some(20)), (0, None)]);
        assert_eq!(bounds.low, [10, 50, 30]);
        assert_eq!(bounds.high[..2], [10, 50]);
    }

    #[test]
    fn empty_partitions_share_the_total_equally() {
        assert_eq!(bounds(100, 0, &[(0, None), (0, None)]).fit(&[0, 0]), [50, 50]);
    }

    #[test]
    fn budgets_fitted_to_at_most_the_total_may_leave_bytes_unallocated() {
        let bounds = bounds(100, 10, &[(0, None), (0, None)]);
        assert_eq!(bounds.fit_under(&[5, 40]), [10, 40]);
        assert_eq!(bounds.fit_under(&[100, 100]), [50, 50]);
    }
}
