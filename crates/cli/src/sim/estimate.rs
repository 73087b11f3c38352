//! Statistics over several seeds.

use std::fmt::{self, Display, Write};

use serde::Serialize;
use sherwood_sim::Results;

use crate::sim::onerf::kept::Kept;

/// Results of a policy in a scenario, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(in crate::sim) struct SummaryLine {
    pub(in crate::sim) scenario: String,
    pub(in crate::sim) policy: String,
    pub(in crate::sim) seeds: usize,
    pub(in crate::sim) slo_violation_ratio: Estimate,
    pub(in crate::sim) p50_ms: Estimate,
    pub(in crate::sim) p90_ms: Estimate,
    pub(in crate::sim) p99_ms: Estimate,
    pub(in crate::sim) p99_max_ms: Estimate,
    pub(in crate::sim) dominant_rbc_mean: Estimate,
    pub(in crate::sim) dominant_rbc_max: Estimate,
    pub(in crate::sim) static_equivalent_ratio: Estimate,
}

/// A mean over seeds and its 95% confidence interval, which is clipped to 0..=1 for shares. There
/// is no interval for a single seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::sim) struct Estimate {
    pub(in crate::sim) mean: f64,
    pub(in crate::sim) low: Option<f64>,
    pub(in crate::sim) high: Option<f64>,
}

/// Returns a line for each scenario and policy, in the order of the runs.
pub(in crate::sim) fn of(runs: &[Kept]) -> Vec<SummaryLine> {
    let same =
        |a: &Kept, b: &Kept| (&a.inputs.scenario, &a.inputs.policy) == (&b.inputs.scenario, &b.inputs.policy);
    runs.chunk_by(same).map(line).collect()
}

fn line(runs: &[Kept]) -> SummaryLine {
    let values =
        |value: fn(&Results) -> f64| runs.iter().map(|run| value(&run.outcome.results)).collect::<Vec<_>>();
    let of = |value| Estimate::of(&values(value));
    let share = |value| Estimate::of_shares(&values(value));
    SummaryLine {
        scenario: runs[0].inputs.scenario.clone(),
        policy: runs[0].inputs.policy.clone(),
        seeds: runs.len(),
        slo_violation_ratio: share(|results| results.slo_violation_ratio),
        p50_ms: of(|results| results.p50_ms),
        p90_ms: of(|results| results.p90_ms),
        p99_ms: of(|results| results.p99_ms),
        p99_max_ms: of(|results| results.p99_max_ms),
        dominant_rbc_mean: share(|results| results.dominant_rbc.mean),
        dominant_rbc_max: share(|results| results.dominant_rbc.max),
        static_equivalent_ratio: of(|results| results.static_equivalent_ratio),
    }
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
    pub(in crate::sim) fn of(values: &[f64]) -> Self {
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
    pub(in crate::sim) fn of_shares(values: &[f64]) -> Self {
        let Self { mean, low, high } = Self::of(values);
        Self { mean, low: low.map(|low| low.max(0.0)), high: high.map(|high| high.min(1.0)) }
    }

    /// Multiplies the mean and the interval by `factor`, to convert their unit.
    pub(in crate::sim) fn times(self, factor: f64) -> Self {
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

/// Formats the lines as tables, one for each scenario.
pub(in crate::sim) fn text(lines: &[SummaryLine]) -> String {
    let mut text = String::new();
    for scenario in lines.chunk_by(|a, b| a.scenario == b.scenario) {
        let _ = writeln!(
            text,
            "{:<16} {:>20} {:>18} {:>18} {:>14} {:>14}",
            scenario[0].scenario, "violations %", "P99 ms", "worst P99 ms", "RBC mean %", "static caches",
        );
        for line in scenario {
            let _ = writeln!(
                text,
                "  {:<14} {:>20} {:>18} {:>18} {:>14} {:>14}",
                line.policy,
                format!("{:.2}", line.slo_violation_ratio.times(100.0)),
                format!("{:.1}", line.p99_ms),
                format!("{:.1}", line.p99_max_ms),
                format!("{:.0}", line.dominant_rbc_mean.times(100.0)),
                format!("{:.2}", line.static_equivalent_ratio),
            );
        }
        text.push('\n');
    }
    text
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
