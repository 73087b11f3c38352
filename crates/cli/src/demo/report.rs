//! What the demo found, for programs and for people.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::time::Times;

/// The whole demo as one JSON document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) duration_s: f64,
    pub(crate) time_factor: f64,
    pub(crate) slo_bound_ms: f64,
    pub(crate) slo_window_s: f64,
    pub(crate) delta_s: f64,
    pub(crate) runs: Vec<Run>,
}

/// One policy's measured part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) policy: String,
    /// Requests that ended.
    pub(crate) requests: u64,
    /// Keys answered.
    pub(crate) queries: u64,
    /// Share of the observations above the bound.
    pub(crate) slo_violation_ratio: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The largest windowed observation.
    pub(crate) p99_max_ms: f64,
    /// Requests that failed, and keys that did.
    pub(crate) errors: u64,
    /// Processor time of the whole process over wall time and cores.
    pub(crate) cpu_ratio: f64,
    /// P99 of how late requests were sent.
    pub(crate) late_p99_ms: f64,
    /// Whether the load kept its schedule, so that the figures mean something.
    pub(crate) valid: bool,
    /// Share of the keys that were in the cache.
    pub(crate) hit_ratio: f64,
    /// Why the run ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete_because: Option<String>,
}

impl Report {
    pub(crate) fn new(seed: u64, times: &Times, bound: Duration) -> Self {
        Self {
            seed,
            duration_s: times.measured.as_secs_f64(),
            time_factor: times.factor,
            slo_bound_ms: ms(bound),
            slo_window_s: times.window.as_secs_f64(),
            delta_s: times.delta.as_secs_f64(),
            runs: Vec::new(),
        }
    }

    /// What happened, in plain words.
    pub(crate) fn words(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\nThree hours of a page-rendering service passed in {} seconds each. Four times, backends lost most of their\n\
             capacity. The promise was: of all requests, 99% within {:.0} ms.\n",
            self.duration_s, self.slo_bound_ms
        );
        for run in &self.runs {
            let _ = writeln!(text, "{}", run.words());
        }
        if let Some(comparison) = self.comparison() {
            let _ = writeln!(text, "\n{comparison}");
        }
        text
    }

    /// The two most different runs beside each other.
    fn comparison(&self) -> Option<String> {
        let by_ratio = |a: &&Run, b: &&Run| a.slo_violation_ratio.total_cmp(&b.slo_violation_ratio);
        let valid: Vec<_> =
            self.runs.iter().filter(|run| run.valid && run.incomplete_because.is_none()).collect();
        let (best, worst) =
            (valid.iter().copied().min_by(by_ratio)?, valid.iter().copied().max_by(by_ratio)?);
        if best.policy == worst.policy {
            return None;
        }
        let (low, high) = (best.slo_violation_ratio, worst.slo_violation_ratio);
        Some(if low == high {
            format!("{} and {} kept the promise equally often.", best.policy, worst.policy)
        } else if low == 0.0 {
            format!(
                "{} always kept the promise; {} broke it {:.1}% of the time.",
                best.policy,
                worst.policy,
                high * 100.0
            )
        } else {
            let times = high / low;
            format!("{} broke the promise {times:.1} times as often as {}.", worst.policy, best.policy)
        })
    }
}

impl Run {
    fn words(&self) -> String {
        let mut text = format!(
            "{}: the promise was broken in {:.1}% of the observations; P99 {:.0} ms over all, {:.0} ms at its worst \
             ({} requests, {:.1}% of the keys from the cache, {} errors).",
            self.policy,
            self.slo_violation_ratio * 100.0,
            self.p99_ms,
            self.p99_max_ms,
            self.requests,
            self.hit_ratio * 100.0,
            self.errors
        );
        if let Some(reason) = &self.incomplete_because {
            let _ = write!(text, "\n  This run is incomplete: {reason}.");
        }
        if !self.valid {
            let _ = write!(
                text,
                "\n  This run does not count: the load was sent {:.0} ms late at P99; something else keeps the machine busy.",
                self.late_p99_ms
            );
        }
        text
    }
}

/// A duration as milliseconds, rounded to the microsecond.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
