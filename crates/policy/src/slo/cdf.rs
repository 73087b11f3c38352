//! Distributions of service times, as cumulative shares.

use thiserror::Error;

/// The distribution of a store's service time: shares of accesses that take at most a time.
///
/// It has an atom at its first point and is linear between points.
///
/// ```
/// use sherwood_policy::slo::ServiceTimes;
///
/// // Half of the accesses take 2 ms, the others up to 4 ms.
/// let times = ServiceTimes::new(vec![(2.0, 0.5), (4.0, 1.0)])?;
/// assert_eq!([times.share_within(1.9), times.share_within(2.0), times.share_within(3.0)], [0.0, 0.5, 0.75]);
/// assert_eq!(times.mean_ms(), 2.5);
/// # Ok::<(), sherwood_policy::slo::CdfError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceTimes {
    /// Times in milliseconds with the share of accesses that take at most that long, both rising.
    points: Vec<(f64, f64)>,
}

/// The reason why points are no distribution. Points are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum CdfError {
    /// There is no point.
    #[error("there are no points; at least one is needed, and the last has to be 1")]
    Empty,
    /// A time or share is not a number, or out of its range.
    #[error("point {0} is ({1}, {2}); times are 0 or more milliseconds, shares 0 to 1")]
    OutOfRange(usize, f64, f64),
    /// A point is not later and higher than the one before.
    #[error("point {0} is ({1}, {2}), not later than the point before it with at least its share")]
    NotRising(usize, f64, f64),
    /// The last share is not 1.
    #[error("the last share is {0}; it has to be 1")]
    NotWhole(f64),
}

impl ServiceTimes {
    /// Creates the distribution of these points: milliseconds, and the share of accesses that take
    /// at most as long.
    ///
    /// # Errors
    /// If there is none, times do not rise, shares fall, or the last share is not 1.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, CdfError> {
        let (_, last) = *points.last().ok_or(CdfError::Empty)?;
        let mut before = None;
        for (number, &(ms, share)) in (1..).zip(&points) {
            if !(ms.is_finite() && ms >= 0.0 && (0.0..=1.0).contains(&share)) {
                return Err(CdfError::OutOfRange(number, ms, share));
            }
            if before.is_some_and(|(at, of)| ms <= at || share < of) {
                return Err(CdfError::NotRising(number, ms, share));
            }
            before = Some((ms, share));
        }
        if last < 1.0 { Err(CdfError::NotWhole(last)) } else { Ok(Self { points }) }
    }

    /// The share of accesses that take at most `ms`. Logarithmic in the points.
    #[must_use]
    pub fn share_within(&self, ms: f64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at <= ms);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, _) => 0.0,
            (Some((_, share)), None) => share,
            (Some((from, low)), Some(&(to, high))) => low + (high - low) * (ms - from) / (to - from),
        }
    }

    /// The time within which this share of accesses end, in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let at = self.points.partition_point(|(_, of)| *of < share).min(self.points.len() - 1);
        let (to, high) = self.points[at];
        match at.checked_sub(1).map(|before| self.points[before]) {
            Some((from, low)) if high > low => from + (to - from) * (share - low).max(0.0) / (high - low),
            _ => to,
        }
    }

    /// The mean service time, milliseconds.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        self.moment(|from, to| (from + to) / 2.0)
    }

    /// The mean square of the service time, square milliseconds.
    #[must_use]
    pub fn mean_square_ms2(&self) -> f64 {
        self.moment(|from, to| (from * from + from * to + to * to) / 3.0)
    }

    /// Sums a moment of the parts, each of which is uniform between two points.
    fn moment(&self, of_part: impl Fn(f64, f64) -> f64) -> f64 {
        let (first, atom) = self.points[0];
        let parts = self.points.windows(2).map(|pair| {
            let [(from, low), (to, high)] = [pair[0], pair[1]];
            (high - low) * of_part(from, to)
        });
        atom * of_part(first, first) + parts.sum::<f64>()
    }

    /// Returns the integral of [`share_within`](Self::share_within) from 0 to each multiple of
    /// `step_ms` up to `steps`, in milliseconds. Linear in points and steps.
    pub(super) fn integrals(&self, step_ms: f64, steps: usize) -> Vec<f64> {
        let (mut integrals, mut sum, mut next) = (Vec::with_capacity(steps + 1), 0.0, 0);
        let (mut from, mut share) = (0.0, 0.0);
        for step in 0..=steps {
            let to = step as f64 * step_ms;
            while let Some(&(at, of)) = self.points.get(next).filter(|(at, _)| *at <= to) {
                // Before the first point there is no access; from it on the share is linear.
                sum += (at - from) * if next == 0 { 0.0 } else { (share + of) / 2.0 };
                (from, share, next) = (at, of, next + 1);
            }
            let here = self.share_within(to);
            sum += (to - from) * if next == 0 { 0.0 } else { (share + here) / 2.0 };
            (from, share) = (to, here);
            integrals.push(sum);
        }
        integrals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_are_no_distribution_are_refused() {
        let of = |points: &[(f64, f64)]| ServiceTimes::new(points.to_vec()).unwrap_err();
        assert_eq!(of(&[]), CdfError::Empty);
        assert!(matches!(of(&[(f64::NAN, 1.0)]), CdfError::OutOfRange(1, ..)));
        assert_eq!(of(&[(1.0, 0.5), (2.0, 1.5)]), CdfError::OutOfRange(2, 2.0, 1.5));
        assert_eq!(of(&[(1.0, 0.5), (1.0, 1.0)]), CdfError::NotRising(2, 1.0, 1.0));
        assert_eq!(of(&[(1.0, 0.5), (2.0, 0.4)]), CdfError::NotRising(2, 2.0, 0.4));
        assert_eq!(of(&[(1.0, 0.5), (2.0, 0.9)]), CdfError::NotWhole(0.9));
    }

    #[test]
    fn moments_and_quantiles_are_those_of_an_atom_and_uniform_parts() {
        let times = ServiceTimes::new(vec![(1.0, 0.25), (3.0, 0.75), (7.0, 1.0)]).unwrap();
        assert_eq!(times.mean_ms(), 0.25 + 0.5 * 2.0 + 0.25 * 5.0);
        assert_eq!(times.mean_square_ms2(), 0.25 + 0.5 * 13.0 / 3.0 + 0.25 * 79.0 / 3.0);
        let quantiles = [0.1, 0.25, 0.5, 0.75, 1.0].map(|share| times.quantile_ms(share));
        assert_eq!(quantiles, [1.0, 1.0, 2.0, 3.0, 7.0]);
    }

    #[test]
    fn integrals_equal_those_by_hand() {
        let times = ServiceTimes::new(vec![(1.0, 0.5), (3.0, 1.0)]).unwrap();
        let expected = [0.0, 0.0, 0.625, 1.5, 2.5];
        assert_eq!(times.integrals(1.0, 4), expected);
        // A step that has several points, and points between steps.
        assert_eq!(times.integrals(4.0, 1), [0.0, 2.5]);
    }
}
