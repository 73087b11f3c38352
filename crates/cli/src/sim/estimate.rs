//! Means over several seeds, and their confidence intervals.

use std::fmt::{self, Display};

use serde::Serialize;

/// A mean over seeds and its 95% confidence interval, which is clipped to 0..=1 for shares. There
/// is no interval for a single seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

/// 97.5% quantiles of Student's t distribution for 1, 2, … degrees of freedom.
const STUDENT: [f64; 10] = [
    12.706204736,
    4.302652730,
    3.182446305,
    2.776445105,
    2.570581836,
    2.446911851,
    2.364624252,
    2.306004135,
    2.262157163,
    2.228138852,
];
/// The quantile for more degrees of freedom: that of the next entry, which makes intervals slightly
/// too wide.
const STUDENT_MANY: f64 = 2.200985160;

impl Estimate {
    /// Computes the estimate from a value for each seed; there is at least one.
    pub(super) fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return Self { mean, low: None, high: None };
        }
        let freedom = values.len() - 1;
        let variance =
            values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / freedom as f64;
        let student = STUDENT.get(freedom - 1).copied().unwrap_or(STUDENT_MANY);
        let half = student * (variance / count).sqrt();
        Self { mean, low: Some(mean - half), high: Some(mean + half) }
    }

    /// Computes the estimate of a share; the interval is clipped to 0..=1.
    pub(super) fn of_shares(values: &[f64]) -> Self {
        let Self { mean, low, high } = Self::of(values);
        Self { mean, low: low.map(|low| low.max(0.0)), high: high.map(|high| high.min(1.0)) }
    }

    /// Multiplies the mean and the interval by `factor`, to convert their unit.
    pub(super) fn times(self, factor: f64) -> Self {
        let times = |value: f64| value * factor;
        Self { mean: times(self.mean), low: self.low.map(times), high: self.high.map(times) }
    }
}

/// Formats the mean, with a sign when `+` is given, and the half-width of the interval, or both
/// ends when it is not symmetric. When all seeds gave 0 there is no interval, which would be
/// misleading.
impl Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, low, high } = *self;
        let decimals = f.precision().unwrap_or(2);
        if (mean, low, high) == (0.0, Some(0.0), Some(0.0)) {
            return f.write_str("0 in all seeds");
        }
        if f.sign_plus() && mean >= 0.0 {
            f.write_str("+")?;
        }
        write!(f, "{mean:.decimals$}")?;
        let (Some(low), Some(high)) = (low, high) else { return Ok(()) };
        // The interval of a share may be clipped at one side.
        let (less, more) = (mean - low, high - mean);
        if (more - less).abs() <= 1e-9 * mean.abs().max(1.0) {
            write!(f, " ± {more:.decimals$}")
        } else {
            write!(f, " ({low:.decimals$}–{high:.decimals$})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_interval_uses_students_t() {
        // The mean is 3, the standard deviation 1.5811, the standard error 0.7071, and 2.776 times
        // that is 1.963.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(format!("{estimate:.3}"), "3.000 ± 1.963");
        assert_eq!(format!("{:.1}", estimate.times(100.0)), "300.0 ± 196.3");
        let less = Estimate::of(&[-1.0, -2.0, -3.0, -4.0, -5.0]);
        assert_eq!(format!("{estimate:+.0} {less:+.0}"), "+3 ± 2 -3 ± 2");
        assert_eq!(Estimate::of(&[7.0]), Estimate { mean: 7.0, low: None, high: None });
        assert_eq!(format!("{}", Estimate::of(&[7.0])), "7.00");
    }

    #[test]
    fn confidence_interval_of_a_share_is_clipped_to_0_and_1() {
        // The mean is 0.01, the standard error 0.005, and 12.706 times that is 0.0635.
        let few = Estimate::of_shares(&[0.005, 0.015]);
        assert_eq!((few.low, format!("{:.2}", few.times(100.0))), (Some(0.0), "1.00 (0.00–7.35)".to_owned()));
        let most = Estimate::of_shares(&[0.985, 0.995]);
        assert_eq!(
            (most.high, format!("{:.1}", most.times(100.0))),
            (Some(1.0), "99.0 (92.6–100.0)".to_owned())
        );
        assert_eq!(format!("{:.1}", Estimate::of_shares(&[0.5, 0.502]).times(100.0)), "50.1 ± 1.3");
    }

    #[test]
    fn mean_of_zero_in_all_seeds_has_no_confidence_interval() {
        let never = Estimate::of_shares(&[0.0, 0.0, 0.0]);
        assert_eq!((never.mean, never.low, never.high), (0.0, Some(0.0), Some(0.0)));
        assert_eq!(format!("{:.2} {never:+.2}", never.times(100.0)), "0 in all seeds 0 in all seeds");
        assert_eq!(format!("{:.2}", Estimate::of(&[0.0])), "0.00", "of one seed nobody says all");
        assert_eq!(format!("{:.2}", Estimate::of(&[2.0, 2.0])), "2.00 ± 0.00");
    }

    /// With t = √ν tan x the density is a power of the cosine, which is integrated by Simpson's
    /// rule.
    #[test]
    fn quantiles_match_students_distribution() {
        let within = |freedom: usize, t: f64| {
            let integral = |end: f64| {
                let (steps, power) = (2_000, freedom as i32 - 1);
                let at = |step: u32| (end * f64::from(step) / f64::from(steps)).cos().powi(power);
                let weight =
                    |step: u32| if step == 0 || step == steps { 1.0 } else { f64::from(2 + step % 2 * 2) };
                (0..=steps).map(|step| weight(step) * at(step)).sum::<f64>() * end / f64::from(3 * steps)
            };
            integral((t / (freedom as f64).sqrt()).atan()) / integral(std::f64::consts::FRAC_PI_2)
        };
        for (index, &t) in STUDENT.iter().chain([&STUDENT_MANY]).enumerate() {
            let share = within(index + 1, t);
            assert!((share - 0.95).abs() < 1e-9, "{} degrees: {share}", index + 1);
        }
        assert!(within(12, STUDENT_MANY) > 0.95);
    }
}
