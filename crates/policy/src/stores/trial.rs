//! The latest change of a plan, until what is measured has confirmed it.

use super::layout::is_same_layout;
use crate::slo::StorePlan;

/// Measured windows for which a plan that was worse than predicted is not chosen again.
const AVOIDED_WINDOWS: u32 = 60;

/// A change of the manager, and what its first window says about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// The plan before the change, and the level that was measured with it; none once the change is
    /// confirmed.
    former: Option<(StorePlan, f64)>,
    /// True if nothing was measured since the change.
    is_unmeasured: bool,
    /// The latest plan that was taken back, and the windows for which it is avoided.
    avoided: Option<(StorePlan, u32)>,
}

impl Trial {
    /// Begins with a change from a plan with which this level was measured, if one was.
    pub(super) fn begin(&mut self, former: StorePlan, measured: Option<f64>) {
        self.former = measured.map(|measured| (former, measured));
        self.is_unmeasured = true;
    }

    /// Ends without a result, since the plan was changed by others.
    pub(super) fn end(&mut self) {
        (self.former, self.is_unmeasured) = (None, false);
    }

    /// Takes in the level of a window, and whether the prediction was off. Returns true for the
    /// first window after a change.
    pub(super) fn handle_measured(&mut self, level: f64, is_off: bool) -> bool {
        self.former = self.former.filter(|(_, before)| is_off && level < *before);
        let left = self.avoided.and_then(|(plan, left)| Some((plan, left.checked_sub(1)?)));
        self.avoided = left;
        std::mem::take(&mut self.is_unmeasured)
    }

    /// Returns the plan to go back to, with the level that was measured with it, if the present
    /// plan has made requests late; it is avoided from then on. A dry run changes nothing.
    pub(super) fn take_harm(&mut self, present: &StorePlan, dry_run: bool) -> Option<(StorePlan, f64)> {
        if self.is_unmeasured || dry_run {
            return None;
        }
        let former = self.former.take()?;
        self.avoided = Some((*present, AVOIDED_WINDOWS));
        Some(former)
    }

    /// Returns true if a plan was taken back lately; one that differs only in the delay before the
    /// hedge is the same.
    pub(super) fn avoids(&self, plan: &StorePlan) -> bool {
        self.avoided.is_some_and(|(avoided, _)| {
            is_same_layout(&avoided, plan)
                && avoided.asked == plan.asked
                && avoided.hedge_ms.is_some() == plan.hedge_ms.is_some()
        })
    }
}
