//! Measured throughput against the baselines.

use std::time::Duration;

use sherwood_model::Instant;

/// Normalized throughput below which a tenant counts as below its baseline: two percent for noise.
const BELOW: f64 = 0.98;
/// Least share of its baseline's throughput that a tenant counts as reaching with its baseline. A
/// closed loop that two resources bind at nearly the same rate uses neither in full.
const REACH_MIN: f64 = 0.9;
/// Normalized throughput over about two seconds below which a tenant gives no more bytes. The noise
/// of a thousand units in that time is three percent.
const SLOW: f64 = 0.9;
const RECENT_S: f64 = 2.0;
/// Periods in a row for which a tenant must be below its baseline to end the exchange.
const PERIODS: u32 = 3;

/// The throughput of one tenant, period by period.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// Reads and writes of the period so far.
    requests: u64,
    /// Observations of the period so far, and those in which something waited for units.
    seen: u32,
    waiting: u32,
    /// Periods in a row below the baseline.
    below: u32,
    /// Requests per second, averaged over about [`RECENT_S`].
    recent_per_s: f64,
    /// Requests per second of the last period.
    pub(super) requests_per_s: f64,
    /// Throughput of the last period divided by that of the baseline; none if the tenant asked for
    /// less, or its baseline is not known.
    pub(super) normalized: Option<f64>,
    /// Time for which the tenant was below its baseline while it asked for it.
    pub(super) below_time: Duration,
    /// Normalized throughput while the tenant had its baseline, [`REACH_MIN`] to 1.
    reach: f64,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            requests: 0,
            seen: 0,
            waiting: 0,
            below: 0,
            recent_per_s: 0.0,
            requests_per_s: 0.0,
            normalized: None,
            below_time: Duration::ZERO,
            reach: 1.0,
        }
    }
}

impl Watch {
    /// Counts an observation of `time`.
    pub(super) fn add(&mut self, requests: u64, time: Duration, waiting: bool) {
        let seconds = time.as_secs_f64();
        if seconds > 0.0 {
            let part = seconds / (seconds + RECENT_S);
            self.recent_per_s += (requests as f64 / seconds - self.recent_per_s) * part;
        }
        self.requests += requests;
        self.seen += 1;
        self.waiting += u32::from(waiting);
    }

    /// True if the tenant recently served much less than `base` requests per second.
    pub(super) fn is_slow(&self, base: f64) -> bool {
        self.recent_per_s < base * self.reach * SLOW
    }

    /// Ends a period in which the baseline would have served `base` requests per second. True if
    /// the tenant has been below that for long enough to act. If the tenant `has_base`, the period
    /// tells what it reaches with its baseline.
    pub(super) fn end_period(&mut self, period: Duration, base: f64, has_base: bool) -> bool {
        let asks = self.seen > 0 && 2 * self.waiting >= self.seen;
        self.requests_per_s = self.requests as f64 / period.as_secs_f64().max(f64::MIN_POSITIVE);
        let measured = (base > 0.0).then(|| self.requests_per_s / base);
        // One that serves more needs no proof that it asked for it.
        self.normalized = measured.filter(|&normalized| asks || normalized >= 1.0);
        if has_base && let Some(normalized) = self.normalized {
            self.reach = normalized.clamp(REACH_MIN, 1.0);
        }
        let is_below = self.normalized.is_some_and(|normalized| normalized < BELOW * self.reach);
        self.below = if is_below { self.below + 1 } else { 0 };
        if is_below {
            self.below_time += period;
        }
        (self.requests, self.seen, self.waiting) = (0, 0, 0);
        self.below >= PERIODS
    }

    /// Forgets the periods before.
    pub(super) fn restart(&mut self) {
        self.below = 0;
    }
}

/// A return to the baselines, because a tenant was below its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frozen {
    /// The tenant.
    pub(super) index: usize,
    /// Normalized throughput at that time.
    pub(super) normalized: f64,
    pub(super) until: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(20);

    fn periods(requests: [u64; 4], waiting: bool) -> [bool; 4] {
        let mut watch = Watch::default();
        requests.map(|requests| {
            watch.add(requests, PERIOD, waiting);
            watch.end_period(PERIOD, 100.0, false)
        })
    }

    #[test]
    fn tenant_below_its_baseline_is_noticed_after_three_periods_if_it_asked_for_it() {
        assert_eq!(periods([1_900, 1_950, 1_900, 2_000], true), [false, false, true, false]);
        assert_eq!(periods([1_900, 1_900, 1_960, 1_900], true), [false; 4], "0.98 is enough");
        assert_eq!(periods([1_900; 4], false), [false; 4], "it asked for no more");
    }

    #[test]
    fn tenant_is_measured_by_what_it_reached_with_its_baseline() {
        let mut watch = Watch::default();
        let mut period = |requests, has_base| {
            watch.add(requests, PERIOD, true);
            watch.end_period(PERIOD, 100.0, has_base)
        };
        assert!(!period(1_900, true));
        assert_eq!([1_880; 3].map(|requests| period(requests, false)), [false; 3], "0.94 of 0.95");
        assert_eq!([1_840; 3].map(|requests| period(requests, false)), [false, false, true]);
        period(1_000, true);
        assert_eq!(watch.reach, REACH_MIN, "a cold cache is no measure");
    }

    #[test]
    fn throughput_is_normalized_where_it_is_evidence() {
        let mut watch = Watch::default();
        watch.add(3_000, PERIOD, false);
        watch.end_period(PERIOD, 100.0, false);
        assert_eq!((watch.requests_per_s, watch.normalized), (150.0, Some(1.5)));
        watch.add(1_000, PERIOD, false);
        watch.end_period(PERIOD, 100.0, false);
        assert_eq!(watch.normalized, None);
        watch.add(1_000, PERIOD, true);
        watch.end_period(PERIOD, 100.0, false);
        assert_eq!((watch.normalized, watch.below_time), (Some(0.5), PERIOD));
    }
}
