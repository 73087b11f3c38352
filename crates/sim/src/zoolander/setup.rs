//! Setup of a run.

use std::time::Duration;

use sherwood_dispatch::BalanceChoice;
use sherwood_model::Instant;
use thiserror::Error;

use super::Scenario;
use super::policy::{Policy, PolicyError};
use super::results::BOUNDS_MS;
use crate::settings::{RangeError, check};

/// A run: scenario, policy, seed and settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scenario.
    pub scenario: Scenario,
    /// Name of one of the scenario's [`policies`](Scenario::policies).
    pub policy: String,
    /// Seed of every draw: runs with one seed have the same requests and the same service times
    /// under every policy.
    pub seed: u64,
    /// Settings, which [`Setup::set`] changes by name.
    pub knobs: Knobs,
}

/// Settings of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Length of the day, or of the warm-up.
    pub day: Duration,
    /// Length of the night, or of the measurement, which follows.
    pub night: Duration,
    /// Probability that an access stalls, 0 to 1.
    pub stall: f64,
    /// Standard deviation of the logarithm of service times without stalls, 0 to 3.
    pub sigma: f64,
    /// Share of the stalls that hit all duplicates, 0 to 1.
    pub correlation: f64,
    /// Part of the time for which a node would be busy without duplicates, in the model's scenario.
    pub load: f64,
    /// Rule by which an access that asks one duplicate chooses it.
    pub balance: BalanceChoice,
}

/// Reason why a run cannot be set up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SetupError {
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The dispatcher of the store cannot be built.
    #[error(transparent)]
    Dispatch(#[from] sherwood_dispatch::OptionsError),
    /// The cache cannot be built.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// The rate of requests is out of range.
    #[error(transparent)]
    Rate(#[from] sherwood_workload::ArrivalsError),
    /// A number is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl Setup {
    /// Returns a run with the default settings.
    #[must_use]
    pub fn new(scenario: Scenario, policy: &str, seed: u64) -> Self {
        let (seconds, balance) = match scenario {
            Scenario::Diurnal => ([120, 120], BalanceChoice::default()),
            // The model assumes that any duplicate is asked with the same probability.
            Scenario::Model => ([5, 30], BalanceChoice::Random),
        };
        let [day, night] = seconds.map(Duration::from_secs);
        let knobs = Knobs { day, night, stall: 2e-4, sigma: 0.5, correlation: 0.0, load: 0.1, balance };
        Self { scenario, policy: policy.to_owned(), seed, knobs }
    }

    /// Returns the policy, and checks that every number is in its range.
    pub(super) fn validate(&self) -> Result<Policy, SetupError> {
        let Knobs { day, night, stall, sigma, correlation, load, balance: _ } = self.knobs;
        check("seconds of the day", day.as_secs_f64(), 1e-3, 1e5, "0.001 to 100000")?;
        check("seconds of the night", night.as_secs_f64(), 1e-3, 1e5, "0.001 to 100000")?;
        check("stall", stall, 0.0, 1.0, "0 to 1")?;
        check("sigma", sigma, 0.0, 3.0, "0 to 3")?;
        check("correlation", correlation, 0.0, 1.0, "0 to 1")?;
        check("load", load, 1e-3, 0.9, "0.001 to 0.9")?;
        Ok(Policy::by_name(self.scenario, &self.policy)?)
    }

    /// Time at which the night begins.
    pub(super) fn night_from(&self) -> Instant {
        Instant::ZERO + self.knobs.day
    }

    /// Time after the measurement, in which its accesses end within the greatest bound, or do not.
    pub(super) fn after(&self) -> Duration {
        match self.scenario {
            Scenario::Diurnal => Duration::ZERO,
            Scenario::Model => Duration::from_millis(BOUNDS_MS[BOUNDS_MS.len() - 1]),
        }
    }

    /// Simulated time of the run.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.knobs.day + self.knobs.night + self.after()
    }
}
