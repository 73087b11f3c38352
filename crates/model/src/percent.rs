//! Percentages as parameters of rules.

use std::fmt;

use thiserror::Error;

/// A percentage above 0 and below 100, in steps of a hundredth: a percentile of a distribution, or
/// a share of requests.
///
/// ```
/// use sherwood_model::{Percent, PercentError};
/// assert_eq!(Percent::new("alpha", 15.0)?.to_string(), "15%");
/// assert_eq!(Percent::new("target", 0.03 * 100.0)?.ratio(), 0.03);
/// let refusal = Percent::new("beta", 100.0).unwrap_err().to_string();
/// assert_eq!(refusal, "`beta` is 100 percent, must be 0.01 to 99.99; leave it out for the default");
/// # Ok::<(), PercentError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    hundredths: u16,
}

/// The error of a percentage outside its range, or that is not a number.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("`{key}` is {percent} percent, must be 0.01 to 99.99; leave it out for the default")]
pub struct PercentError {
    /// The configuration key that was given the percentage.
    pub key: &'static str,
    /// The percentage that was given.
    pub percent: f64,
}

impl Percent {
    /// The smallest percentage.
    pub const MIN: Self = Self { hundredths: 1 };
    /// The largest percentage.
    pub const MAX: Self = Self { hundredths: 9_999 };
    /// Default percentile of latencies below which a call cannot be expected to take (α), as in
    /// "`MicroFuge`" (2014).
    pub const ALPHA: Self = Self { hundredths: 1_500 };

    /// The percentile of latencies after which a call is hedged: so late are 5 of 100 calls.
    pub const HEDGE: Self = Self { hundredths: 9_500 };

    /// Default percentile of latencies that estimates take for each call (β), as in "`MicroFuge`".
    pub const BETA: Self = Self { hundredths: 8_800 };

    /// Returns the percentage nearest to `percent`, which configuration key `key` was set to.
    ///
    /// # Errors
    /// If it is not between 0.01 and 99.99.
    pub fn new(key: &'static str, percent: f64) -> Result<Self, PercentError> {
        let hundredths = (percent * 100.0).round();
        if (1.0..=9_999.0).contains(&hundredths) {
            Ok(Self { hundredths: hundredths as u16 })
        } else {
            Err(PercentError { key, percent })
        }
    }

    /// Returns the percentage as a number from 0 to 100.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }

    /// Returns the percentage as a number from 0 to 1.
    #[must_use]
    pub fn ratio(self) -> f64 {
        f64::from(self.hundredths) / 10_000.0
    }

    /// Returns this part of `count`, rounded up: at least 1 of at least 1.
    #[must_use]
    pub fn rank_in(self, count: u64) -> u64 {
        (count * u64::from(self.hundredths)).div_ceil(10_000)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_outside_its_range_or_not_a_number_is_refused() {
        for percent in [0.0, -1.0, 0.004, 99.996, f64::NAN, f64::INFINITY] {
            assert!(Percent::new("beta", percent).is_err(), "{percent}");
        }
        assert_eq!(
            [0.01, 99.99].map(|percent| Percent::new("beta", percent)),
            [Ok(Percent::MIN), Ok(Percent::MAX)]
        );
    }

    #[test]
    fn percentile_rank_is_between_the_first_and_the_last() {
        assert_eq!([1, 2, 1_000].map(|count| Percent::MIN.rank_in(count)), [1, 1, 1]);
        assert_eq!([1, 2, 1_000].map(|count| Percent::MAX.rank_in(count)), [1, 2, 1_000]);
        assert_eq!(Percent::BETA.rank_in(100), 88);
    }
}
