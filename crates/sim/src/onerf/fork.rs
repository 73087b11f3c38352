//! Runs forked from a common warm-up.
//!
//! A warm-up has no limits, so runs of the same policy, seed and settings are identical until it
//! ends, whatever the scenario. The warm-up of several such runs is simulated once, and each run
//! continues with a copy.

use std::sync::Arc;

use sherwood_model::Instant;
use thiserror::Error;

use super::{OneRf, World};
use crate::setup::{Knobs, Setup, SetupError, minutes};
use crate::world::Node;

/// Reason for which a simulation cannot be continued as another run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ForkError {
    /// The run's beginning differs: fork a simulation built from its setup, or from one that
    /// differs only in the scenario.
    #[error(
        "cannot go on with scenario {scenario} under {policy} from this world: a run may differ in the scenario, its walk, the depth of its limits and its measured minutes, and differs in more"
    )]
    Beginning {
        /// Scenario of the run.
        scenario: String,
        /// Policy of the run.
        policy: String,
    },
    /// The measurement has begun; fork before it begins.
    #[error(
        "cannot go on from this world after {seconds} s: its measurement has begun, fork it by the end of the warm-up"
    )]
    Measured {
        /// Simulated seconds since the start.
        seconds: u64,
    },
    /// The requests come from a trace, which is read once; simulate each run from its beginning.
    #[error("cannot go on from this world: its requests come from a trace, which is read once; begin anew")]
    Trace,
    /// The run's setup is invalid.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Setup {
    /// True if the two runs are identical until their warm-ups end: they differ at most in the
    /// scenario, its walk, the depth of its limits and the measured minutes. Always false for runs
    /// of traces, each of which reads its own.
    ///
    /// # Errors
    /// If there is no such scenario.
    pub fn shares_warm_up(&self, other: &Self) -> Result<bool, SetupError> {
        let Self { model, scenario: _, profile, policy, seed, knobs, trace } = self;
        let Knobs { walk, limit_depth, measure_min, .. } = knobs;
        let alike = Knobs {
            walk: *walk,
            limit_depth: *limit_depth,
            measure_min: *measure_min,
            ..other.knobs.clone()
        };
        let same = Arc::ptr_eq(model, &other.model)
            && (profile, policy, seed, knobs) == (&other.profile, &other.policy, &other.seed, &alike);
        let drawn = trace.is_none() && other.trace.is_none();
        Ok(same && drawn && self.scenario()?.warmup_min == other.scenario()?.warmup_min)
    }
}

impl World {
    /// End of the warm-up and beginning of the measurement.
    #[must_use]
    pub fn measured_from(&self) -> Instant {
        self.family.measured_from
    }

    /// Returns a copy that continues as the run of `setup`, byte for byte as if that had been
    /// simulated from its beginning. The warm-up of this simulation must not be over. O(memory)
    /// time and additional memory.
    ///
    /// # Errors
    /// If the run's beginning differs ([`Setup::shares_warm_up`]) or the measurement has begun.
    pub fn fork(&mut self, setup: &Setup) -> Result<Self, ForkError> {
        let family = self.family.fork(setup)?;
        if self.now > family.measured_from {
            return Err(ForkError::Measured { seconds: self.now.as_nanos() / 1_000_000_000 });
        }
        let scenario = setup.scenario().map_err(SetupError::from)?;
        Ok(Self {
            now: self.now,
            end: family.measured_from + minutes(scenario.measure_min),
            events: self.events.clone(),
            nodes: self.nodes.iter_mut().map(Node::copy).collect(),
            servers: self.servers.clone(),
            live: self.live.clone(),
            route_draws: self.route_draws.clone(),
            began: self.began,
            ended: self.ended,
            queries: self.queries,
            family,
        })
    }
}

impl OneRf {
    fn fork(&self, setup: &Setup) -> Result<Self, ForkError> {
        setup.validate()?;
        let Some(traffic) = self.traffic.copy() else { return Err(ForkError::Trace) };
        if !self.asked.shares_warm_up(setup)? {
            let (scenario, policy) = (setup.scenario.clone(), setup.policy.clone());
            return Err(ForkError::Beginning { scenario, policy });
        }
        let scenario = setup.scenario().map_err(SetupError::from)?;
        let depth = setup.limit_depth().map_err(SetupError::from)?;
        let mut own = self.setup.clone();
        own.scenario.clone_from(&setup.scenario);
        own.knobs.walk = setup.knobs.walk;
        own.knobs.limit_depth = setup.knobs.limit_depth;
        own.knobs.measure_min = setup.knobs.measure_min;
        Ok(Self {
            asked: setup.clone(),
            limits: scenario.limits(own.knobs.walk),
            depth,
            hit_latency: self.hit_latency,
            timeout: self.timeout,
            measured_from: self.measured_from,
            partitions: self.partitions,
            traffic,
            backends: self.backends.clone(),
            reports: self.reports.clone(),
            told: self.told.clone(),
            statistics: self.statistics.clone(),
            exchange: self.exchange.clone(),
            recorder: self.recorder.clone(),
            // Only traces have sizes and end early.
            sizes: None,
            echoes: self.echoes,
            echo_draws: self.echo_draws.clone(),
            stop: None,
            setup: own,
        })
    }
}
