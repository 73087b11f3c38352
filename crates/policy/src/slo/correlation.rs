//! The correlation of duplicates' slow periods, which predictions assume to be none.

/// Greatest correlation at which predictions are claimed. Where duplicates are slow together more
/// often, fewer accesses end in time than predicted.
pub const CORRELATION_MAX: f64 = 0.1;

/// Pearson's correlation of what is measured at two duplicates at a time: service times of the same
/// accesses, or shares of slow attempts in the same slices of time. Slow periods determine both.
///
/// ```
/// use sherwood_policy::slo::Correlation;
///
/// let mut correlation = Correlation::default();
/// for (first_ms, second_ms) in [(2.0, 2.0), (2.0, 90.0), (90.0, 2.0), (90.0, 90.0)] {
///     correlation.record(first_ms, second_ms);
/// }
/// assert_eq!(correlation.coefficient(), Some(0.0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Correlation {
    pairs: u64,
    means: [f64; 2],
    /// Sums of the squared deviations from the means.
    squares: [f64; 2],
    /// Sum of the products of both deviations.
    products: f64,
}

impl Correlation {
    /// Records what was measured at both duplicates.
    pub fn record(&mut self, first: f64, second: f64) {
        self.pairs += 1;
        let values = [first, second];
        let before: [f64; 2] = std::array::from_fn(|of| values[of] - self.means[of]);
        let [_, after] = std::array::from_fn(|of| {
            self.means[of] += before[of] / self.pairs as f64;
            let after = values[of] - self.means[of];
            self.squares[of] += before[of] * after;
            after
        });
        self.products += before[0] * after;
    }

    /// Number of pairs recorded.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Returns the coefficient, from -1 to 1; none if what was measured at a duplicate does not
    /// vary.
    #[must_use]
    pub fn coefficient(&self) -> Option<f64> {
        let [first, second] = self.squares;
        let coefficient = || self.products / libm::sqrt(first * second);
        (first > 0.0 && second > 0.0).then(|| coefficient().clamp(-1.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_have_a_correlation_of_one_and_opposite_ones_of_minus_one() {
        let of = |sign: f64| {
            let mut correlation = Correlation::default();
            [1.0, 2.0, 40.0].into_iter().for_each(|ms| correlation.record(ms, sign * ms));
            correlation.coefficient().unwrap()
        };
        assert!((of(1.0) - 1.0).abs() < 1e-12 && (of(-1.0) + 1.0).abs() < 1e-12);
    }

    #[test]
    fn times_that_do_not_vary_have_no_correlation() {
        let mut correlation = Correlation::default();
        assert_eq!(correlation.coefficient(), None);
        correlation.record(2.0, 1.0);
        correlation.record(2.0, 3.0);
        assert_eq!(correlation.coefficient(), None);
    }
}
