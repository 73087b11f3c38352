//! Verdict on a run before its end.
//!
//! To know whether a run meets the SLO, it need not be simulated to its end: once more observations
//! have violated the SLO than may in total, the run has failed, and once too few remain to exceed
//! that number, it has succeeded. Most runs that violate the SLO are decided minutes after their
//! first slowdown.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_workload::onerf::ModelError;

use crate::results::Sample;
use crate::setup::{Setup, minutes};

/// Counts of a run's observations of the SLO, so far and to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Observations of the SLO that found requests.
    pub observations: u64,
    /// Observations at which latency was above the SLO's bound.
    pub violations: u64,
    /// Observations that remain until the end of the run.
    pub ahead: u64,
}

/// Certain outcome of a run: the SLO is violated in few enough observations or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The share of violations stays within its limit, whatever the remaining observations are.
    Kept,
    /// The share of violations exceeds its limit, whatever the remaining observations are.
    Broken,
}

impl Tally {
    /// Returns the tally of a run with this many observations in total ([`Setup::observations`])
    /// before the first.
    #[must_use]
    pub fn new(observations: u64) -> Self {
        Self { observations: 0, violations: 0, ahead: observations }
    }

    /// Counts the next `samples`. O(samples).
    pub fn count(&mut self, samples: &[Sample]) {
        let count = |holds: fn(&&Sample) -> bool| samples.iter().filter(holds).count() as u64;
        self.observations += count(|sample| sample.p99_ms.is_some());
        self.violations += count(|sample| sample.violated);
        self.ahead = self.ahead.saturating_sub(samples.len() as u64);
    }

    /// Number of violations allowed among `observations` at this largest share, 0 to 1.
    ///
    /// ```
    /// use sherwood_sim::Tally;
    /// assert_eq!((Tally::allowed(0.003, 2_160), Tally::allowed(0.29, 100)), (6, 29));
    /// ```
    #[must_use]
    pub fn allowed(violation_ratio_max: f64, observations: u64) -> u64 {
        // The share is a float close to the intended value, and so is the product: 0.29 of 100
        // gives 28.999999999999996.
        (violation_ratio_max * observations as f64 * (1.0 + 2.0 * f64::EPSILON)) as u64
    }

    /// The verdict on a run of which at most this share of the observations may violate the SLO, 0
    /// to 1; none while undecided. A completed run (nothing ahead) has one.
    ///
    /// ```
    /// use sherwood_sim::{Tally, Verdict};
    /// let tally = |violations, ahead| Tally { observations: 2_160 - ahead, violations, ahead };
    /// assert_eq!(tally(6, 10).verdict(0.003), None, "a seventh would be too much");
    /// assert_eq!(tally(6, 0).verdict(0.003), Some(Verdict::Kept));
    /// assert_eq!(tally(7, 2_000).verdict(0.003), Some(Verdict::Broken));
    /// ```
    #[must_use]
    pub fn verdict(&self, violation_ratio_max: f64) -> Option<Verdict> {
        let Self { observations, violations, ahead } = *self;
        // An observation without requests is not counted. The worst case is that all remaining
        // observations violate the SLO, the best that all are counted and meet it.
        let allowed = Self::allowed(violation_ratio_max, observations + ahead);
        let within = |violations: u64| violations <= allowed;
        if within(violations + ahead) {
            Some(Verdict::Kept)
        } else if !within(violations) {
            Some(Verdict::Broken)
        } else {
            None
        }
    }
}

impl Setup {
    /// Number of the measurement's observations of the SLO.
    ///
    /// # Errors
    /// If there is no such scenario.
    pub fn observations(&self) -> Result<u64, ModelError> {
        let measured = minutes(self.scenario()?.measure_min);
        let every = Duration::from_secs_f64(self.model.slo().every_s);
        Ok(u64::try_from(measured.as_nanos() / every.as_nanos().max(1)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;
    use proptest::prelude::*;

    #[test]
    fn setup_predicts_the_number_of_slo_observations() {
        for measured in [0.05, 0.25, 0.3] {
            let mut setup = Setup::new("none", "equal", 1);
            (setup.knobs.warmup_min, setup.knobs.measure_min) = (Some(0.02), Some(measured));
            setup.knobs.load_ratio = 0.05;
            let mut world = World::new(&setup).expect("a valid setup");
            world.advance(world.end()).expect("the books balance");
            let observations = setup.observations().expect("a scenario of the model");
            assert_eq!(world.samples().len() as u64, observations, "{measured} minutes");
            let mut tally = Tally::new(observations);
            tally.count(world.samples());
            assert_eq!(tally.ahead, 0);
        }
    }

    #[test]
    fn slo_observation_without_requests_is_not_counted() {
        let sample = |p99_ms, violated| Sample {
            minute: 1.0,
            p50_ms: None,
            p90_ms: None,
            p99_ms,
            violated,
            backends: Vec::new(),
        };
        let samples = [sample(Some(200.0), true), sample(None, false), sample(Some(9.0), false)];
        let mut tally = Tally::new(5);
        tally.count(&samples[..1]);
        assert_eq!(tally, Tally { observations: 1, violations: 1, ahead: 4 });
        tally.count(&samples[1..]);
        assert_eq!(tally, Tally { observations: 2, violations: 1, ahead: 2 });
        assert_eq!(tally.verdict(0.5), None);
        assert_eq!(tally.verdict(0.2), Some(Verdict::Broken), "one of four at best");
        assert_eq!(Tally { observations: 0, violations: 0, ahead: 0 }.verdict(0.0), Some(Verdict::Kept));
    }

    proptest! {
        #[test]
        fn verdict_before_the_end_of_a_run_equals_that_of_the_complete_run(
            run in prop::collection::vec(prop::option::of(any::<bool>()), 1..60), bound in 0.0..1.0_f64,
        ) {
            let tally = |seen: usize| Tally {
                observations: run[..seen].iter().flatten().count() as u64,
                violations: run[..seen].iter().flatten().filter(|&&violated| violated).count() as u64,
                ahead: (run.len() - seen) as u64,
            };
            let whole = tally(run.len());
            let ratio = whole.violations as f64 / whole.observations.max(1) as f64;
            let verdict = whole.verdict(bound).expect("it is over");
            // Within rounding errors of the bound either verdict is correct.
            if (ratio - bound).abs() > 1e-9 {
                prop_assert_eq!(verdict == Verdict::Kept, ratio <= bound);
            }
            for seen in 0..run.len() {
                if let Some(early) = tally(seen).verdict(bound) {
                    prop_assert_eq!(early, verdict, "after {} of {}", seen, run.len());
                }
            }
        }
    }
}
