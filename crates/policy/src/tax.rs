//! A round of tax and gifts, the scheme of RobinHood and all its variants.
//!
//! Every partition gives the same small part of its budget to a pool, and the pool goes to the
//! partitions with a claim. No cache is emptied at once, old claims decay, and a partition's budget
//! is an exponential average of its claim over about 1 / tax rounds. Tax is counted in whole pages,
//! rounded down: a partition of fewer than 1 / tax pages (100 at a tax of 1%) pays nothing. Gifts
//! are whole pages too, by largest remainder unless [`Rounding`] says otherwise.

use crate::bounds::{Bounds, add, as_weights, sum};
use crate::options::Rounding;
use crate::share::{quotas, share};

/// A share from 0 to 1 as a number of millionths, so that the tax of a whole number of bytes is
/// exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Millionths(u64);

impl Millionths {
    pub(crate) fn from_ratio(ratio: f64) -> Self {
        Self((ratio * 1e6).round() as u64)
    }

    /// Compares `part` with this share of `whole`, exactly.
    pub(crate) fn compare(self, part: u64, whole: u64) -> std::cmp::Ordering {
        (u128::from(part) * 1_000_000).cmp(&(u128::from(whole) * u128::from(self.0)))
    }

    pub(crate) fn of(self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.0) / 1_000_000
    }
}

/// Parameters of a round, in which partitions pay tax to a pool and get gifts from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tax {
    pub(crate) ratio: Millionths,
    pub(crate) page_bytes: u64,
    pub(crate) rounding: Rounding,
}

impl Tax {
    /// Returns the budgets after one round. `budgets` need not sum to `total`: bytes lost or gained
    /// since the last round (the total changed, a pin moved) go to or come from the pool; if the
    /// pool cannot cover them, all partitions shrink. A claim at its upper bound passes its excess
    /// to the other claims; bytes that no claim may take are refunded to the partitions that paid,
    /// and the rest is given to all.
    pub(crate) fn round(&self, budgets: &[u64], total: u64, weights: &[f64], bounds: &Bounds) -> Vec<u64> {
        let taxed: Vec<u64> =
            budgets.iter().zip(&bounds.low).map(|(&bytes, &low)| bytes - self.due(bytes, low)).collect();
        let kept = bounds.clip(&taxed);
        let pool = u128::from(total).saturating_sub(sum(&kept));
        let given = self.give(pool, &kept, weights, bounds);
        let returned = refund(total, budgets, &given, bounds);
        bounds.fit(&returned)
    }

    /// Bytes of tax a partition owes: whole pages that leave it at or above its lower bound.
    fn due(&self, bytes: u64, low: u64) -> u64 {
        let page = u128::from(self.page_bytes.max(1));
        let owed = self.ratio.of(bytes) / page;
        let spare = u128::from(bytes.saturating_sub(low)) / page;
        u64::try_from(owed.min(spare) * page).expect("tax is at most the budget")
    }

    /// Distributes the pool of paid tax in whole pages, and the remainder (less than a page, or
    /// without room for a page) in bytes.
    fn give(&self, pool: u128, kept: &[u64], weights: &[f64], bounds: &Bounds) -> Vec<u64> {
        let page = self.page_bytes.max(1);
        let rooms: Vec<u64> = bounds.room(kept).iter().map(|room| room / page).collect();
        let divide = match self.rounding {
            Rounding::Largest => share,
            Rounding::First => quotas,
        };
        let pages = divide(pool / u128::from(page), weights, &rooms);
        let gifts: Vec<u64> = pages.iter().map(|pages| pages * page).collect();
        let given = add(kept, &gifts);
        let (rest, room) = (pool - sum(&gifts), bounds.room(&given));
        let more = match self.rounding {
            Rounding::Largest => share(rest, weights, &room),
            Rounding::First => in_order(rest, &room),
        };
        add(&given, &more)
    }
}

/// Gives `amount` to the partitions in order, to each as much as its `room`.
fn in_order(mut amount: u128, room: &[u64]) -> Vec<u64> {
    let mut gift = |&room: &u64| {
        let gift = u64::try_from(amount).map_or(room, |amount| amount.min(room));
        amount -= u128::from(gift);
        gift
    };
    room.iter().map(&mut gift).collect()
}

