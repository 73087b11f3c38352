//! Arrival times of an open-loop load, independent of responses.

use std::time::Duration;

use thiserror::Error;

use crate::draw::uniform;

/// Gaps between arrivals of an open loop: a Poisson process, or equal gaps.
///
/// Users do not wait for each other, so arrivals must not depend on responses. Gaps are whole
/// nanoseconds; the rounding error is carried into the next gap, so the rate is exact over any
/// time.
#[derive(Clone, Debug)]
pub struct Arrivals {
    mean_gap_ns: f64,
    pattern: Pattern,
    carried_ns: f64,
}

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Poisson,
    Fixed,
}

/// Reason why an arrival rate was refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ArrivalsError {
    /// The rate is out of range.
    #[error("arrival rate {rate_per_s} per second is out of range: give a number above 0 and up to 1e9")]
    Rate {
        /// The rate given, in arrivals per second.
        rate_per_s: f64,
    },
}

impl Arrivals {
    /// Returns independent arrivals at `rate_per_s` on average, with exponentially distributed
    /// gaps.
    ///
    /// # Errors
    /// If the rate is not in (0, 1e9].
    pub fn poisson(rate_per_s: f64) -> Result<Self, ArrivalsError> {
        Self::new(rate_per_s, Pattern::Poisson)
    }

    /// Returns arrivals at equal gaps of `1 / rate_per_s`.
    ///
    /// # Errors
    /// If the rate is not in (0, 1e9].
    pub fn fixed(rate_per_s: f64) -> Result<Self, ArrivalsError> {
        Self::new(rate_per_s, Pattern::Fixed)
    }

    fn new(rate_per_s: f64, pattern: Pattern) -> Result<Self, ArrivalsError> {
        if rate_per_s > 0.0 && rate_per_s <= 1e9 {
            Ok(Self { mean_gap_ns: 1e9 / rate_per_s, pattern, carried_ns: 0.0 })
        } else {
            Err(ArrivalsError::Rate { rate_per_s })
        }
    }

    /// Returns the time from the last arrival to the next. Equal gaps draw nothing from `rng`.
    pub fn next_gap(&mut self, rng: &mut impl rand_core::Rng) -> Duration {
        let gap = match self.pattern {
            Pattern::Poisson => -libm::log(1.0 - uniform(rng)) * self.mean_gap_ns,
            Pattern::Fixed => self.mean_gap_ns,
        };
        let due = gap + self.carried_ns;
        let whole = due as u64;
        self.carried_ns = due - whole as f64;
        Duration::from_nanos(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::rng_from_seed;

    #[test]
    fn poisson_arrival_gaps_have_the_mean_and_spread_of_an_exponential() {
        let (mut arrivals, mut rng) = (Arrivals::poisson(400.0).unwrap(), rng_from_seed(5));
        let gaps: Vec<f64> = (0..100_000).map(|_| arrivals.next_gap(&mut rng).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / 1e5;
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / 1e5;
        assert!((mean - 0.0025).abs() < 0.0025 * 0.01, "{mean}");
        assert!((variance.sqrt() - 0.0025).abs() < 0.0025 * 0.02, "{variance}");
    }

    #[test]
    fn equal_arrival_gaps_sum_to_the_rate_despite_rounding() {
        let (mut arrivals, mut rng) = (Arrivals::fixed(30_000.0).unwrap(), rng_from_seed(5));
        let total: Duration = (0..30_000).map(|_| arrivals.next_gap(&mut rng)).sum();
        assert!(total.abs_diff(Duration::from_secs(1)) <= Duration::from_nanos(1), "{total:?}");
    }

    #[test]
    fn arrival_rate_out_of_range_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Arrivals::poisson(rate).is_err(), "{rate}");
        }
    }
}
