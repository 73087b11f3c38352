//! Latency of misses, at the precision needed for a percentile of all look-ups.

use std::time::Duration;

use sherwood_model::LatencySketch;

/// Steps (hundredths) in which a miss latency is recorded by quantile.
const STEPS: usize = 100;

/// The latency of a backend's misses by quantile, in steps of a hundredth from 0 to 0.99; 1.6 KB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissLatency {
    /// Latency at each quantile from 0 to 0.99, ascending.
    steps: Vec<Duration>,
}

impl MissLatency {
    /// Reads the quantiles of a sketch; none if it is empty. One pass over its buckets.
    #[must_use]
    pub fn of(sketch: &LatencySketch) -> Option<Self> {
        let steps = sketch.quantiles((0..STEPS).map(|step| step as f64 / STEPS as f64));
        (steps.len() == STEPS).then_some(Self { steps })
    }

    /// The 99th percentile of the latency of misses.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.steps[STEPS - 1]
    }

    /// The 99th percentile of look-ups of which `miss_ratio` miss, if a hit takes no time: that of
    /// the misses at 1 - 0.01 / `miss_ratio`, and zero while at most one look-up in a hundred
    /// misses.
    #[must_use]
    pub fn p99_of_look_ups(&self, miss_ratio: f64) -> Duration {
        if miss_ratio.is_nan() || miss_ratio <= 0.01 {
            return Duration::ZERO;
        }
        let step = ((1.0 - 0.01 / miss_ratio) * STEPS as f64 + 1e-9) as usize;
        self.steps[step.min(STEPS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_of_look_ups_is_a_lower_quantile_of_fewer_misses() {
        let mut sketch = LatencySketch::default();
        assert_eq!(MissLatency::of(&sketch), None);
        (1..=1_000).for_each(|ms| sketch.record(Duration::from_millis(ms)));
        let misses = MissLatency::of(&sketch).expect("counted");
        let near = |found: Duration, ms: f64| (found.as_secs_f64() * 1e3 / ms - 1.0).abs() < 0.01;
        assert!(near(misses.p99(), 991.0) && misses.p99_of_look_ups(1.0) == misses.p99());
        assert!(near(misses.p99_of_look_ups(0.1), 901.0));
        assert!(near(misses.p99_of_look_ups(0.02), 501.0));
        assert_eq!(misses.p99_of_look_ups(0.01), Duration::ZERO);
        assert_eq!(misses.p99_of_look_ups(f64::NAN), Duration::ZERO);
        assert_eq!(misses.p99_of_look_ups(f64::INFINITY), misses.p99());
    }
}
