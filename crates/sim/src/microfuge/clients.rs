//! Clients: streams of requests, in a closed or an open loop.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_model::SplitMix64;
use sherwood_workload::{Arrivals, Rng, ScrambledZipf, deadline_of, uniform};

use super::setup::{Keys, Knobs, Setup, SetupError};
use crate::traffic::stream;

/// Sources of requests: one for each client of a closed loop, or a single one in an open loop.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    streams: Vec<Stream>,
    arrivals: Option<Arrivals>,
    arrival_draws: Rng,
    keys: KeyLaw,
    writes: f64,
}

#[derive(Clone, Debug)]
struct Stream {
    draws: Rng,
    /// Seed of the random bits of the stream's requests.
    times: u64,
    /// Number of requests drawn.
    sent: u64,
}

#[derive(Clone, Debug)]
enum KeyLaw {
    Zipf(ScrambledZipf),
    Uniform { records: u64 },
}

/// A request as its client draws it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) record: u64,
    pub(super) is_write: bool,
    /// Time within which the client needs the answer.
    pub(super) within: Duration,
    /// Random bits from which the service time follows.
    pub(super) draw: u64,
}

/// Number of the stream of draws for arrival times, below those of the clients.
const ARRIVALS: u64 = 0;
/// Number of the first client's stream of draws.
const FIRST_CLIENT: u64 = 1_000;

impl Clients {
    pub(super) fn new(setup: &Setup) -> Result<Self, SetupError> {
        let Knobs { clients, rate, writes, keys, records, .. } = setup.knobs;
        let streams = if rate.is_some() { 1 } else { clients };
        let stream_of = |client: u32| {
            let number = FIRST_CLIENT + u64::from(client);
            let mut draws = stream(setup.seed, number);
            Stream { times: draws.next_u64(), draws, sent: 0 }
        };
        Ok(Self {
            streams: (0..streams).map(stream_of).collect(),
            arrivals: rate.map(Arrivals::poisson).transpose()?,
            arrival_draws: stream(setup.seed, ARRIVALS),
            keys: match keys {
                Keys::Zipf => KeyLaw::Zipf(ScrambledZipf::new(records)),
                Keys::Uniform => KeyLaw::Uniform { records },
            },
            writes,
        })
    }

    /// Number of streams of requests.
    pub(super) fn streams(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Returns the time from one arrival to the next in an open loop; none in a closed one.
    pub(super) fn next_gap(&mut self) -> Option<Duration> {
        self.arrivals.as_mut().map(|arrivals| arrivals.next_gap(&mut self.arrival_draws))
    }

    /// Draws the next request of a stream.
    pub(super) fn next_request(&mut self, stream: u32) -> Drawn {
        let Stream { draws, times, sent } = &mut self.streams[stream as usize];
        *sent += 1;
        let is_write = uniform(draws) < self.writes;
        let record = match &self.keys {
            KeyLaw::Zipf(keys) => keys.draw(draws),
            KeyLaw::Uniform { records } => (uniform(draws) * *records as f64) as u64,
        };
        let draw = SplitMix64::new(*times ^ *sent).next_u64();
        Drawn { record, is_write, within: deadline_of(record), draw }
    }
}
