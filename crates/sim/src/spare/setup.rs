//! Setup of a run.

use std::time::Duration;

use sherwood_model::Instant;
use sherwood_policy::replication::TargetLatency;
use thiserror::Error;

use super::policy::{Arbiter, Policy, PolicyError, Search};
use super::scenario::Scenario;
use crate::settings::{RangeError, check};
use crate::world::Imbalance;

/// A run: scenario, policy, seed and settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scenario.
    pub scenario: Scenario,
    /// Name of one of [`policies`](super::policies).
    pub policy: String,
    /// Seed of every draw: runs with one seed have the same pages and the same neighbours under
    /// every policy.
    pub seed: u64,
    /// Settings, which [`Setup::set`] changes by name.
    pub knobs: Knobs,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Knobs {
    /// Pages per second, 0.001 to 10,000.
    pub rate: f64,
    /// Tiers whose servers have neighbours: the second (1), both (2), or the first (3).
    pub pattern: u8,
    /// Number of servers of each tier, 1 to 1,024.
    pub servers: [u16; 2],
    /// Copies of a page and of a query, 1 to 8, in place of a search.
    pub factors: Option<[u8; 2]>,
    /// The rules that give servers to the calls of each tier where copies are searched for, in
    /// place of the policy's.
    pub(super) arbiters: Option<[Arbiter; 2]>,
    /// Servers that a search for tokens looks at, 0 for all.
    pub lookups: u32,
    /// Tokens of a server in each tier, 1 to 1,000,000.
    pub tokens: [u32; 2],
    /// The latency that a search for copies minimises.
    pub target: TargetLatency,
    /// Length of a measuring window of such a search.
    pub window: Duration,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
}

/// The number of copies in each tier, and how many choices were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copies {
    pub(super) factors: [u8; 2],
    /// Without that of ones.
    pub(super) tries: u32,
}

impl Default for Copies {
    fn default() -> Self {
        Self { factors: [1, 1], tries: 0 }
    }
}

/// Reason why a run cannot be set up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SetupError {
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The dispatcher of a tier cannot be built.
    #[error(transparent)]
    Dispatch(#[from] sherwood_dispatch::OptionsError),
    /// The cache cannot be built.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// The rate of pages is out of range.
    #[error(transparent)]
    Rate(#[from] sherwood_workload::ArrivalsError),
    /// The counters of the run, or of its search for copies, do not balance, which is a bug.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// The search for copies has not ended.
    #[error(
        "the search for copies has not ended after {windows} windows of {window_s} s: give a longer \
         window, a higher rate, or r=R1,R2"
    )]
    Search {
        /// Number of measuring windows.
        windows: u32,
        /// Length of each.
        window_s: f64,
    },
    /// A number is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl Setup {
    /// Returns a run with the default settings.
    #[must_use]
    pub fn new(scenario: Scenario, policy: &str, seed: u64) -> Self {
        let knobs = Knobs {
            rate: scenario.rate,
            pattern: 2,
            servers: [36, 12],
            factors: None,
            arbiters: None,
            lookups: 0,
            tokens: scenario.tokens,
            target: TargetLatency::P99,
            window: Duration::from_secs(600),
            warm_up: Duration::from_secs(60),
            measure: Duration::from_secs(600),
        };
        Self { scenario, policy: policy.to_owned(), seed, knobs }
    }

    /// Returns the policy, and checks that every number is in its range.
    pub(super) fn validate(&self) -> Result<Policy, SetupError> {
        let Knobs { rate, pattern, servers, factors, tokens, window, warm_up, measure, .. } = self.knobs;
        check("rate", rate, 1e-3, 1e4, "0.001 to 10000 pages a second")?;
        check("pattern", pattern.into(), 1.0, 3.0, "1 to 3")?;
        for servers in servers {
            check("servers", servers.into(), 1.0, 1_024.0, "1 to 1024 in each tier")?;
        }
        for (factor, servers) in factors.into_iter().flatten().zip(servers) {
            let most = servers.min(8);
            check("r", factor.into(), 1.0, most.into(), "1 to 8 in each tier, and at most one a server")?;
        }
        for tokens in tokens {
            check("tokens", tokens.into(), 1.0, 1e6, "1 to 1000000 a server in each tier")?;
        }
        check("window", window.as_secs_f64(), 1.0, 3_000.0, "1 to 3000 seconds")?;
        check("seconds of warm-up", warm_up.as_secs_f64(), 0.0, 1e5, "0 to 100000")?;
        check("seconds of measurement", measure.as_secs_f64(), 1e-3, 1e5, "0.001 to 100000")?;
        Ok(Policy::by_name(&self.policy)?.with(&self.knobs))
    }

    /// Returns the copies of the settings, or one of each; none if they are to be searched for.
    pub(super) fn copies(&self) -> Result<Option<Copies>, SetupError> {
        if self.validate()?.search == Search::None {
            return Ok(Some(Copies::default()));
        }
        Ok(self.knobs.factors.map(|factors| Copies { factors, tries: 0 }))
    }

    /// Time at which the measurement begins.
    #[must_use]
    pub fn measured_from(&self) -> Instant {
        Instant::ZERO + self.knobs.warm_up
    }

    /// Simulated time of the run, warm-up and measurement.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.knobs.warm_up + self.knobs.measure
    }
}
