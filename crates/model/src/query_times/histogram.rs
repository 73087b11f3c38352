//! A histogram of latencies whose counts are exact in two forms: Prometheus' classic buckets, and
//! the exponential ones of its native histograms.
//!
//! The cells are as fine as both forms together: every bound of either form is a bound of a cell.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the classic buckets in nanoseconds, inclusive: three a decade, from 10 µs to
/// 10 s. A further bucket has the longer latencies.
pub const CLASSIC_BOUNDS_NS: [u64; 19] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Schema of the native buckets: each is wider than the one before by 2^(2^-3), 9%.
const SCHEMA: i32 = 3;
/// Native buckets that a power of two has.
const PER_OCTAVE: i32 = 1 << SCHEMA;
/// The bound of the zero bucket, as a power of two of seconds: 0.95 µs.
const ZERO_POWER: i32 = -20;
/// The bound of the last native bucket, as a power of two of seconds: 512 s. Longer latencies are
/// in the bucket above.
const LAST_POWER: i32 = 9;

/// 2^(k/8) in units of 2^-60.
const EIGHTHS: [u128; PER_OCTAVE as usize] = [
    1_152_921_504_606_846_976,
    1_257_269_815_929_830_108,
    1_371_062_456_318_104_877,
    1_495_154_210_581_915_421,
    1_630_477_228_166_597_776,
    1_778_048_025_250_290_523,
    1_938_975_120_585_633_118,
    2_114_467_362_444_183_333,
];

/// Number of cells: the zero bucket, the native buckets, and one more for each classic bound inside
/// one, which are all but 0.5 s, 1 s and 2 s.
const CELLS: usize = 2 + ((LAST_POWER - ZERO_POWER) * PER_OCTAVE) as usize + CLASSIC_BOUNDS_NS.len() - 3;

/// Upper bounds of all cells but the last in nanoseconds, ascending and inclusive.
static BOUNDS_NS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let native = (ZERO_POWER * PER_OCTAVE..=LAST_POWER * PER_OCTAVE).map(native_bound_ns);
    let mut bounds: Vec<u64> = native.chain(CLASSIC_BOUNDS_NS).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
});

/// Returns the upper bound of native bucket number `index`, 2^(index/8) s, in whole nanoseconds.
fn native_bound_ns(index: i32) -> u64 {
    let (power, eighth) = (index.div_euclid(PER_OCTAVE), index.rem_euclid(PER_OCTAVE));
    // At most 10^9 x 2^61, and the power is at least -20.
    ((EIGHTHS[eighth as usize] * 1_000_000_000) >> (60 - power)) as u64
}

/// Counts latencies. One thread at a time adds, while others read.
#[derive(Debug)]
pub(super) struct Cells {
    counts: [AtomicU64; CELLS],
    /// The sum of the latencies in seconds, as the bits of an `f64`.
    sum: AtomicU64,
}

impl Cells {
    pub(super) fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; CELLS], sum: AtomicU64::new(0) }
    }

    /// Counts `latency` `times` times.
    pub(super) fn add(&self, latency: Duration, times: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let count = &self.counts[BOUNDS_NS.partition_point(|bound| *bound < nanos)];
        count.store(count.load(Relaxed).wrapping_add(times), Relaxed);
        let sum = f64::from_bits(self.sum.load(Relaxed)) + latency.as_secs_f64() * times as f64;
        self.sum.store(sum.to_bits(), Relaxed);
    }

    /// Adds the counts of this histogram to `all`.
    pub(super) fn add_to(&self, all: &mut LatencyHistogram) {
        for (total, count) in all.counts.iter_mut().zip(&self.counts) {
            *total = total.wrapping_add(count.load(Relaxed));
        }
        all.sum_s += f64::from_bits(self.sum.load(Relaxed));
    }
}

/// A histogram of latencies, read at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    sum_s: f64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: vec![0; CELLS], sum_s: 0.0 }
    }
}

/// The buckets of a native histogram of Prometheus: bucket number `i` has the latencies above
/// 2^((i-1)/8) s and up to 2^(i/8) s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeBuckets {
    /// Number of latencies up to [`LatencyHistogram::ZERO_THRESHOLD_S`].
    pub zero: u64,
    /// Numbers of the other buckets that have latencies, with their counts, ascending.
    pub buckets: Vec<(i32, u64)>,
}

impl LatencyHistogram {
    /// The schema of [native buckets](Self::native).
    pub const NATIVE_SCHEMA: i32 = SCHEMA;
    /// The bound of the zero bucket of [native buckets](Self::native), in seconds.
    pub const ZERO_THRESHOLD_S: f64 = 1.0 / (1 << -ZERO_POWER) as f64;

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (total, count) in self.counts.iter_mut().zip(&other.counts) {
            *total = total.wrapping_add(*count);
        }
        self.sum_s += other.sum_s;
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the latencies in seconds.
    #[must_use]
    pub fn sum_s(&self) -> f64 {
        self.sum_s
    }

