//! Decides from the lateness of requests whether a run goes on.
//!
//! On a busy machine requests are sent after their intended starts, and the run's figures are then
//! those of the machine. [`LatenessWatch`] reads, about once a second, how many requests were sent
//! late. During the warm-up of the first run it may lower the share of the load; afterwards the
//! share is fixed, so that all policies receive the same requests, and a run that can no longer be
//! valid ends. The watch is a pure function of what it is told.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::share::LoadShare;

/// Lateness of the load at P99 above which the machine, not the policy, determines the figures.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(10);
/// Share of late requests above which their P99 is above [`LATE_MAX`].
const LATE_RATIO_MAX: f64 = 0.01;
/// Limits of the time in which requests are counted together, an eighth of the warm-up between
/// them.
const STEP: RangeInclusive<Duration> = Duration::from_millis(400)..=Duration::from_millis(750);
/// Number of the latest steps of the warm-up that are judged together.
const JUDGED: usize = 6;
/// Number of bad steps among the judged ones at which the load is too large. The cold cache makes a
/// step or two bad on an idle machine as well.
const BAD_MIN: usize = 4;
/// Share of late requests in all judged steps above which half the load would be too large too.
const HOPELESS_RATIO: f64 = 0.5;
/// Time after which no smaller share is tried. With the last trial, which takes some five seconds,
/// a user of a busy machine knows the reason within 30 s.
const TRIALS_MAX: Duration = Duration::from_secs(16);
/// Requests of the measured part that may be late above the share that makes it invalid, since the
/// number of requests is known at its end only. Poisson arrivals vary less.
const MARGIN: f64 = 1.1;

/// The numbers of requests that ended so far, and of those that were sent late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LateCounts {
    pub(crate) requests: u64,
    /// Requests sent more than [`LATE_MAX`] after their intended start.
    pub(crate) late: u64,
}

impl LateCounts {
    fn since(self, before: Self) -> Self {
        Self { requests: self.requests - before.requests, late: self.late - before.late }
    }

    fn add(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, late: self.late + other.late }
    }

    /// The share of late requests; 1 when no request ended, since a load that keeps its schedule
    /// has some in each step.
    fn ratio(self) -> f64 {
        if self.requests == 0 { 1.0 } else { self.late as f64 / self.requests as f64 }
    }

    /// Counts a finished request that was sent `late` after its intended start.
    pub(crate) fn record(&mut self, late: Duration) {
        self.requests += 1;
        self.late += u64::from(late > LATE_MAX);
    }
}

/// The limits of one run that its watch needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchOptions {
    /// The share of the load that the run sends.
    pub(crate) share: LoadShare,
    /// True while no run has been measured, so that the share may still be lowered.
    pub(crate) may_lower: bool,
    /// Time since the demo began, at the start of the run.
    pub(crate) tried_for: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// Requests that the measured part is expected to have.
    pub(crate) expected: f64,
}

/// The decision about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The run goes on.
    GoOn,
    /// The run is started again with this share of the load.
    Lower(LoadShare),
    /// The run ends for this reason.
    Stop(String),
}

/// Judges the lateness of one run.
#[derive(Debug)]
pub(crate) struct LatenessWatch {
    options: WatchOptions,
    step: Duration,
    /// End of the current step, from the start of the run.
    next: Duration,
    /// Counts at the end of the last step; none before the first, in which connections are opened
    /// and which does not count.
    before: Option<LateCounts>,
    /// The latest steps of the warm-up, oldest first.
    steps: VecDeque<LateCounts>,
    /// Counts at the end of the warm-up.
    warm: Option<LateCounts>,
}

impl LatenessWatch {
    pub(crate) fn new(options: WatchOptions) -> Self {
        let step = (options.warm_up / 8).clamp(*STEP.start(), *STEP.end());
        let steps = VecDeque::with_capacity(JUDGED);
        Self { options, step, next: step, before: None, steps, warm: None }
    }

    /// Judges the run `elapsed` after its start by the counts of all its requests so far.
    pub(crate) fn judge(&mut self, elapsed: Duration, counts: LateCounts) -> Decision {
        let WatchOptions { warm_up, measured, .. } = self.options;
        if elapsed >= warm_up {
            self.warm.get_or_insert(counts);
        }
        // The last requests end after the measured part.
        if elapsed < self.next || elapsed > warm_up + measured {
            return Decision::GoOn;
        }
        self.next = elapsed + self.step;
        if let Some(warm) = self.warm {
            return self.measured(counts.since(warm));
        }
        if let Some(before) = self.before.replace(counts) {
            self.note(counts.since(before));
        }
        self.warming_up(elapsed)
    }

