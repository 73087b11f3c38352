//! The rate of successive loans on the same account.

use sherwood_model::Instant;
use smallvec::SmallVec;

/// Loans of the same units between the same two nodes. A new loan renews the earlier ones, so the
/// rate at any time is that of the largest loan that has not ended.
///
/// The borrower's end of every loan is before the lender's, so what the borrower counts is never
/// more than what the lender does, whichever messages are lost or repeated.
///
/// Memory: a loan is added at most once in a fixed time, and ends after a fixed time, so there are
/// at most some ten.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(SmallVec<[(Instant, f64); 2]>);

impl Steps {
    /// Adds a loan of `per_s` units a second that ends at `end`.
    pub(super) fn add(&mut self, end: Instant, per_s: f64) {
        if per_s <= 0.0 || self.0.iter().any(|&(later, more)| later >= end && more >= per_s) {
            return;
        }
        self.0.retain(|&mut (other, least)| other > end || least > per_s);
        self.0.push((end, per_s));
    }

    /// Returns the rate at a time.
    pub(super) fn at(&self, now: Instant) -> f64 {
        self.in_force(now).map(|(_, per_s)| per_s).fold(0.0, f64::max)
    }

    /// Returns the time of the next loan's end; none if all have ended.
    pub(super) fn next_end(&self, now: Instant) -> Option<Instant> {
        self.in_force(now).map(|(end, _)| end).min()
    }

    /// Forgets loans that have ended; returns true if some have not.
    pub(super) fn prune(&mut self, now: Instant) -> bool {
        self.0.retain(|&mut (end, _)| end > now);
        !self.0.is_empty()
    }

    fn in_force(&self, now: Instant) -> impl Iterator<Item = (Instant, f64)> {
        self.0.iter().copied().filter(move |&(end, _)| end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn rate_is_that_of_the_largest_loan_that_has_not_ended() {
        let mut steps = Steps::default();
        steps.add(at(500), 10.0);
        steps.add(at(600), 4.0);
        steps.add(at(550), 3.0);
        assert_eq!([400, 499, 500, 599, 600].map(|now| steps.at(at(now))), [10.0, 10.0, 4.0, 4.0, 0.0]);
        assert_eq!(steps.0.len(), 2, "a shorter and smaller loan adds nothing");
        assert_eq!(steps.next_end(at(400)), Some(at(500)));
        steps.add(at(700), 20.0);
        assert_eq!((steps.0.len(), steps.at(at(650))), (1, 20.0));
        assert!(steps.prune(at(699)) && !steps.prune(at(700)));
    }
}
