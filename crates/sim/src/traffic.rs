//! Who asks for what, when, and of which server.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_model::{BackendId, Instant, PartitionId, SplitMix64};
use sherwood_path::Query;
use sherwood_workload::onerf::{Batch, Model, RequestMix};
use sherwood_workload::{Arrivals, Rng, rng_from_seed};

use crate::key::Key;
use crate::setup::SetupError;

/// The open loop in front of all servers. Its draws come from generators of their own, so that they are the same whatever the
/// servers do.
#[derive(Clone)]
pub(crate) struct Traffic {
    arrivals: Arrivals,
    mix: RequestMix,
    arrival_draws: Rng,
    mix_draws: Rng,
    balance_draws: Rng,
    servers: u64,
    timeout: Duration,
    next: Instant,
}

/// Streams of draws of one seed.
const ARRIVALS: u64 = 1;
const MIX: u64 = 2;
const BALANCE: u64 = 3;

impl Traffic {
    pub(crate) fn new(
        model: &Model,
        profile: &str,
        load_ratio: f64,
        servers: u32,
        seed: u64,
    ) -> Result<Self, SetupError> {
        let rate = model.profile(profile)?.request_rate * load_ratio;
        Ok(Self {
            arrivals: Arrivals::poisson(rate)?,
            mix: model.mix(profile)?,
            arrival_draws: stream(seed, ARRIVALS),
            mix_draws: stream(seed, MIX),
            balance_draws: stream(seed, BALANCE),
            servers: servers.into(),
            timeout: model.timeout(),
            next: Instant::ZERO,
        })
    }

    /// When the next request arrives, after the one before it.
    pub(crate) fn next_arrival(&mut self) -> Instant {
        self.next += self.arrivals.next_gap(&mut self.arrival_draws);
        self.next
    }

    /// The request that arrives now, and the server it is sent to, each equally likely.
    pub(crate) fn next_request(&mut self) -> (usize, Vec<Query<Key>>) {
        let server = ((self.balance_draws.next_u64() >> 32) * self.servers) >> 32;
        let timeout = self.timeout;
        let batches = self.mix.next_request(&mut self.mix_draws);
        let query = |batch: Batch| Query {
            backend: batch.backend,
            partition: partition(batch.backend),
            keys: batch.objects.into_iter().map(Key::new).collect(),
            best_effort: false,
            timeout,
        };
        (server as usize, batches.into_iter().map(query).collect())
    }
}

/// Every backend has one partition, of the same number.
pub(crate) const fn partition(backend: BackendId) -> PartitionId {
    PartitionId(backend.0)
}

/// The generator of a stream of draws of a seed.
pub(crate) fn stream(seed: u64, number: u64) -> Rng {
    let mut mixed = SplitMix64::new(seed);
    mixed.stir(number << 32);
    rng_from_seed(mixed.next_u64())
}
