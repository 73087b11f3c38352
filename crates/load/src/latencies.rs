//! A histogram of latencies.

use std::time::Duration;

use histogram::Histogram;

/// A histogram of durations in nanoseconds, up to 2^40 (18 minutes; longer ones count as that),
/// with a relative error below 1/128.
///
/// A percentile is the upper end of its bucket and at most the exact maximum, so a tail is at most
/// 0.8% too long and never too short. Memory: 34 KB, however many durations are recorded. The
/// node's `LatencySketch` has the same buckets but returns their middles: the control loop needs an
/// unbiased estimate, a report an upper bound.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram,
    count: u64,
    max_ns: u64,
}

/// 2^7 buckets for each power of two: a relative error of 1/128.
const GROUPING_POWER: u8 = 7;
const MAX_VALUE_POWER: u8 = 40;

impl Default for Latencies {
    fn default() -> Self {
        let histogram =
            Histogram::new(GROUPING_POWER, MAX_VALUE_POWER).expect("7 is below 40, and 40 at most 64");
        Self { histogram, count: 0, max_ns: 0 }
    }
}

impl Latencies {
    /// Records a duration.
    pub fn record(&mut self, latency: Duration) {
        self.record_ns(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records a duration in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        let bounded = ns.min((1 << MAX_VALUE_POWER) - 1);
        self.histogram.increment(bounded).expect("the value was clamped to the histogram's range");
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.histogram
            .checked_add_assign(&other.histogram)
            .expect("all have one shape, and counts fit 64 bits");
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The number of recorded durations.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The exact maximum; zero if nothing was recorded.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// Returns the duration that `percentile` percent (0 to 100) of the recorded durations do not
    /// exceed; zero if none were recorded.
    ///
    /// # Panics
    /// When `percentile` is not from 0 to 100.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> Duration {
        let bucket =
            self.histogram.quantile_bucket(percentile / 100.0).expect("a percentile is from 0 to 100");
        Duration::from_nanos(bucket.map_or(0, |bucket| bucket.end().min(self.max_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_percentile_is_at_least_the_exact_one_and_at_most_one_128th_more() {
        let mut latencies = Latencies::default();
        (1..=10_000u64).for_each(|us| latencies.record(Duration::from_micros(us)));
        for (percentile, exact_us) in [(50.0, 5_000.0), (99.0, 9_900.0), (99.9, 9_990.0)] {
            let found = latencies.percentile(percentile).as_secs_f64() * 1e6;
            assert!((exact_us..=exact_us * (1.0 + 1.0 / 128.0)).contains(&found), "{percentile}: {found}");
        }
        assert_eq!(latencies.percentile(100.0), Duration::from_micros(10_000));
    }

    #[test]
    fn empty_latency_histogram_has_zeros_and_a_duration_over_the_limit_counts_as_the_longest() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.percentile(99.0), latencies.max()), (Duration::ZERO, Duration::ZERO));
        latencies.record(Duration::MAX);
        assert_eq!(latencies.count(), 1);
        assert!(latencies.percentile(50.0) >= Duration::from_secs(1_000));
    }
}
