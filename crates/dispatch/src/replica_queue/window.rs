//! The latest latencies of a server.

use std::time::Duration;

use sherwood_model::Percent;

/// The latest 1,024 to 2,048 latencies of one kind of call, per key: counts in two halves of which
/// the older is dropped when the newer is full.
///
/// Latencies are counted in buckets of a 32nd of their size, so that a quantile is within 1.6% of
/// the exact one. Both quantiles that estimates need are computed again after every 64 latencies,
/// in one pass over the buckets; before the first 64 they are zero, so that a server of which
/// little is known is taken to be quick. Memory: 3.4 KB.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    halves: [Half; 2],
    /// The half that is being filled.
    current: usize,
    /// Latencies counted since the quantiles were computed.
    fresh: u32,
    /// Percentile of [`low`](Self::low).
    alpha: Percent,
    /// Percentile of [`high`](Self::high).
    beta: Percent,
    low: Duration,
    high: Duration,
}

#[derive(Clone, Debug)]
struct Half {
    counts: Box<[u16; BUCKETS]>,
    total: u16,
}

impl Window {
    pub(crate) fn new(alpha: Percent, beta: Percent) -> Self {
        let half = || Half { counts: Box::new([0; BUCKETS]), total: 0 };
        let zero = Duration::ZERO;
        Self { halves: [half(), half()], current: 0, fresh: 0, alpha, beta, low: zero, high: zero }
    }

    /// Counts the latency of a call, divided by its number of keys.
    pub(crate) fn note(&mut self, latency: Duration) {
        if self.halves[self.current].total == HALF {
            self.current = 1 - self.current;
            let older = &mut self.halves[self.current];
            older.counts.fill(0);
            older.total = 0;
        }
        let half = &mut self.halves[self.current];
        half.counts[bucket_of(latency)] += 1;
        half.total += 1;
        self.fresh += 1;
        if self.fresh == REFRESH {
            self.fresh = 0;
            self.refresh();
        }
    }

    /// Returns the α-quantile of the latencies, as of the latest refresh.
    pub(crate) fn low(&self) -> Duration {
        self.low
    }

    /// Returns the β-quantile of the latencies, as of the latest refresh.
    pub(crate) fn high(&self) -> Duration {
        self.high
    }

    /// Makes [`high`](Self::high) another percentile.
    pub(crate) fn set_beta(&mut self, beta: Percent) {
        self.beta = beta;
        if self.high > Duration::ZERO {
            self.refresh();
        }
    }

    /// Returns the number of latencies in the window.
    pub(crate) fn total(&self) -> u64 {
        self.halves.iter().map(|half| u64::from(half.total)).sum()
    }

    fn refresh(&mut self) {
        let total = self.total();
        let (low, high) = (self.alpha.rank_in(total), self.beta.rank_in(total));
        (self.low, self.high) = (self.value_at(low), self.value_at(high));
    }

    /// Returns the middle of the bucket of the latency that has this place among all, from 1.
    fn value_at(&self, place: u64) -> Duration {
        let [a, b] = &self.halves;
        let mut seen = 0;
        let bucket = a.counts.iter().zip(b.counts.iter()).position(|(a, b)| {
            seen += u64::from(*a) + u64::from(*b);
            seen >= place
        });
        bucket.map_or(Duration::ZERO, middle_of)
    }
}

/// Number of latencies in a full half of a window. Fewer give a high percentile too few latencies
/// above it; more take longer to notice that a server has changed.
const HALF: u16 = 1_024;

/// Number of latencies after which the quantiles are computed again.
const REFRESH: u32 = 64;

/// Buckets of one power of two, and of the latencies below it.
const LINEAR: u64 = 32;

/// Latencies are counted in units of 2^10 ns, about a microsecond.
const UNIT_POWER: u32 = 10;

/// Largest number of units, of about 18 minutes: longer latencies are counted as that.
const UNITS_MAX: u64 = (1 << 30) - 1;

const BUCKETS: usize = 26 * LINEAR as usize;

fn bucket_of(latency: Duration) -> usize {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    let units = (nanos >> UNIT_POWER).min(UNITS_MAX);
    let power = units.checked_ilog2().unwrap_or(0).saturating_sub(LINEAR.ilog2());
    // Above `LINEAR`, the highest bit of `units >> power` is set and counts one power more.
    (u64::from(power) * LINEAR + (units >> power)) as usize
}

fn middle_of(bucket: usize) -> Duration {
    let bucket = bucket as u64;
    let power = (bucket / LINEAR).saturating_sub(1);
    let first = (bucket - power * LINEAR) << power;
    Duration::from_nanos((2 * first + (1 << power)) << (UNIT_POWER - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percent(percent: f64) -> Percent {
        Percent::new("alpha", percent).unwrap()
    }

    fn window() -> Window {
        Window::new(percent(15.0), percent(88.0))
    }

    #[test]
    fn window_of_few_latencies_has_quantiles_of_zero() {
        let mut window = window();
        for _ in 1..REFRESH {
            window.note(Duration::from_secs(5));
            assert_eq!((window.low(), window.high()), (Duration::ZERO, Duration::ZERO));
        }
        window.note(Duration::from_secs(5));
        assert!(window.low() > Duration::from_secs(4));
        assert_eq!(window.low(), window.high());
    }

    #[test]
    fn changed_beta_acts_at_once() {
        let mut window = window();
        (1..=100).for_each(|ms| window.note(Duration::from_millis(ms)));
        let before = window.high();
        window.set_beta(percent(50.0));
        assert!(window.high() < before);
    }

    proptest! {
        #[test]
        fn middle_of_a_latency_bucket_is_within_a_32nd(nanos in 0..1_u64 << 40) {
            let middle = middle_of(bucket_of(Duration::from_nanos(nanos))).as_nanos() as u64;
            prop_assert!(middle.abs_diff(nanos) <= nanos / 32 + (1 << UNIT_POWER), "{nanos}: {middle}");
        }

        #[test]
        fn quantiles_are_those_of_the_latest_latencies(
            micros in proptest::collection::vec(1_000_u64..2_000_000, 1..5_000)
        ) {
            let mut window = window();
            micros.iter().for_each(|&us| window.note(Duration::from_micros(us)));
            let refreshed = micros.len() - micros.len() % REFRESH as usize;
            let full = (refreshed / usize::from(HALF)).saturating_sub(1) * usize::from(HALF);
            // A half that is just full is not dropped before the next latency.
            let start = if refreshed.is_multiple_of(usize::from(HALF)) {
                full.saturating_sub(usize::from(HALF))
            } else {
                full
            };
            let mut kept = micros[start..refreshed].to_vec();
            kept.sort_unstable();
            for (percent, found) in [(15, window.low()), (88, window.high())] {
                let place = (kept.len() * percent).div_ceil(100);
                let expected = place.checked_sub(1).map_or(0, |place| kept[place]);
                let found = found.as_micros() as u64;
                prop_assert!(found.abs_diff(expected) <= expected / 32 + 2, "{expected}: {found}");
            }
        }

        #[test]
        fn any_latency_is_counted(nanos: u64) {
            prop_assert!(bucket_of(Duration::from_nanos(nanos)) < BUCKETS);
        }
    }
}
