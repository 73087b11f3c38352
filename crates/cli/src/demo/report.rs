//! The demo's report, as JSON and as text.

use std::collections::BTreeMap;
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
    /// Average number of requests in a window of the SLO.
    #[serde(skip)]
    window_requests: f64,
}

/// The measured part of one policy's run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) policy: String,
    /// Finished requests.
    pub(crate) requests: u64,
    /// Keys answered.
    pub(crate) queries: u64,
    /// Share of the SLO's observations above its bound.
    pub(crate) slo_violation_ratio: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Largest P99 at an observation of the SLO, in its window.
    pub(crate) p99_max_ms: f64,
    /// Failed requests and failed keys.
    pub(crate) errors: u64,
    /// Processor time of the whole process divided by wall time and cores.
    pub(crate) cpu_ratio: f64,
    /// Processor time of the embedded stores' threads divided by wall time: 1 is one core.
    pub(crate) store_cpu_ratio: f64,
    /// P99 of the delay with which requests were sent, after their intended start.
    pub(crate) late_p99_ms: f64,
    /// True when the load kept its schedule, so that the figures are meaningful.
    pub(crate) valid: bool,
    /// Share of the keys found in the cache.
    pub(crate) hit_ratio: f64,
    /// P99 of the latency of keys found in the cache, by backend: from a request's arrival at the
    /// node to the end of its lookup.
    pub(crate) hit_p99_ms: BTreeMap<String, f64>,
    /// The reason for which the run ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete_because: Option<String>,
}

impl Report {
    /// Creates a report without runs, for a load of `request_rate` requests a second.
    pub(crate) fn new(seed: u64, times: &Times, bound: Duration, request_rate: f64) -> Self {
        Self {
            seed,
            duration_s: times.measured.as_secs_f64(),
            time_factor: times.factor,
            slo_bound_ms: ms(bound),
            slo_window_s: seconds(times.window),
            delta_s: seconds(times.delta),
            runs: Vec::new(),
            window_requests: request_rate * times.window.as_secs_f64(),
        }
    }

    /// Formats the report as text.
    pub(crate) fn words(&self) -> String {
        let each = if self.runs.len() > 1 { " with each policy, under the same load" } else { "" };
        let story = format!(
            "Three hours of a page-rendering service passed in {} seconds{each}. Four times, some of its twenty backends \
             slowed down. The promise was: of all requests, 99% within {:.0} ms.",
            self.duration_s, self.slo_bound_ms
        );
        let runs = self.runs.iter().map(Run::words);
        let paragraphs = std::iter::once(story).chain(runs).chain(self.comparison()).chain(self.caution());
        paragraphs.map(|paragraph| format!("\n{}\n", wrapped(&paragraph))).collect()
    }

    /// Returns a warning about runs too short for their figures, with a remedy.
    fn caution(&self) -> Option<String> {
        let measured = self.runs.iter().any(|run| run.requests > 0);
        let seconds = self.duration_s * WINDOW_REQUESTS_MIN / self.window_requests;
        (measured && self.window_requests < WINDOW_REQUESTS_MIN).then(|| {
            format!(
                "So short a run says little: a window of the promise lasts {:.0} ms and holds about {:.0} requests, so that \
                 a single slow one breaks it. For figures that mean something, let it run for --duration {:.0}s or longer.",
                self.slo_window_s * 1e3,
                self.window_requests,
                (seconds / 10.0).ceil() * 10.0
            )
        })
    }

    /// Compares the policies of the runs with the fewest and the most violations of the SLO.
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
        if self.requests == 0 {
            let reason = self.incomplete_because.as_deref().unwrap_or("no request ended");
            return format!("{}: nothing was measured: {reason}.", self.policy);
        }
        let mut text = format!(
            "{}: the promise was broken in {:.1}% of the observations. P99 was {:.0} ms over the whole time and {:.0} ms \
             in the worst window. {} requests, {:.1}% of the keys from the cache, {} errors.",
            self.policy,
            self.slo_violation_ratio * 100.0,
            self.p99_ms,
            self.p99_max_ms,
            self.requests,
            self.hit_ratio * 100.0,
            self.errors
        );
        if let Some(reason) = &self.incomplete_because {
            let _ = write!(text, " This run is incomplete: {reason}.");
        }
        if !self.valid {
            let _ = write!(
                text,
                " This run does not count: the load was sent {:.0} ms late at P99. Something else keeps this machine \
                 busy; stop it and try again.",
                self.late_p99_ms
            );
        }
        text
    }
}

