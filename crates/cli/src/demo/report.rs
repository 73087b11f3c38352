//! The demo's report, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::share::LoadShare;
use super::time::Times;
use crate::words;

/// The whole demo as one JSON document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) duration_s: f64,
    pub(crate) time_factor: f64,
    pub(crate) slo_bound_ms: f64,
    pub(crate) slo_window_s: f64,
    pub(crate) delta_s: f64,
    /// Share of the load that the runs send.
    pub(crate) load_share: LoadShare,
    pub(crate) runs: Vec<Run>,
    /// Requests a second of the whole load.
    #[serde(skip)]
    request_rate: f64,
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
    /// The reason for which the figures do not count, unless only the user ended the run early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) invalid_because: Option<String>,
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
            load_share: LoadShare::WHOLE,
            runs: Vec::new(),
            request_rate,
        }
    }

    /// Formats the report as text. The runs that do not count come first.
    pub(crate) fn words(&self) -> String {
        let measured = self.runs.iter().any(|run| run.requests > 0);
        let paragraphs = (self.runs.iter().filter_map(|run| self.disclaimer(run)))
            .chain(measured.then(|| self.share()).flatten())
            .chain(measured.then(|| self.story()))
            .chain(self.runs.iter().map(Run::words))
            .chain(self.comparison())
            .chain(measured.then(|| self.caution()).flatten());
        paragraphs
            .map(|paragraph| format!("\n{}\n", words::wrapped(&paragraph, COLUMNS).join("\n")))
            .collect()
    }

    fn story(&self) -> String {
        let each = if self.runs.len() > 1 { " with each policy, under the same load" } else { "" };
        format!(
            "Three hours of a page-rendering service passed in {} seconds{each}. Four times, some of its twenty backends \
             slowed down. The promise was: of all requests, 99% within {:.0} ms.",
            self.duration_s, self.slo_bound_ms
        )
    }

    /// Returns the reason why `run` does not count.
    fn disclaimer(&self, run: &Run) -> Option<String> {
        let reason = run.invalid_because.as_ref()?;
        let subject =
            if self.runs.len() == 1 { "This run".to_owned() } else { format!("The run of {}", run.policy) };
        Some(format!("{subject} does not count: {reason}."))
    }

    /// Returns the first reason why a run does not count.
    pub(crate) fn invalid_because(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.invalid_because.as_deref())
    }

    /// Says which share of the load the runs show, unless it is the whole.
    fn share(&self) -> Option<String> {
        self.load_share.is_partial().then(|| {
            format!(
                "Your machine is busy: this shows {}. The backends are as busy as with the whole, but with fewer requests \
                 the cache is less warm, and the figures are less exact.",
                self.load_share
            )
        })
    }

    /// Returns a warning about runs too short for their figures, with a remedy.
    fn caution(&self) -> Option<String> {
        let window_requests = self.request_rate * self.load_share.ratio() * self.slo_window_s;
        let seconds = self.duration_s * WINDOW_REQUESTS_MIN / window_requests;
        (window_requests < WINDOW_REQUESTS_MIN).then(|| {
            format!(
                "So short a run says little: a window of the promise lasts {:.0} ms and holds about {window_requests:.0} \
                 requests, so that a single slow one breaks it. For figures that mean something, let it run for \
                 --duration {:.0}s or longer.",
                self.slo_window_s * 1e3,
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
        text
    }
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
            invalid_because: None,
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
        Run { requests, incomplete_because, valid: false, ..run("robinhood", 0.0) }
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
        let invalid_because = Some("requests were sent 25 ms late".to_owned());
        let late = Run { late_p99_ms: 25.0, valid: false, invalid_because, ..run("shared-lru", 0.5) };
        let runs = vec![run("equal", 0.2), late, interrupted(10), interrupted(0)];
        insta::assert_snapshot!(report(runs).words());
    }

    #[test]
    fn demo_report_of_a_short_run_has_a_warning() {
        insta::assert_snapshot!(report_of(20, vec![run("robinhood", 0.062)]).words());
        assert_eq!(report_of(45, vec![run("robinhood", 0.062)]).caution(), None);
        let nothing = report_of(20, vec![interrupted(0)]).words();
        assert!(!nothing.contains("So short"), "{nothing}");
    }

    #[test]
    fn demo_report_of_a_share_of_the_load_names_the_share_and_counts_its_requests() {
        let load_share = LoadShare::WHOLE.smaller().and_then(LoadShare::smaller).unwrap();
        let report = Report { load_share, ..report_of(120, vec![run("robinhood", 0.062)]) };
        insta::assert_snapshot!(report.words());
        assert_eq!(serde_json::to_value(&report).unwrap()["load_share"], 0.25);
    }

    #[test]
    fn demo_report_of_a_machine_that_is_too_busy_begins_with_the_reason() {
        let (because, invalid_because) = ("the machine was too busy".to_owned(), Some("it is".to_owned()));
        let run = Run { incomplete_because: Some(because), invalid_because, ..interrupted(0) };
        let report = report(vec![run]);
        assert_eq!(
            report.words(),
            "\nThis run does not count: it is.\n\nrobinhood: nothing was measured: the machine was too busy.\n"
        );
        assert_eq!(report.invalid_because(), Some("it is"));
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