    /// Returns the counts of the classic buckets, not cumulated; the last is that of latencies
    /// above all [bounds](CLASSIC_BOUNDS_NS).
    #[must_use]
    pub fn classic(&self) -> [u64; CLASSIC_BOUNDS_NS.len() + 1] {
        let mut classic = [0; CLASSIC_BOUNDS_NS.len() + 1];
        for (bound, count) in self.cells() {
            classic[CLASSIC_BOUNDS_NS.partition_point(|upper| *upper < bound)] += count;
        }
        classic
    }

    /// Returns the buckets of a native histogram. They are exact, except that latencies above
    /// 512 s are in the bucket whose bound is 558 s.
    #[must_use]
    pub fn native(&self) -> NativeBuckets {
        let (mut index, mut native) =
            (ZERO_POWER * PER_OCTAVE, NativeBuckets { zero: 0, buckets: Vec::new() });
        for (bound, count) in self.cells() {
            while index <= LAST_POWER * PER_OCTAVE && native_bound_ns(index) < bound {
                index += 1;
            }
            match native.buckets.last_mut() {
                _ if count == 0 => {}
                _ if index == ZERO_POWER * PER_OCTAVE => native.zero = count,
                Some((last, total)) if *last == index => *total += count,
                _ => native.buckets.push((index, count)),
            }
        }
        native
    }

    /// Returns the upper bound of each cell in nanoseconds, the last one's without bound, and its
    /// count.
    fn cells(&self) -> impl Iterator<Item = (u64, u64)> {
        BOUNDS_NS.iter().copied().chain([u64::MAX]).zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(nanos: impl IntoIterator<Item = u64>) -> LatencyHistogram {
        let (cells, mut all) = (Cells::new(), LatencyHistogram::default());
        nanos.into_iter().for_each(|nanos| cells.add(Duration::from_nanos(nanos), 1));
        cells.add_to(&mut all);
        all
    }

    #[test]
    fn every_cell_but_the_last_has_a_bound() {
        assert_eq!(BOUNDS_NS.len(), CELLS - 1);
        for power in 0..=LAST_POWER {
            assert_eq!(native_bound_ns(power * PER_OCTAVE), 1_000_000_000 << power);
        }
        assert_eq!(native_bound_ns(ZERO_POWER * PER_OCTAVE), 953);
        let square = |of: f64| of * of;
        for index in 0..=LAST_POWER * PER_OCTAVE {
            let power = square(square(square(native_bound_ns(index) as f64 / 1e9)));
            let error = power / (1u128 << index) as f64 - 1.0;
            assert!(error.abs() < 1e-7, "the eighth power of 2^({index}/8) is {power}");
        }
    }

    proptest! {
        #[test]
        fn latencies_are_in_the_classic_bucket_of_the_next_bound(nanos in prop::collection::vec(0u64..30_000_000_000, 1..50)) {
            let classic = histogram(nanos.iter().copied()).classic();
            let mut below = 0;
            for (count, bound) in classic.iter().zip(CLASSIC_BOUNDS_NS) {
                below += count;
                prop_assert_eq!(below, nanos.iter().filter(|nanos| **nanos <= bound).count() as u64);
            }
            prop_assert_eq!(below + classic[CLASSIC_BOUNDS_NS.len()], nanos.len() as u64);
        }

        #[test]
        fn latencies_are_in_the_native_bucket_between_its_bounds(nanos in 1_000u64..500_000_000_000) {
            let native = histogram([nanos]).native();
            let [(index, 1)] = native.buckets[..] else { panic!("{native:?}") };
            prop_assert!(native_bound_ns(index - 1) < nanos && nanos <= native_bound_ns(index), "{}", index);
        }

        #[test]
        fn buckets_of_both_forms_count_every_latency_once(powers in prop::collection::vec(0u32..64, 0..50)) {
            let all = histogram(powers.iter().map(|power| 1 << power));
            let native = all.native();
            let natively = native.zero + native.buckets.iter().map(|(_, count)| count).sum::<u64>();
            prop_assert_eq!((natively, all.count()), (powers.len() as u64, powers.len() as u64));
            prop_assert_eq!(all.classic().iter().sum::<u64>(), powers.len() as u64);
            prop_assert!(native.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", native);
        }
    }

    #[test]
    fn equal_latencies_added_together_count_and_sum_as_often() {
        let (cells, mut all) = (Cells::new(), LatencyHistogram::default());
        cells.add(Duration::from_millis(250), 4);
        cells.add_to(&mut all);
        cells.add_to(&mut all);
        assert_eq!((all.count(), all.sum_s()), (8, 2.0));
        assert_eq!(all.native(), NativeBuckets { zero: 0, buckets: vec![(-16, 8)] });
    }
}
