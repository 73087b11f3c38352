//! The search for the highest rate at which something still holds.

use super::batch::make_all;
use super::flags::{BatchFlags, key_and_value};
use super::inputs::distinct;
use super::keep::Keep;
use super::study::{KeptOf, Run, Study};
use crate::exit::Failure;

/// Runs of a study whose setting `rate` is varied, with the seeds of a command.
pub(super) struct Varied<'a, S> {
    study: S,
    batch: &'a BatchFlags,
    settings: Vec<String>,
    seeds: Vec<u64>,
    keep: Keep,
}

impl<'a, S: Study> Varied<'a, S> {
    /// Returns the runs with the other settings of the command, which may not set the rate.
    pub(super) fn of(study: S, batch: &'a BatchFlags) -> Result<Self, Failure> {
        let settings = batch.flags.all_settings();
        for setting in &settings {
            if key_and_value(setting)?.0 == "rate" {
                return Err(Failure::usage(format!(
                    "--set {setting}: frontier looks for the rate by itself"
                )));
            }
        }
        let (seeds, keep) = (distinct(&batch.seeds), Keep::open(batch.results.as_deref())?);
        Ok(Self { study, batch, settings, seeds, keep })
    }

    /// Returns the runs of a policy at a rate, one for each seed.
    pub(super) fn at(&self, policy: &str, rate: f64) -> Result<Vec<KeptOf<S>>, Failure> {
        let settings = || self.settings.iter().cloned().chain([format!("rate={rate:.3}")]).collect();
        let run = |&seed: &u64| Run::new(&self.study, &self.batch.flags, settings(), policy, seed);
        let runs = self.seeds.iter().map(run).collect::<Result<Vec<_>, _>>()?;
        runs[0].check()?;
        make_all(&self.keep, &runs, self.batch.threads())
    }
}

/// Rates that are tried: a grid in steps of 2%.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// The lowest rate.
    pub(super) least: f64,
    /// Number of rates.
    pub(super) count: u32,
    /// Number of the rate that is tried first.
    pub(super) first: u32,
}

/// Ratio of a rate to the next lower one.
const STEP: f64 = 1.02;
/// Number of rates by which the search goes on until it has passed the highest; doubled each time.
const STRIDE: u32 = 16;

impl Rates {
    /// Returns the rate with a number.
    pub(super) fn rate(&self, number: u32) -> f64 {
        self.least * STEP.powi(number.cast_signed())
    }

    /// Returns the rates from a hundredth to a hundred times `first`, which is tried first.
    pub(super) fn around(first: f64) -> Self {
        let half = (100_f64.ln() / STEP.ln()) as u32;
        Self { least: first / STEP.powi(half.cast_signed()), count: 2 * half, first: half }
    }

    /// Returns the greatest rate that stands, with what was found there, if the lowest does:
    /// doubles its stride until it has passed the greatest, and halves what is between.
    pub(super) fn search<T>(
        &self,
        mut stands: impl FnMut(f64) -> Result<Option<T>, Failure>,
    ) -> Result<Option<(f64, T)>, Failure> {
        // All rates below `low` stand, and none from `high` on.
        let (mut low, mut high, mut stride, mut next) = (0, self.count, STRIDE, self.first);
        let mut greatest = None;
        while low < high {
            let rate = self.rate(next);
            if let Some(found) = stands(rate)? {
                low = next + 1;
                greatest = Some((rate, found));
            } else {
                high = next;
            }
            next = match (low, high) {
                (_, high) if high == self.count => (low + stride).min(self.count - 1),
                (0, _) => high.saturating_sub(stride),
                _ => low + (high - low) / 2,
            };
            stride *= 2;
        }
        Ok(greatest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_the_greatest_rate_that_stands() {
        let rates = Rates { least: 100.0, count: 606, first: 165 };
        for last in [None, Some(0), Some(1), Some(149), Some(165), Some(166), Some(400), Some(605)] {
            let mut tried = 0;
            let found = rates.search(|rate| {
                tried += 1;
                Ok(last.filter(|last| rate <= rates.rate(*last)))
            });
            assert_eq!(found.expect("no failure"), last.map(|last| (rates.rate(last), last)));
            assert!(tried <= 16, "{last:?}: {tried}");
        }
    }

    #[test]
    fn rates_around_one_begin_with_it() {
        let rates = Rates::around(20.0);
        assert!((rates.rate(rates.first) - 20.0).abs() < 1e-9);
        assert!(rates.rate(0) < 0.21 && rates.rate(rates.count - 1) > 1_900.0);
    }
}
