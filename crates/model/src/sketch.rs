//! Latency distributions in fixed memory.
//!
//! An exact percentile needs every value, and a node sees millions a minute. A sketch counts values
//! in buckets whose width grows with the value: memory is fixed, merging is addition and the
//! relative error is bounded.

use std::time::Duration;

use histogram::Histogram;

use crate::Instant;

/// Each power of two of nanoseconds is divided into 2^7 buckets: relative error at most 1/128.
const GROUPING_POWER: u8 = 7;
/// Largest value: 2^40 ns (18 minutes); longer ones are counted as that.
const MAX_VALUE_POWER: u8 = 40;

/// A mergeable distribution of durations: 4,352 counters of 8 bytes, relative error at most 0.8%
/// (1/128), range 0 to 18 minutes, longer values counted as 18 minutes.
///
/// Quantiles err in either direction, at the same ranks as a
/// [`RequestSnapshot`](crate::RequestSnapshot) of the same requests. The load generator's report
/// uses its own `Latencies` instead (upper ends of buckets and the exact maximum), which never
/// underestimate the tail.
///
/// ```
/// use sherwood_model::LatencySketch;
/// use std::time::Duration;
/// let mut sketch = LatencySketch::default();
/// for ms in 1..=1000 {
///     sketch.record(Duration::from_millis(ms));
/// }
/// let p99 = sketch.quantile(0.99).unwrap().as_secs_f64() * 1e3;
/// assert!((p99 / 991.0 - 1.0).abs() < 1.0 / 128.0, "{p99}");
/// assert_eq!(LatencySketch::default().quantile(0.99), None);
/// ```
#[derive(Clone, Debug)]
pub struct LatencySketch {
    buckets: Histogram,
    count: u64,
}

impl LatencySketch {
    /// Largest relative error of a sketch's quantile.
    pub const ERROR: f64 = 1.0 / (1 << GROUPING_POWER) as f64;

    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_times(latency, 1);
    }

    /// Counts one latency `times` times.
    pub fn record_times(&mut self, latency: Duration, times: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min((1 << MAX_VALUE_POWER) - 1);
        self.buckets.add(nanos, times).expect("clamped into the range above");
        self.count += times;
    }

    /// Adds the latencies that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.as_mut_slice().iter_mut().zip(other.buckets.as_slice()) {
            *mine += theirs;
        }
        self.count += other.count;
    }

    /// Removes all counted latencies.
    pub fn clear(&mut self) {
        self.buckets.reset();
        self.count = 0;
    }

    /// Number of latencies counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns each bucket that latencies were counted in, as its ends and their number, in
    /// ascending order. O(buckets).
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, Duration, u64)> {
        let counted = self.buckets.iter().filter(|bucket| bucket.count() > 0);
        let nanos = Duration::from_nanos;
        counted.map(move |bucket| (nanos(bucket.start()), nanos(bucket.end()), bucket.count()))
    }

    /// The latency at `quantile` (0 to 1): the middle of the bucket that holds element
    /// floor(quantile x count) of the sorted values; none if nothing was counted. O(buckets).
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = rank(quantile, self.count)?;
        let mut below = 0;
        let found = self.buckets.as_slice().iter().position(|count| {
            below += count;
            below > rank
        });
        found.map(middle)
    }

    /// The latencies at `quantiles`, each 0 to 1 and in ascending order, in one pass over the
    /// buckets; empty if nothing was counted.
    #[must_use]
    pub fn quantiles(&self, quantiles: impl IntoIterator<Item = f64>) -> Vec<Duration> {
        let mut ranks = quantiles.into_iter().map_while(|quantile| rank(quantile, self.count)).peekable();
        let (mut below, mut found) = (0, Vec::new());
        for bucket in self.buckets.iter() {
            below += bucket.count();
            while ranks.next_if(|&rank| below > rank).is_some() {
                found.push(Duration::from_nanos(bucket.start().midpoint(bucket.end())));
            }
            if ranks.peek().is_none() {
                break;
            }
        }
        found
    }
}

/// Middle of the bucket with index `bucket`. The first 2^[`GROUPING_POWER`] buckets are one
/// nanosecond wide; each further power of two has as many buckets.
fn middle(bucket: usize) -> Duration {
    let group = bucket as u64 >> GROUPING_POWER;
    let Some(width_power) = group.checked_sub(1) else { return Duration::from_nanos(bucket as u64) };
    let (width, within) = (1 << width_power, bucket as u64 % (1 << GROUPING_POWER));
    let start: u64 = ((1 << GROUPING_POWER) + within) * width;
    Duration::from_nanos(start.midpoint(start + width - 1))
}

impl Default for LatencySketch {
    fn default() -> Self {
        let buckets =
            Histogram::new(GROUPING_POWER, MAX_VALUE_POWER).expect("constants within the library's range");
        Self { buckets, count: 0 }
    }
}

