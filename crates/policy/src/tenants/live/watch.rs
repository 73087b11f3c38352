//! Measured throughput against the baselines.

use std::time::Duration;

use sherwood_model::Instant;

use super::demand::Served;

/// Normalized throughput below which a tenant counts as below its baseline: two percent are a
/// margin for noise. Chosen as the tolerance that the guarantee states.
const BELOW: f64 = 0.98;
/// Least share of its baseline's throughput that a tenant counts as reaching with its baseline.
/// Chosen because a closed loop that two resources limit at nearly the same rate uses neither in
/// full.
const REACH_MIN: f64 = 0.9;
/// Normalized throughput over about two seconds below which a tenant gives no more bytes. The noise
/// of a thousand units in that time is three percent. Chosen as three times that.
const SLOW: f64 = 0.9;
const RECENT_S: f64 = 2.0;
/// Number of periods in a row for which a tenant must be below its baseline to end the exchange.
/// Chosen because the window of the counters has then passed once, with the default options.
const PERIODS: u32 = 3;

/// Number of standard errors by which a tenant must be below its baseline to end the exchange.
/// Chosen because chance alone exceeds them once in forty times.
const ERRORS: f64 = 2.0;
/// Number of parts of a period whose throughputs are compared to estimate the variance by chance.
/// Chosen as enough to estimate a variance.
const BLOCKS: u32 = 8;

/// The throughput of one tenant, period by period.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    period: Duration,
    window: Duration,
    /// Reads and writes of the period so far.
    requests: u64,
    /// Observations of the period so far, and those in which something waited for units.
    seen: u32,
    waiting: u32,
    block: Block,
    blocks: Blocks,
    /// Periods in a row below the baseline.
    below: Below,
    /// Periods in a row in which the tenant asked for more.
    asked: u32,
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

/// Requests in a part of a period.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    requests: u64,
    time: Duration,
}

/// Throughputs of the parts of a period.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    count: f64,
    sum: f64,
    squares: f64,
}

/// Periods in a row below the baseline: their number, and sums over them.
#[derive(Clone, Copy, Debug, Default)]
struct Below {
    periods: u32,
    normalized: f64,
    /// Relative variances of the throughputs as measured, and of the baseline's.
    variance: f64,
    base_variance: f64,
}

impl Watch {
    /// Returns the watch of a tenant whose demand is taken from a window.
    pub(super) fn new(period: Duration, window: Duration) -> Self {
        Self {
            period,
            window,
            requests: 0,
            seen: 0,
            waiting: 0,
            block: Block::default(),
            blocks: Blocks::default(),
            below: Below::default(),
            asked: 0,
            recent_per_s: 0.0,
            requests_per_s: 0.0,
            normalized: None,
            below_time: Duration::ZERO,
            reach: 1.0,
        }
    }

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
        self.block.requests += requests;
        self.block.time += time;
        if self.block.time >= self.period / BLOCKS {
            self.blocks.add(std::mem::take(&mut self.block));
        }
    }

    /// True if the tenant recently served much less than `base` requests per second.
    pub(super) fn is_slow(&self, base: f64) -> bool {
        self.recent_per_s < base * self.reach * SLOW
    }

    /// Ends a period of `time`, in which the baseline would have served `base`. True if the tenant
    /// has been below that for long enough to act.
    pub(super) fn end_period(&mut self, time: Duration, base: Served) -> bool {
        let asks = self.seen > 0 && 2 * self.waiting >= self.seen;
        self.asked = if asks { self.asked.saturating_add(1) } else { 0 };
        self.requests_per_s = self.requests as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        let measured = (base.per_s > 0.0).then(|| self.requests_per_s / base.per_s);
        // One that serves more needs no proof that it asked for it.
        self.normalized = measured.filter(|&normalized| asks || normalized >= 1.0);
        let variance = self.blocks.variance();
        match self.normalized.filter(|&normalized| normalized < BELOW * self.reach) {
            Some(normalized) => {
                self.below.add(normalized, variance, base.error);
                self.below_time += time;
            }
            None => self.below = Below::default(),
        }
        (self.requests, self.seen, self.waiting) = (0, 0, 0);
        (self.block, self.blocks) = (Block::default(), Blocks::default());
        self.below.periods >= PERIODS && self.is_evident()
    }

    /// True if the periods below the baseline are that beyond what chance explains.
    fn is_evident(&self) -> bool {
        let Below { periods, normalized, variance, base_variance } = self.below;
        let count = f64::from(periods);
        // Windows that overlap count the same misses.
        let span = self.period.as_secs_f64() * count;
        let windows = (span / self.window.as_secs_f64().max(f64::MIN_POSITIVE)).max(1.0);
        let variance = variance / (count * count) + base_variance / (count * windows);
        normalized / count * (1.0 + ERRORS * variance.sqrt()) < BELOW * self.reach
    }

    /// True if the tenant asked for more in all of the last `time`.
    pub(super) fn asked_for(&self, time: Duration) -> bool {
        self.period.saturating_mul(self.asked) >= time
    }

    /// Notes what the tenant reached with its baseline in a whole window.
    pub(super) fn set_reach(&mut self, normalized: f64) {
        self.reach = normalized.clamp(REACH_MIN, 1.0);
    }

    /// Forgets the periods before.
    pub(super) fn restart(&mut self) {
        self.below = Below::default();
    }
}