/// Adds the rest of `total` to `given`, in proportion to what each partition lost of its former
/// budget and at most that.
fn refund(total: u64, budgets: &[u64], given: &[u64], bounds: &Bounds) -> Vec<u64> {
    let left = u128::from(total).saturating_sub(sum(given));
    let room = bounds.room(given);
    let paid: Vec<u64> = budgets
        .iter()
        .zip(given)
        .zip(room)
        .map(|((before, after), room)| before.saturating_sub(*after).min(room))
        .collect();
    add(given, &share(left, &as_weights(&paid), &paid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartitionObservation;
    use sherwood_model::{BackendId, TenantId};

    const MIB: u64 = 1 << 20;
    const TAX: Tax = Tax { ratio: Millionths(10_000), page_bytes: MIB, rounding: Rounding::Largest };

    fn round(budgets: &[u64], weights: &[f64]) -> Vec<u64> {
        round_by(TAX, budgets, weights)
    }

    fn round_by(tax: Tax, budgets: &[u64], weights: &[f64]) -> Vec<u64> {
        let total: u64 = budgets.iter().sum();
        let partitions = vec![PartitionObservation::new(TenantId(0), BackendId(0)); budgets.len()];
        let bytes: Vec<u64> = budgets.iter().map(|mib| mib * MIB).collect();
        let bounds = Bounds::new(total * MIB, 30 * MIB, &partitions);
        tax.round(&bytes, total * MIB, weights, &bounds).iter().map(|bytes| bytes / MIB).collect()
    }

    #[test]
    fn partitions_pay_tax_in_pages_and_claims_share_the_pool() {
        let mut weights = [0.0; 20];
        weights[..3].copy_from_slice(&[0.5, 0.3, 0.2]);
        let after = round(&[1_600; 20], &weights);
        assert_eq!(after[..3], [1_744, 1_680, 1_648]);
        assert!(after[3..].iter().all(|&mib| mib == 1_584));
    }

    #[test]
    fn leftover_page_of_the_pool_goes_to_the_largest_remainder_and_lower_id() {
        assert_eq!(round(&[1_000; 3], &[0.55, 0.25, 0.20]), [1_007, 997, 996]);
    }

    #[test]
    fn leftover_pages_of_the_pool_go_to_the_first_partition_under_rounding_first() {
        let first = Tax { rounding: Rounding::First, ..TAX };
        assert_eq!(round_by(first, &[1_000; 3], &[0.55, 0.25, 0.20]), [1_007, 997, 996]);
        assert_eq!(
            round_by(first, &[1_000; 3], &[0.0, 0.55, 0.45]),
            [991, 1_006, 1_003],
            "also without a claim"
        );
        assert_eq!(in_order(10, &[4, 0, 9, 9]), [4, 0, 6, 0]);
    }

    #[test]
    fn partition_pays_tax_in_whole_pages_down_to_its_floor() {
        let due = |mib: u64| TAX.due(mib * MIB, 30 * MIB) / MIB;
        assert_eq!((due(150), due(99), due(30)), (1, 0, 0));
        let half = Tax { ratio: Millionths(500_000), ..TAX };
        assert_eq!(half.due(40 * MIB, 30 * MIB), 10 * MIB, "limited by the floor");
    }

    #[test]
    fn bytes_that_the_total_lost_or_gained_pass_through_the_pool() {
        let partitions = vec![PartitionObservation::new(TenantId(0), BackendId(0)); 2];
        let bounds = |total| Bounds::new(total, 0, &partitions);
        let bytes = [1_000 * MIB, 1_000 * MIB];
        let grown = TAX.round(&bytes, 2_100 * MIB, &[1.0, 0.0], &bounds(2_100 * MIB));
        assert_eq!(grown, [1_110 * MIB, 990 * MIB], "a hundred gained, ten of tax from the other");
        let shrunk = TAX.round(&bytes, 1_000 * MIB, &[1.0, 0.0], &bounds(1_000 * MIB));
        assert_eq!(shrunk, [500 * MIB, 500 * MIB], "the pool cannot cover it: all shrink");
    }

    #[test]
    fn claim_of_a_partition_at_its_maximum_passes_to_the_others() {
        let mut partitions = vec![PartitionObservation::new(TenantId(0), BackendId(0)); 3];
        partitions[0].max_bytes = Some(1_000 * MIB);
        let bounds = Bounds::new(3_000 * MIB, 0, &partitions);
        let after = TAX.round(&[1_000 * MIB; 3], 3_000 * MIB, &[0.9, 0.1, 0.0], &bounds);
        assert_eq!(after, [1_000 * MIB, 1_010 * MIB, 990 * MIB]);
        let alone = TAX.round(&[1_000 * MIB; 3], 3_000 * MIB, &[1.0, 0.0, 0.0], &bounds);
        assert_eq!(alone, [1_000 * MIB; 3], "the others are refunded");
    }
}
