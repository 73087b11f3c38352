//! A budget for extra attempts: retries and copies.
//!
//! A bound per fetch does not bound the load: while a whole backend fails, one retry of each call
//! doubles its load. So extra attempts are paid for by first attempts, and can exceed them only by
//! a given ratio and a given burst.

use crate::RetryOptions;

/// Tokens for extra attempts, in thousandths. A first attempt adds a part of a token when it
/// starts; an extra attempt takes a token when it is given to a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtraBudget {
    held_milli: u32,
    held_milli_max: u32,
    paid_milli: u32,
}

impl ExtraBudget {
    /// Returns a full budget. The options are valid: the ratio is 0 to 1, the burst at most a
    /// million.
    pub(crate) fn new(options: &RetryOptions) -> Self {
        let held_milli_max = options.burst.saturating_mul(MILLI);
        Self {
            held_milli: held_milli_max,
            held_milli_max,
            paid_milli: (options.ratio * f64::from(MILLI)) as u32,
        }
    }

    /// Adds the part of a token that each first attempt pays for extra ones.
    pub(crate) fn pay(&mut self) {
        self.held_milli = self.held_milli.saturating_add(self.paid_milli).min(self.held_milli_max);
    }

    /// Returns true if one more extra attempt can be afforded.
    pub(crate) fn can_take(&self) -> bool {
        self.held_milli >= MILLI
    }

    /// Takes the token that an extra attempt costs.
    pub(crate) fn take(&mut self) {
        self.held_milli = self.held_milli.saturating_sub(MILLI);
    }
}

const MILLI: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_attempts_stay_within_burst_and_ratio() {
        let mut budget = ExtraBudget::new(&RetryOptions { per_call_max: 9, ratio: 0.1, burst: 3 });
        let mut extra = 0;
        for _ in 0..1_000 {
            budget.pay();
            while budget.can_take() {
                budget.take();
                extra += 1;
            }
        }
        // The first payment is lost because the budget is full.
        assert_eq!(extra, 3 + 99);
    }

    #[test]
    fn extra_attempts_budget_without_burst_affords_no_attempt() {
        let mut budget = ExtraBudget::new(&RetryOptions { per_call_max: 9, ratio: 1.0, burst: 0 });
        budget.pay();
        assert!(!budget.can_take());
    }
}