    fn note(&mut self, step: LateCounts) {
        if self.steps.len() == JUDGED {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
    }

    fn warming_up(&self, elapsed: Duration) -> Decision {
        let bad = self.steps.iter().filter(|step| step.ratio() > LATE_RATIO_MAX).count();
        if bad < BAD_MIN {
            return Decision::GoOn;
        }
        let ratio = self.steps.iter().copied().fold(LateCounts::default(), LateCounts::add).ratio();
        let WatchOptions { share, may_lower, tried_for, .. } = self.options;
        let half = share.smaller().filter(|_| may_lower && tried_for + elapsed < TRIALS_MAX);
        let next = if ratio > HOPELESS_RATIO { half.and_then(LoadShare::smaller) } else { half };
        next.map_or_else(|| self.stop(ratio, "of the warm-up"), Decision::Lower)
    }

    /// Ends a run in which so many requests were late that the P99 of all will be too.
    fn measured(&self, counts: LateCounts) -> Decision {
        if counts.late as f64 <= self.options.expected * LATE_RATIO_MAX * MARGIN {
            return Decision::GoOn;
        }
        self.stop(counts.ratio(), "of the measured part")
    }

    fn stop(&self, ratio: f64, when: &str) -> Decision {
        Decision::Stop(format!(
            "your machine is too busy: with {}, {:.0}% of the requests {when} were sent more than {} ms late, and at most \
             {:.0}% may be; stop other programs and start the demo again",
            self.options.share,
            (ratio * 100.0).ceil(),
            LATE_MAX.as_millis(),
            LATE_RATIO_MAX * 100.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn options(share: LoadShare) -> WatchOptions {
        WatchOptions {
            share,
            may_lower: true,
            tried_for: Duration::ZERO,
            warm_up: S * 100,
            measured: S * 300,
            expected: 30_000.0,
        }
    }

    fn quarter() -> LoadShare {
        LoadShare::WHOLE.smaller().and_then(LoadShare::smaller).unwrap()
    }

    /// Judges once a second a run of 100 requests a second, of which this many are late. Returns
    /// the first decision other than to go on, and its second.
    fn judged(options: WatchOptions, late: impl IntoIterator<Item = u64>) -> Option<(u32, Decision)> {
        let (mut watch, mut counts) = (LatenessWatch::new(options), LateCounts::default());
        (1..).zip(late).find_map(|(second, late)| {
            counts = counts.add(LateCounts { requests: 100, late });
            let decision = watch.judge(S * second, counts);
            (decision != Decision::GoOn).then_some((second, decision))
        })
    }

    #[test]
    fn load_that_keeps_its_schedule_is_shown_whole() {
        assert_eq!(judged(options(LoadShare::WHOLE), [1; 400]), None);
    }

    #[test]
    fn late_requests_of_a_cold_cache_do_not_lower_the_load() {
        let seconds = [100, 100, 60, 2].into_iter().chain([0; 96]);
        assert_eq!(judged(options(LoadShare::WHOLE), seconds), None);
    }

    #[test]
    fn load_that_is_late_in_most_seconds_is_halved() {
        let half = LoadShare::WHOLE.smaller().unwrap();
        assert_eq!(judged(options(LoadShare::WHOLE), [5; 100]), Some((5, Decision::Lower(half))));
        let some = [0, 5, 0, 5, 5, 0, 5].into_iter().chain([0; 93]);
        assert_eq!(judged(options(LoadShare::WHOLE), some), Some((7, Decision::Lower(half))));
    }

    #[test]
    fn load_of_which_most_requests_are_late_is_quartered() {
        assert_eq!(judged(options(LoadShare::WHOLE), [90; 100]), Some((5, Decision::Lower(quarter()))));
        let at_a_quarter = judged(options(quarter()), [90; 100]);
        assert!(matches!(at_a_quarter, Some((5, Decision::Stop(_)))), "{at_a_quarter:?}");
    }

    #[test]
    fn load_of_which_no_request_ends_is_quartered() {
        let mut watch = LatenessWatch::new(options(LoadShare::WHOLE));
        let decisions: Vec<_> =
            (1..=5).map(|second| watch.judge(S * second, LateCounts::default())).collect();
        assert_eq!(decisions[3], Decision::GoOn);
        assert_eq!(decisions[4], Decision::Lower(quarter()));
    }

    #[test]
    fn steps_of_a_short_warm_up_are_shorter() {
        let mut watch = LatenessWatch::new(WatchOptions { warm_up: S * 4, ..options(LoadShare::WHOLE) });
        let late =
            |tenths: u32| LateCounts { requests: 40 * u64::from(tenths), late: 40 * u64::from(tenths) };
        let decided = (1..40).find(|tenths| watch.judge(S * *tenths / 10, late(*tenths)) != Decision::GoOn);
        assert_eq!(decided, Some(25));
    }

    #[test]
    fn run_stops_with_its_reason_when_the_smallest_share_is_late() {
        let eighth = quarter().smaller().unwrap();
        let Some((5, Decision::Stop(reason))) = judged(options(eighth), [30; 100]) else {
            panic!("an eighth is the least");
        };
        assert_eq!(
            reason,
            "your machine is too busy: with an eighth of the load, 30% of the requests of the warm-up were sent more than \
             10 ms late, and at most 1% may be; stop other programs and start the demo again"
        );
    }

    #[test]
    fn later_run_and_late_trial_stop_where_the_first_run_lowers_the_load() {
        let is_stopped = |options| matches!(judged(options, [30; 100]), Some((5, Decision::Stop(_))));
        assert!(is_stopped(WatchOptions { may_lower: false, ..options(LoadShare::WHOLE) }));
        assert!(is_stopped(WatchOptions { tried_for: S * 11, ..options(LoadShare::WHOLE) }));
        assert!(!is_stopped(WatchOptions { tried_for: S * 10, ..options(LoadShare::WHOLE) }));
    }

    #[test]
    fn measured_part_ends_when_more_than_one_percent_of_its_requests_are_late() {
        let options = WatchOptions { warm_up: S * 10, ..options(LoadShare::WHOLE) };
        let late = [0; 10].into_iter().chain([11; 300]);
        let Some((second, Decision::Stop(reason))) = judged(options, late) else { panic!("11% are late") };
        assert_eq!(second, 41, "330 late requests are allowed, in 30 s after the warm-up");
        assert!(reason.contains("11% of the requests of the measured part were sent"), "{reason}");
        let on_time = [0; 10].into_iter().chain([1; 300]);
        assert_eq!(judged(options, on_time), None);
    }
}
