//! What several seeds say together.

use std::fmt::{self, Display, Write};

use serde::Serialize;
use sherwood_sim::Results;

use super::keep::Kept;

/// A policy in a scenario, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(in crate::sim) struct Line {
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

/// A mean over seeds and the interval that holds the true one with a confidence of 95%; no interval for one seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::sim) struct Estimate {
    pub(in crate::sim) mean: f64,
    pub(in crate::sim) low: Option<f64>,
    pub(in crate::sim) high: Option<f64>,
}

/// One line for each scenario and policy, in the order of the runs.
pub(in crate::sim) fn of(runs: &[Kept]) -> Vec<Line> {
    let same =
        |a: &Kept, b: &Kept| (&a.inputs.scenario, &a.inputs.policy) == (&b.inputs.scenario, &b.inputs.policy);
    runs.chunk_by(same).map(line).collect()
}

fn line(runs: &[Kept]) -> Line {
    let of = |value: fn(&Results) -> f64| {
        Estimate::of(&runs.iter().map(|run| value(&run.outcome.results)).collect::<Vec<_>>())
    };
    Line {
        scenario: runs[0].inputs.scenario.clone(),
        policy: runs[0].inputs.policy.clone(),
        seeds: runs.len(),
        slo_violation_ratio: of(|results| results.slo_violation_ratio),
        p50_ms: of(|results| results.p50_ms),
        p90_ms: of(|results| results.p90_ms),
        p99_ms: of(|results| results.p99_ms),
        p99_max_ms: of(|results| results.p99_max_ms),
        dominant_rbc_mean: of(|results| results.dominant_rbc.mean),
        dominant_rbc_max: of(|results| results.dominant_rbc.max),
        static_equivalent_ratio: of(|results| results.static_equivalent_ratio),
    }
}

/// Student's t for 97.5% and 1, 2, … degrees of freedom.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
/// For more degrees than the table has: a little wide.
const STUDENT_MANY: f64 = 2.2;

impl Estimate {
    /// From one value for each seed, at least one.
    pub(in crate::sim) fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return Self { mean, low: None, high: None };
        }
        let freedom = values.len() - 1;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
        let student = STUDENT.get(freedom - 1).copied().unwrap_or(STUDENT_MANY);
        let half = student * (variance / count).sqrt();
        Self { mean, low: Some(mean - half), high: Some(mean + half) }
    }

    /// The same in other units.
    pub(in crate::sim) fn times(self, factor: f64) -> Self {
        let times = |value: f64| value * factor;
        Self { mean: times(self.mean), low: self.low.map(times), high: self.high.map(times) }
    }
}

/// The mean, with its sign where `+` asks for it, and what may be added and taken away.
impl Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(2);
        if f.sign_plus() && self.mean >= 0.0 {
            f.write_str("+")?;
        }
        write!(f, "{:.decimals$}", self.mean)?;
        self.high.map_or(Ok(()), |high| write!(f, " ± {:.decimals$}", high - self.mean))
    }
}

/// The lines as tables, one for each scenario.
pub(in crate::sim) fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for scenario in lines.chunk_by(|a, b| a.scenario == b.scenario) {
        let _ = writeln!(
            text,
            "{:<16} {:>16} {:>18} {:>18} {:>14} {:>14}",
            scenario[0].scenario, "violations %", "P99 ms", "worst P99 ms", "RBC mean %", "static caches",
        );
        for line in scenario {
            let _ = writeln!(
                text,
                "  {:<14} {:>16} {:>18} {:>18} {:>14} {:>14}",
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
    fn an_interval_is_students() {
        // Mean 3, standard deviation 1.5811, standard error 0.7071, 2.776 of which are 1.963.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(format!("{estimate:.3}"), "3.000 ± 1.963");
        assert_eq!(format!("{:.1}", estimate.times(100.0)), "300.0 ± 196.3");
        assert_eq!(format!("{estimate:+.0} {:+.0}", estimate.times(0.0)), "+3 ± 2 +0 ± 0");
        assert_eq!(Estimate::of(&[7.0]), Estimate { mean: 7.0, low: None, high: None });
        assert_eq!(format!("{}", Estimate::of(&[7.0])), "7.00");
    }
}
