//! A budget for retries.
//!
//! A bound per call does not bound load: when a whole backend is in trouble every call fails, and
//! one retry each doubles what the backend must carry at the worst moment. So retries are paid for
//! by first attempts, and the sum of both can exceed the first attempts only by a stated ratio and
//! a stated burst.

use crate::RetryOptions;

/// Tokens for retries, in thousandths: a first attempt pays in, a retry takes one out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    held_milli: u32,
    held_milli_max: u32,
    paid_milli_per_call: u32,
}

impl RetryBudget {
    /// A full budget. The options are valid: the ratio is 0 to 1, the burst at most a million.
    pub(crate) fn new(options: &RetryOptions) -> Self {
        let held_milli_max = options.burst.saturating_mul(MILLI);
        Self {
            held_milli: held_milli_max,
            held_milli_max,
            paid_milli_per_call: (options.ratio * f64::from(MILLI)) as u32,
        }
    }

    /// A first attempt was made.
    pub(crate) fn pay(&mut self) {
        self.held_milli = self.held_milli.saturating_add(self.paid_milli_per_call).min(self.held_milli_max);
    }

    /// Whether one more retry can be afforded.
    pub(crate) fn can_take(&self) -> bool {
        self.held_milli >= MILLI
    }

    /// A retry was made.
    pub(crate) fn take(&mut self) {
        self.held_milli = self.held_milli.saturating_sub(MILLI);
    }
}

const MILLI: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_stay_within_burst_and_ratio() {
        let mut budget = RetryBudget::new(&RetryOptions { per_call_max: 9, ratio: 0.1, burst: 3 });
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.pay();
            while budget.can_take() {
                budget.take();
                retries += 1;
            }
        }
        // The first payment meets a full budget and is lost.
        assert_eq!(retries, 3 + 99);
    }

    #[test]
    fn nothing_paid_and_no_burst_allows_nothing() {
        let mut budget = RetryBudget::new(&RetryOptions { per_call_max: 9, ratio: 1.0, burst: 0 });
        budget.pay();
        assert!(!budget.can_take());
    }
}
