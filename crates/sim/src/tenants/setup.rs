//! Setup of a run.

use std::time::Duration;

use sherwood_cache::Eviction;
use sherwood_model::units::Span;
use sherwood_workload::tenants::{Decide, Published, Scenario, ScenarioError};
use thiserror::Error;

use super::policy::{BASELINE, Policy, PolicyError};
use crate::settings::{RangeError, check};

/// A run: scenario, policy, seed, scale and settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scenario.
    pub(super) source: Source,
    /// Name of one of [`policies`](super::policies).
    pub policy: String,
    /// Seed of every draw: runs with one seed have the same requests under every policy, in the
    /// same order for each process of a client.
    pub seed: u64,
    /// Factor of keys, cache and rates, above 0 and at most 1.
    pub scale: f64,
    /// Settings, which [`Setup::set`] changes by name.
    pub knobs: Knobs,
}

/// Origin of a scenario.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Published(Published),
    Document(Box<Scenario>),
}

/// Settings of a run; none for what the scenario says.
#[derive(Clone, Debug, PartialEq)]
pub struct Knobs {
    /// Number and kind of decisions.
    pub decide: Option<Decide>,
    /// Time between decisions.
    pub period: Option<Duration>,
    /// Time of the past that decisions take into account.
    pub window: Option<Duration>,
    /// Constant added to measured miss ratios.
    pub salt: Option<f64>,
    /// Least predicted gain for which another division is applied.
    pub apply_over: Option<f64>,
    /// True if unused units are lent to tenants that wait.
    pub lends: bool,
    /// Policy that divides a tenant's cache among its backends; none keeps the first division.
    pub within: Option<String>,
    /// Order in which the cache evicts.
    pub eviction: Eviction,
    /// Share of the keys that miss ratio curves are sampled from, above 0 and at most 1; none for
    /// 1/32 of the full size's keys.
    pub ghost: Option<f64>,
    /// True if the caches are filled before the run as after a long time of the load, and miss
    /// ratio curves cover the whole run; false if the caches start empty and curves fade, as in a
    /// node that has just started.
    pub is_warm: bool,
    /// Time before the measurement.
    pub warm_up: Option<Duration>,
    /// Measured time.
    pub measure: Option<Duration>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            decide: None,
            period: None,
            window: None,
            salt: None,
            apply_over: None,
            lends: false,
            within: None,
            eviction: Eviction::S3Fifo,
            ghost: None,
            is_warm: true,
            warm_up: None,
            measure: None,
        }
    }
}

/// Reason why a run cannot be set up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SetupError {
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The scenario, with the settings, has a value out of its range.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The cache cannot be built.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// The dispatcher cannot be built.
    #[error(transparent)]
    Dispatch(#[from] sherwood_dispatch::OptionsError),
    /// The policy between tenants cannot be built.
    #[error(transparent)]
    Between(#[from] sherwood_policy::tenants::TenantPolicyError),
    /// The control loop between tenants cannot be built.
    #[error(transparent)]
    Control(#[from] sherwood_policy::tenants::TenantControlError),
    /// The policy within tenants cannot be built.
    #[error(transparent)]
    Within(#[from] sherwood_policy::PolicyError),
    /// The two levels cannot be built.
    #[error(transparent)]
    Levels(#[from] sherwood_policy::TwoLevelsError),
    /// A number is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
}

/// Share of the keys that miss ratio curves are sampled from at full size.
const GHOST_RATE: f64 = 1.0 / 32.0;

impl Setup {
    /// Returns a run of a published scenario at a tenth of its size; none if there is no such
    /// scenario.
    #[must_use]
    pub fn published(scenario: &str, policy: &str, seed: u64) -> Option<Self> {
        Some(Self::of(Source::Published(Published::new(scenario)?), 0.1, policy, seed))
    }

    /// Returns a run of a scenario at its full size.
    #[must_use]
    pub fn document(scenario: Scenario, policy: &str, seed: u64) -> Self {
        Self::of(Source::Document(Box::new(scenario)), 1.0, policy, seed)
    }

    fn of(source: Source, scale: f64, policy: &str, seed: u64) -> Self {
        Self { source, policy: policy.to_owned(), seed, scale, knobs: Knobs::default() }
    }

    /// Returns the run of `baseline` that this one is judged against.
    #[must_use]
    pub fn baseline(&self) -> Self {
        Self { policy: BASELINE.to_owned(), ..self.clone() }
    }

    /// Returns the scenario with the settings, scaled.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let mut scenario = match &self.source {
            Source::Published(published) => published.scenario(),
            Source::Document(scenario) => scenario.as_ref().clone(),
        };
        let Knobs { decide, period, window, salt, apply_over, warm_up, measure, .. } = self.knobs;
        let control = &mut scenario.control;
        control.decide = decide.unwrap_or(control.decide);
        control.period = period.map_or(control.period, Span);
        control.window = window.map_or(control.window, Span);
        control.salt = salt.unwrap_or(control.salt);
        control.apply_over = apply_over.unwrap_or(control.apply_over);
        scenario.warm_up = warm_up.map_or(scenario.warm_up, Span);
        scenario.measure = measure.map_or(scenario.measure, Span);
        scenario.scaled(self.scale)
    }

    /// Share of the keys that miss ratio curves are sampled from: as many keys at every scale.
    pub(super) fn ghost_rate(&self) -> f64 {
        self.knobs.ghost.unwrap_or(GHOST_RATE / self.scale).min(1.0)
    }

    /// Returns the scenario and the policy, and checks that every number is in its range.
    pub(super) fn validate(&self) -> Result<(Scenario, Policy), SetupError> {
        let Self { source: _, policy, seed: _, scale, knobs } = self;
        check("scale", *scale, 1e-4, 1.0, "0.0001 to 1")?;
        check("ghost", knobs.ghost.unwrap_or(1.0), 1e-6, 1.0, "0.000001 to 1")?;
        let policy = Policy::by_name(policy)?;
        let scenario = self.scenario();
        scenario.validate()?;
        Ok((scenario, policy))
    }

    /// Simulated time of the run, warm-up and measurement.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let scenario = self.scenario();
        scenario.warm_up.0 + scenario.measure.0
    }
}
