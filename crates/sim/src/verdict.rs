//! A run's outcome before its end.
//!
//! Whoever asks only whether a promise was kept need not watch a run to its end: once more
//! observations violated the SLO than all of them together may, no future mends it, and once those
//! ahead are too few to matter, none spoils it. Most runs in which a promise is broken are over
//! minutes after their first slowdown.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sherwood_workload::onerf::ModelError;

use crate::results::Sample;
use crate::setup::{Setup, minutes};

/// How a run stands: what its observations were, and how many are to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Observations of the SLO that saw requests.
    pub observations: u64,
    /// Those above the bound.
    pub violations: u64,
    /// Observations that are ahead.
    pub ahead: u64,
}

/// What is certain of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The share of violations stays within its bound, whatever comes.
    Kept,
    /// It exceeds the bound, whatever comes.
    Broken,
}

impl Tally {
    /// The tally of a run of so many observations altogether ([`Setup::observations`]) before the
    /// first.
    #[must_use]
    pub fn new(observations: u64) -> Self {
        Self { observations: 0, violations: 0, ahead: observations }
    }

    /// Counts the `samples` that came next. O(samples).
    pub fn count(&mut self, samples: &[Sample]) {
        let count = |holds: fn(&&Sample) -> bool| samples.iter().filter(holds).count() as u64;
        self.observations += count(|sample| sample.p99_ms.is_some());
        self.violations += count(|sample| sample.violated);
        self.ahead = self.ahead.saturating_sub(samples.len() as u64);
    }

    /// How many of so many observations may violate the SLO where this share may, 0 to 1.
    ///
    /// ```
    /// use sherwood_sim::Tally;
    /// assert_eq!((Tally::allowed(0.003, 2_160), Tally::allowed(0.29, 100)), (6, 29));
    /// ```
    #[must_use]
    pub fn allowed(violation_ratio_max: f64, observations: u64) -> u64 {
        // A share is a float next to what was meant, and so is the product: 0.29 of 100 comes to
        // 28.999999999999996.
        (violation_ratio_max * observations as f64 * (1.0 + 2.0 * f64::EPSILON)) as u64
    }

    /// The verdict on a run in which at most this share of the observations may violate the SLO, 0
    /// to 1; none while the future decides. A run that is over (nothing ahead) has one.
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
        // An observation that is ahead may see no request, and is none then. It does most harm by
        // violating, and most good by keeping; so these two are the ends of what can come.
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
    /// Observations of the SLO that the measurement has.
    ///
    /// # Errors
    /// When there is no such scenario.
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
    fn a_setup_knows_how_many_observations_a_run_makes() {
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
    fn silence_is_no_observation() {
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
        fn a_verdict_is_what_the_whole_run_says(
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
            // Where the ratio is the bound but for a float's last digit, either will do.
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