impl Below {
    fn add(&mut self, normalized: f64, variance: f64, base_error: f64) {
        self.periods = self.periods.saturating_add(1);
        self.normalized += normalized;
        self.variance += variance;
        self.base_variance += base_error * base_error;
    }
}

impl Blocks {
    fn add(&mut self, block: Block) {
        let rate = block.requests as f64 / block.time.as_secs_f64().max(f64::MIN_POSITIVE);
        self.count += 1.0;
        self.sum += rate;
        self.squares += rate * rate;
    }

    /// Relative variance of the blocks' mean; 0 with fewer than two.
    fn variance(&self) -> f64 {
        let Self { count, sum, squares } = *self;
        if count < 2.0 || sum <= 0.0 {
            return 0.0;
        }
        let scatter = (squares - sum * sum / count).max(0.0) / (count - 1.0);
        scatter * count / (sum * sum)
    }
}

/// A return to the baselines, because a tenant was below its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frozen {
    /// The tenant.
    pub(super) index: usize,
    /// Normalized throughput at that time, and the requests per second that it served.
    pub(super) normalized: f64,
    pub(super) served_per_s: f64,
    /// Time of the return.
    pub(super) at: Instant,
    pub(super) until: Instant,
}

impl Frozen {
    /// True if the tenant was not below its baseline after all: with its baseline it serves
    /// `base_per_s`, measured in a window that began at `from`.
    pub(super) fn is_refuted(&self, from: Instant, base_per_s: f64) -> bool {
        from >= self.at && self.served_per_s >= base_per_s * BELOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(20);

    /// Throughput of a baseline of 100 requests per second.
    const BASE: Served = Served { per_s: 100.0, error: 0.0 };

    fn watch() -> Watch {
        Watch::new(PERIOD, 3 * PERIOD)
    }

    fn periods(requests: [u64; 4], waiting: bool) -> [bool; 4] {
        let mut watch = watch();
        requests.map(|requests| {
            watch.add(requests, PERIOD, waiting);
            watch.end_period(PERIOD, BASE)
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
        let mut watch = watch();
        let mut period = |requests| {
            watch.add(requests, PERIOD, true);
            watch.end_period(PERIOD, BASE)
        };
        assert_eq!([1_880; 3].map(&mut period), [false, false, true], "0.94");
        watch.restart();
        watch.set_reach(0.95);
        let mut period = |requests| {
            watch.add(requests, PERIOD, true);
            watch.end_period(PERIOD, BASE)
        };
        assert_eq!([1_880; 3].map(&mut period), [false; 3], "0.94 of 0.95");
        assert_eq!([1_840; 3].map(&mut period), [false, false, true]);
        watch.set_reach(0.5);
        assert_eq!(watch.reach, REACH_MIN);
    }

    /// Periods until a tenant is noticed that serves these parts of its baseline in turn, the
    /// throughput of which is known with this error.
    fn noticed_after(parts: [f64; 2], error: f64) -> Option<usize> {
        let mut watch = watch();
        (1..=50).find(|_| {
            for block in 0..BLOCKS as usize {
                let requests = 2_000.0 / f64::from(BLOCKS) * parts[block % 2];
                watch.add(requests as u64, PERIOD / BLOCKS, true);
            }
            watch.end_period(PERIOD, Served { error, ..BASE })
        })
    }

    #[test]
    fn tenant_is_noticed_later_the_more_its_figures_may_err() {
        assert_eq!(noticed_after([0.9, 0.9], 0.0), Some(3));
        assert_eq!(noticed_after([0.9, 0.9], 0.04), Some(3), "0.9 and two errors of 0.04 are 0.972");
        assert_eq!(noticed_after([0.9, 0.9], 0.08), Some(10), "errors of 0.08 by ten of three periods");
        assert_eq!(noticed_after([0.6, 1.2], 0.0), Some(9), "a throughput that varies by itself");
        assert_eq!(noticed_after([0.99, 0.99], 0.0), None);
    }

    #[test]
    fn freeze_is_refuted_by_what_the_tenant_serves_with_its_baseline() {
        let frozen = |served_per_s| Frozen {
            index: 0,
            normalized: 0.6,
            served_per_s,
            at: Instant::from_secs(100),
            until: Instant::from_secs(700),
        };
        let after = Instant::from_secs(100);
        assert!(frozen(99.0).is_refuted(after, 100.0));
        assert!(!frozen(97.0).is_refuted(after, 100.0), "it was below");
        assert!(!frozen(99.0).is_refuted(Instant::from_secs(99), 100.0), "it was on its way");
    }

    #[test]
    fn throughput_is_normalized_where_it_is_evidence() {
        let mut watch = watch();
        watch.add(3_000, PERIOD, false);
        watch.end_period(PERIOD, BASE);
        assert_eq!((watch.requests_per_s, watch.normalized), (150.0, Some(1.5)));
        watch.add(1_000, PERIOD, false);
        watch.end_period(PERIOD, BASE);
        assert_eq!(watch.normalized, None);
        watch.add(1_000, PERIOD, true);
        watch.end_period(PERIOD, BASE);
        assert_eq!((watch.normalized, watch.below_time), (Some(0.5), PERIOD));
    }
}
