//! Test of whether a partition fills its budget.
//!
//! Unfilled bytes are of no use, so a partition with many of them gets no gift until it has filled
//! them. The budget compared is that of the last plan, which includes bytes that the cache has not
//! delivered yet.

use sherwood_model::PartitionId;

use crate::tax::Millionths;
use crate::{Claims, Options, PartitionObservation, Signal, View};

/// Rule by which a partition counts as unfilled: its budget exceeds its used bytes by too much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    /// Ratio of budget to used bytes above which a partition counts as unfilled, 1.3 by default.
    ratio_max: Millionths,
    /// True if a partition exactly at the ratio counts as filled.
    inclusive: bool,
    /// Partitions that use at most this many pages count as filled.
    ignored_pages: u64,
}

impl Fill {
    /// Returns the rule of RobinHood: partitions of any size are unfilled above the threshold.
    pub(super) fn robinhood(options: &Options) -> Self {
        let ratio_max = Millionths::from_ratio(1.0 + options.unfilled_ratio_max);
        Self { ratio_max, inclusive: true, ignored_pages: 0 }
    }

    /// Returns the rule that RobinHood's authors use in the variants that count blocked requests:
    /// as RobinHood's, but partitions that use at most two pages count as filled.
    pub(super) fn critical(options: &Options) -> Self {
        Self { ignored_pages: 2, ..Self::robinhood(options) }
    }

    /// Returns the rule that RobinHood's authors use in the other variants: a partition at the
    /// threshold already counts as unfilled.
    pub(super) fn strict(options: &Options) -> Self {
        Self { inclusive: false, ..Self::critical(options) }
    }

    /// True if the partition fills its budget of `budget` bytes.
    pub(super) fn filled(&self, seen: &PartitionObservation, budget: u64, page_bytes: u64) -> bool {
        let ordering = self.ratio_max.compare(budget, seen.used_bytes);
        let silent = seen.used_bytes <= self.ignored_pages.saturating_mul(page_bytes);
        silent || ordering.is_lt() || (self.inclusive && ordering.is_eq())
    }

    /// Tells for each partition of `view` if it fills its budget.
    pub(super) fn of(&self, view: &View<'_>) -> Vec<bool> {
        let partitions = view.seen.partitions.iter().zip(view.budgets);
        partitions.map(|(seen, &budget)| self.filled(seen, budget, view.page_bytes)).collect()
    }

    /// Claims of the partitions that fill their budgets; the weights of the others become zero.
    pub(super) fn claims(&self, view: &View<'_>, mut weights: Vec<f64>, signal: Signal) -> Claims {
        let mut unfilled = Vec::new();
        for (i, filled) in self.of(view).into_iter().enumerate() {
            if !filled && weights[i] > 0.0 {
                weights[i] = 0.0;
                unfilled.push(PartitionId::from_index(i));
            }
        }
        Claims { weights, unfilled, signal }
    }
}