/// Wraps `text` to the width of a terminal.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut columns = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if columns > 0 && columns + 1 + width > COLUMNS {
            lines.push('\n');
            columns = 0;
        } else if columns > 0 {
            lines.push(' ');
            columns += 1;
        }
        lines.push_str(word);
        columns += width;
    }
    lines
}

/// Requests in a window below which its P99 is just the slowest of them.
const WINDOW_REQUESTS_MIN: f64 = 100.0;

/// Width of the narrowest terminal in use.
const COLUMNS: usize = 80;

/// Converts a duration to seconds, rounded to the microsecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

/// Converts a duration to milliseconds, rounded to the microsecond.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, slo_violation_ratio: f64) -> Run {
        Run {
            policy: policy.to_owned(),
            requests: 60_000,
            queries: 1_234_567,
            slo_violation_ratio,
            p50_ms: 12.345,
            p99_ms: 98.7,
            p99_max_ms: 321.0,
            errors: 3,
            cpu_ratio: 0.42,
            store_cpu_ratio: 0.21,
            late_p99_ms: 1.25,
            valid: true,
            hit_ratio: 0.875,
            hit_p99_ms: BTreeMap::from([("b01".to_owned(), 0.5)]),
            incomplete_because: None,
        }
    }

    fn report(runs: Vec<Run>) -> Report {
        report_of(300, runs)
    }

    fn report_of(seconds: u64, runs: Vec<Run>) -> Report {
        let times = Times::of(Duration::from_secs(seconds));
        Report { runs, ..Report::new(1, &times, Duration::from_millis(150), 400.0) }
    }

    fn interrupted(requests: u64) -> Run {
        let incomplete_because = Some("stopped before its end".to_owned());
        Run { requests, incomplete_because, ..run("robinhood", 0.0) }
    }

    #[test]
    fn demo_json_report_has_the_documented_fields() {
        let report = report(vec![run("shared-lru", 0.3), interrupted(10)]);
        insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    }

    #[test]
    fn demo_report_of_one_run_matches_its_snapshot() {
        insta::assert_snapshot!(report(vec![run("robinhood", 0.062)]).words());
    }

    #[test]
    fn demo_report_of_two_runs_ends_with_a_comparison() {
        insta::assert_snapshot!(report(vec![run("shared-lru", 0.3), run("robinhood", 0.06)]).words());
    }

    #[test]
    fn demo_report_of_an_invalid_run_gives_its_reason_and_no_comparison_with_it() {
        let late = Run { late_p99_ms: 25.0, valid: false, ..run("shared-lru", 0.5) };
        let runs = vec![run("equal", 0.2), late, interrupted(10), interrupted(0)];
        insta::assert_snapshot!(report(runs).words());
    }

    #[test]
    fn demo_report_of_a_short_run_has_a_warning() {
        insta::assert_snapshot!(report_of(20, vec![run("robinhood", 0.062)]).words());
        assert_eq!(report_of(45, vec![run("robinhood", 0.062)]).caution(), None);
        assert_eq!(report_of(20, vec![interrupted(0)]).caution(), None, "nothing was measured");
    }

    #[test]
    fn comparison_with_a_run_without_violations_has_no_quotient() {
        let compared = |ratios: [f64; 2]| report(vec![run("a", ratios[0]), run("b", ratios[1])]).comparison();
        assert_eq!(
            compared([0.0, 0.25]).unwrap(),
            "a always kept the promise; b broke it 25.0% of the time."
        );
        assert_eq!(compared([0.1, 0.1]).unwrap(), "a and b kept the promise equally often.");
    }
}
