//! Whether a partition fills what it was given.
//!
//! Bytes that nobody fills help nobody, so a partition that holds much more than it uses gets no
//! gift until it has caught up. The budget compared is that of the last plan: bytes promised but
//! not yet there are unfilled all the more.

use sherwood_model::PartitionId;

use crate::tax::Millionths;
use crate::{Claims, Options, PartitionSeen, Signal, View};

/// When a partition counts as not filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    /// Allocated over used at which it starts, 1.3 by default.
    ratio_max: Millionths,
    /// Whether a partition exactly there counts as filled.
    inclusive: bool,
    /// Pages used up to which nothing is said against a partition.
    ignored_pages: u64,
}

impl Fill {
    /// RobinHood's: not filled above the limit, whatever the size; nothing used yet says nothing.
    pub(super) fn robinhood(options: &Options) -> Self {
        let ratio_max = Millionths::from_ratio(1.0 + options.unfilled_ratio_max);
        Self { ratio_max, inclusive: true, ignored_pages: 0 }
    }

    /// The authors' in the variants that count blocked requests: as RobinHood's, but two pages used
    /// or less say nothing.
    pub(super) fn critical(options: &Options) -> Self {
        Self { ignored_pages: 2, ..Self::robinhood(options) }
    }

    /// The authors' in the other variants: at the limit a partition already counts as not filled.
    pub(super) fn strict(options: &Options) -> Self {
        Self { inclusive: false, ..Self::critical(options) }
    }

    /// Whether partition `seen` with a budget of `budget` bytes fills it.
    pub(super) fn filled(&self, seen: &PartitionSeen, budget: u64, page_bytes: u64) -> bool {
        let ordering = self.ratio_max.compare(budget, seen.used_bytes);
        let silent = seen.used_bytes <= self.ignored_pages.saturating_mul(page_bytes);
        silent || ordering.is_lt() || (self.inclusive && ordering.is_eq())
    }

    /// Whether each partition of `view` fills its budget.
    pub(super) fn of(&self, view: &View<'_>) -> Vec<bool> {
        let partitions = view.seen.partitions.iter().zip(view.budgets);
        partitions.map(|(seen, &budget)| self.filled(seen, budget, view.page_bytes)).collect()
    }

    /// Claims of those that fill their budgets; the others' weights become zero.
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
