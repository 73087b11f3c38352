//! Arrivals of requests at the servers.

use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng as _;
use sherwood_model::{BackendId, Demand, Instant, SplitMix64, TenantId};
use sherwood_path::{Query, Staleness};
use sherwood_workload::onerf::{Batch, RequestMix, Times};
use sherwood_workload::trace::requests::Request;
use sherwood_workload::{Arrivals, Rng, rng_from_seed};

use crate::key::Key;
use crate::partitions::Partitions;
use crate::recorded::{NoMore, Recorded};
use crate::sample::Sample;
use crate::setup::{Setup, SetupError};
use crate::sizes::UNCACHEABLE;

/// Open-loop source of the requests of all servers. Its random generators are separate, so that the
/// requests do not depend on the behaviour of the servers.
pub(crate) struct Traffic {
    source: Source,
    balance_draws: Rng,
    tenant_draws: Rng,
    partitions: Partitions,
    servers: u64,
    timeout: Duration,
}

enum Source {
    Drawn(Box<Drawn>),
    Recorded {
        recorded: Box<Recorded>,
        /// Next request to arrive, once it was drawn or read.
        next: Option<Request>,
    },
}

#[derive(Clone)]
struct Drawn {
    arrivals: Arrivals,
    mix: RequestMix,
    arrival_draws: Rng,
    mix_draws: Rng,
    sample: Option<Sample>,
    next: Instant,
}

/// A request that has arrived.
pub(crate) struct Arrived {
    /// Index of the server that the request is sent to.
    pub(crate) server: usize,
    pub(crate) queries: Vec<Query<Key>>,
    /// Sizes of the requested objects in the order of the keys, if given by a trace.
    pub(crate) bytes: Vec<u32>,
}

/// Number of the stream of random draws for arrivals; each kind of draw has a stream of its own.
const ARRIVALS: u64 = 1;
const MIX: u64 = 2;
const BALANCE: u64 = 3;
/// Stream of the draws of tenants, numbered after the streams of the rest of the simulation.
const TENANTS: u64 = 6;

impl Traffic {
    pub(crate) fn new(setup: &Setup, partitions: Partitions, servers: u32) -> Result<Self, SetupError> {
        Ok(Self {
            source: Source::new(setup)?,
            balance_draws: stream(setup.seed, BALANCE),
            tenant_draws: stream(setup.seed, TENANTS),
            partitions,
            servers: servers.into(),
            timeout: setup.model.timeout(),
        })
    }

    /// Returns a copy with the same future requests; none for a trace, which is read once.
    pub(crate) fn copy(&self) -> Option<Self> {
        let Source::Drawn(drawn) = &self.source else { return None };
        Some(Self {
            source: Source::Drawn(drawn.clone()),
            balance_draws: self.balance_draws.clone(),
            tenant_draws: self.tenant_draws.clone(),
            ..*self
        })
    }

    /// Draws the arrival time of the next request.
    pub(crate) fn next_arrival(&mut self) -> Result<Instant, NoMore> {
        match &mut self.source {
            Source::Drawn(drawn) => {
                drawn.next += drawn.arrivals.next_gap(&mut drawn.arrival_draws);
                Ok(drawn.next)
            }
            Source::Recorded { recorded, next } => {
                let (at, request) = recorded.next()?;
                *next = Some(request);
                Ok(at)
            }
        }
    }

    /// Returns the arriving request, its tenant and the server it is sent to, each equally likely.
    pub(crate) fn next_request(&mut self) -> Arrived {
        let server = ((self.balance_draws.next_u64() >> 32) * self.servers) >> 32;
        let tenant = self.draw_tenant();
        let (partitions, timeout) = (self.partitions, self.timeout);
        let query = |backend: BackendId, keys: Vec<Key>| Query {
            backend,
            partition: partitions.of(tenant, backend),
            keys,
            demand: Demand { tenant, ..Demand::default() },
            timeout,
            staleness: Staleness::default(),
            shared: None,
        };
        let (queries, bytes) = match &mut self.source {
            Source::Drawn(drawn) => {
                let batches = drawn.next_request().into_iter();
                let keys =
                    |batch: Batch| query(batch.backend, batch.objects.into_iter().map(Key::new).collect());
                (batches.map(keys).collect(), Vec::new())
            }
            Source::Recorded { next, .. } => {
                let asked = next.take().map(|request| request.queries).unwrap_or_default();
                let objects = asked.iter().flat_map(|query| &query.objects);
                let bytes = objects.map(|object| object.bytes.unwrap_or(UNCACHEABLE)).collect();
                let keys = |objects: &[sherwood_workload::trace::requests::Object]| {
                    objects.iter().map(|object| Key::new(object.id)).collect()
                };
                (asked.iter().map(|asked| query(asked.backend, keys(&asked.objects))).collect(), bytes)
            }
        };
        Arrived { server: server as usize, queries, bytes }
    }

    fn draw_tenant(&mut self) -> TenantId {
        match self.partitions.tenants() {
            1 => TenantId(0),
            tenants => TenantId((((self.tenant_draws.next_u64() >> 32) * u64::from(tenants)) >> 32) as u16),
        }
    }

    /// Name of the replayed trace, if requests come from one.
    pub(crate) fn trace(&self) -> Option<String> {
        match &self.source {
            Source::Drawn(_) => None,
            Source::Recorded { recorded, .. } => Some(recorded.name()),
        }
    }
}

impl Source {
    fn new(setup: &Setup) -> Result<Self, SetupError> {
        let Setup { model, seed, knobs, .. } = setup;
        let rate = setup.profile()?.request_rate * knobs.load_ratio / f64::from(knobs.sample);
        let Some(replay) = model.replay() else {
            return Ok(Self::Drawn(Box::new(Drawn {
                arrivals: Arrivals::poisson(rate)?,
                mix: model.mix(&setup.profile)?,
                arrival_draws: stream(*seed, ARRIVALS),
                mix_draws: stream(*seed, MIX),
                sample: Sample::new(model, &setup.profile, knobs.sample),
                next: Instant::ZERO,
            })));
        };
        let Some(trace) = &setup.trace else {
            return Err(SetupError::NoTrace { file: replay.file.clone() });
        };
        let times = replay.times();
        let arrivals = (times == Times::Rate).then(|| Arrivals::poisson(rate)).transpose()?;
        let (trace, draws) = (Arc::clone(trace), stream(*seed, ARRIVALS));
        let recorded = Recorded::new(trace, knobs.sample, times, arrivals, knobs.load_ratio, draws);
        Ok(Self::Recorded { recorded: Box::new(recorded), next: None })
    }
}

impl Drawn {
    fn next_request(&mut self) -> Vec<Batch> {
        let mut batches = self.mix.next_request(&mut self.mix_draws);
        if let Some(sample) = &self.sample {
            batches.iter_mut().for_each(|batch| sample.stand_in(batch));
        }
        batches
    }
}

/// Returns the generator of a seed's stream of random draws with this number.
pub(crate) fn stream(seed: u64, number: u64) -> Rng {
    let mut mixed = SplitMix64::new(seed);
    mixed.stir(number << 32);
    rng_from_seed(mixed.next_u64())
}
