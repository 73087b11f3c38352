//! Worlds that part ways when the warm-up is over.
//!
//! A warm-up has no limits, so runs of one policy, seed and settings are the same world until it
//! ends, whatever the scenario. Whoever wants several of them has to simulate it once and goes on
//! from copies.

use std::sync::Arc;

use sherwood_cache::Heap;
use sherwood_model::Instant;
use thiserror::Error;

use super::World;
use crate::server::Server;
use crate::setup::{Knobs, Setup, SetupError, minutes};

/// Why a world cannot go on as another run's.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ForkError {
    /// The run's beginning is another: fork a world that was built from it, or from what differs in
    /// the scenario alone.
    #[error(
        "cannot go on with scenario {scenario} under {policy} from this world: a run may differ in the scenario, its walk, the depth of its limits and its measured minutes, and differs in more"
    )]
    Beginning {
        /// The run's.
        scenario: String,
        /// The run's.
        policy: String,
    },
    /// The measurement has begun; fork it before.
    #[error(
        "cannot go on from this world after {seconds} s: its measurement has begun, fork it by the end of the warm-up"
    )]
    Measured {
        /// Simulated seconds since the start.
        seconds: u64,
    },
    /// The requests are a trace's, which is read once; simulate each run from its beginning.
    #[error("cannot go on from this world: its requests come from a trace, which is read once; begin anew")]
    Trace,
    /// The run itself is wrong.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Setup {
    /// Whether the two runs are one until their warm-ups end: they differ in the scenario at most,
    /// in which walk it takes, in the depth of its limits and in the measured minutes. Runs of
    /// traces never are: each reads its own.
    ///
    /// # Errors
    /// When there is no such scenario.
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
    /// When the warm-up ends and the measurement begins.
    #[must_use]
    pub fn measured_from(&self) -> Instant {
        self.measured_from
    }

    /// A copy of this world, in which the warm-up is not over yet, that goes on as the run `setup`
    /// would: byte for byte as if it had been simulated from its beginning. O(memory), and as much
    /// memory again.
    ///
    /// # Errors
    /// When the run begins otherwise ([`Setup::shares_warm_up`]), or the measurement has begun.
    pub fn fork(&mut self, setup: &Setup) -> Result<Self, ForkError> {
        setup.validate()?;
        let Some(traffic) = self.traffic.copy() else { return Err(ForkError::Trace) };
        if !self.asked.shares_warm_up(setup)? {
            let (scenario, policy) = (setup.scenario.clone(), setup.policy.clone());
            return Err(ForkError::Beginning { scenario, policy });
        }
        if self.now > self.measured_from {
            return Err(ForkError::Measured { seconds: self.now.as_nanos() / 1_000_000_000 });
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
            measured_from: self.measured_from,
            end: self.measured_from + minutes(scenario.measure_min),
            now: self.now,
            partitions: self.partitions,
            events: self.events.clone(),
            traffic,
            servers: self.servers.iter_mut().map(Server::copy).collect(),
            backends: self.backends.clone(),
            jobs: self.jobs.clone(),
            live: self.live.clone(),
            told: self.told.clone(),
            statistics: self.statistics.clone(),
            recorder: self.recorder.clone(),
            queries: self.queries,
            // Sizes and an early end are those of traces.
            sizes: None,
            echoes: self.echoes,
            echo_draws: self.echo_draws.clone(),
            route_draws: self.route_draws.clone(),
            stop: None,
            setup: own,
        })
    }
}

impl Server {
    fn copy(&mut self) -> Self {
        let Self { partitions, cache, controller, machines, armed, report, resizing } = self;
        Self {
            partitions: *partitions,
            cache: cache.copy(Arc::new(Heap)),
            controller: controller.clone(),
            machines: machines.clone(),
            armed: armed.clone(),
            report: report.clone(),
            resizing: resizing.clone(),
        }
    }
}