/// The latencies of the last `span`, in a ring of six sketches (35 KB each, allocated on first
/// use). Expiry is by sixths of the span, so a quantile covers between five sixths of the span and
/// the whole of it.
#[derive(Clone, Debug)]
pub struct LatencyWindow {
    slot_nanos: u64,
    slots: [Option<(u64, LatencySketch)>; Self::SLOTS],
}

impl LatencyWindow {
    const SLOTS: usize = 6;

    /// Returns a window of latencies without any, which covers `span`.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        let slot_nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX) / Self::SLOTS as u64;
        Self { slot_nanos: slot_nanos.max(1), slots: Default::default() }
    }

    /// Counts `latency`, measured at `now`, `times` times.
    pub fn record_times(&mut self, now: Instant, latency: Duration, times: u64) {
        let number = now.as_nanos() / self.slot_nanos;
        let slot = &mut self.slots[(number % Self::SLOTS as u64) as usize];
        let (slot_number, sketch) = slot.get_or_insert_with(|| (number, LatencySketch::default()));
        if *slot_number != number {
            *slot_number = number;
            sketch.clear();
        }
        sketch.record_times(latency, times);
    }

    /// Merges the latencies measured within the window's span before `now`.
    #[must_use]
    pub fn sketch(&self, now: Instant) -> LatencySketch {
        let newest = now.as_nanos() / self.slot_nanos;
        let mut merged = LatencySketch::default();
        for (number, sketch) in self.slots.iter().flatten() {
            if *number <= newest && newest - number < Self::SLOTS as u64 {
                merged.merge(sketch);
            }
        }
        merged
    }
}

/// Index of the `quantile` of `count` sorted values: floor(quantile x count), at most `count - 1`;
/// none if `count` is 0.
pub(crate) fn rank(quantile: f64, count: u64) -> Option<u64> {
    let last = count.checked_sub(1)?;
    Some(edge(quantile, count).min(last))
}

/// Returns floor(quantile x count), with a tolerance of 1e-6 for decimal fractions such as 0.985.
pub(crate) fn edge(quantile: f64, count: u64) -> u64 {
    (quantile.clamp(0.0, 1.0) * count as f64 + 1e-6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantile_of_a_sketch_is_within_the_stated_error(mut nanos in prop::collection::vec(0u64..1 << 40, 1..200), quantile in 0.0..1.0) {
            let mut sketch = LatencySketch::default();
            nanos.iter().for_each(|&n| sketch.record(Duration::from_nanos(n)));
            nanos.sort_unstable();
            let exact = nanos[rank(quantile, nanos.len() as u64).unwrap() as usize] as f64;
            let got = sketch.quantile(quantile).unwrap().as_nanos() as f64;
            prop_assert!((got - exact).abs() <= exact * LatencySketch::ERROR, "{} for {}", got, exact);
            let each = [0.0, quantile, quantile, 1.0];
            let one_by_one: Vec<_> = each.iter().filter_map(|&quantile| sketch.quantile(quantile)).collect();
            prop_assert_eq!(sketch.quantiles(each), one_by_one, "in one pass");
        }

        #[test]
        fn merged_sketches_equal_one_sketch_of_all_values(a in prop::collection::vec(0u64..1 << 40, 0..50), b in prop::collection::vec(0u64..1 << 40, 1..50)) {
            let sketch_of = |values: &[u64]| {
                let mut sketch = LatencySketch::default();
                values.iter().for_each(|&n| sketch.record(Duration::from_nanos(n)));
                sketch
            };
            let mut merged = sketch_of(&a);
            merged.merge(&sketch_of(&b));
            let together = sketch_of(&[a, b].concat());
            prop_assert_eq!(merged.count(), together.count());
            prop_assert_eq!(merged.quantile(0.9), together.quantile(0.9));
        }
    }

    #[test]
    fn middle_of_each_bucket_equals_that_of_the_histogram_library() {
        let sketch = LatencySketch::default();
        for (number, bucket) in sketch.buckets.iter().enumerate() {
            let expected = bucket.start().midpoint(bucket.end());
            assert_eq!(middle(number), Duration::from_nanos(expected), "bucket {number}");
        }
    }

    #[test]
    fn latency_older_than_the_span_leaves_the_window() {
        let mut window = LatencyWindow::new(Duration::from_secs(60));
        window.record_times(Instant::from_secs(5), Duration::from_millis(9), 3);
        window.record_times(Instant::from_secs(40), Duration::from_millis(1), 1);
        assert_eq!(window.sketch(Instant::from_secs(59)).count(), 4);
        assert_eq!(window.sketch(Instant::from_secs(60)).count(), 1);
        window.record_times(Instant::from_secs(65), Duration::from_millis(1), 1);
        assert_eq!(window.sketch(Instant::from_secs(65)).count(), 2);
        assert_eq!(window.sketch(Instant::from_secs(1000)).count(), 0);
    }

    #[test]
    fn latency_above_the_range_of_a_sketch_counts_as_its_largest_value() {
        let mut sketch = LatencySketch::default();
        sketch.record(Duration::MAX);
        assert!(sketch.quantile(0.5).unwrap() > Duration::from_secs(1090));
    }
}
