//! Clients: streams of requests, in a closed or an open loop.

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_model::{Instant, SplitMix64, TenantId};
use sherwood_workload::{Arrivals, Rng, ScrambledZipf, deadline_between, deadline_of, uniform};

use super::setup::{Keys, Knobs, Setup, SetupError, Tenants};
use crate::traffic::stream;

/// Sources of requests: one for each client of a closed loop, or one for each tenant in an open
/// loop.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    streams: Vec<Stream>,
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
    tenant: TenantId,
    /// Times of the requests in an open loop; none in a closed one.
    arrivals: Option<Load>,
    /// Range of the deadlines of a tenant in a hurry; none for the paper's deadlines.
    tight: Option<(Duration, Duration)>,
}

/// Arrivals of an open loop.
#[derive(Clone, Debug)]
struct Load {
    arrivals: Arrivals,
    draws: Rng,
    /// True if `arrivals` are those of a burst, of which a part comes outside of bursts.
    bursts: bool,
}

#[derive(Clone, Debug)]
enum KeyLaw {
    Zipf(ScrambledZipf),
    Uniform { records: u64 },
}

/// A request as its client draws it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) tenant: TenantId,
    pub(super) record: u64,
    pub(super) is_write: bool,
    /// Time within which the client needs the answer.
    pub(super) within: Duration,
    /// Random bits from which the service time follows.
    pub(super) draw: u64,
}

/// Number of the stream of draws for arrival times, below those of the clients.
const ARRIVALS: u64 = 0;
/// Number of the stream of draws for the arrival times of the first of two tenants.
const TENANT_ARRIVALS: u64 = 100;
/// Number of the first client's stream of draws.
const FIRST_CLIENT: u64 = 1_000;

/// Requests per second of two tenants outside of bursts, unless the setting gives another rate.
const RATE_OF_TENANTS: f64 = 1_000.0;
/// Rate of a tenant during a burst, in multiples of its rate otherwise.
const BURST: f64 = 10.0;
/// Time from the start of a burst to the start of the next.
const BURST_EVERY: Duration = Duration::from_secs(30);
/// Duration of a burst, the last part of each period.
const BURST_FOR: Duration = Duration::from_secs(10);

impl Clients {
    pub(super) fn new(setup: &Setup) -> Result<Self, SetupError> {
        let Knobs { clients, rate, writes, keys, records, tenants, .. } = setup.knobs;
        let seed = setup.seed;
        let stream_of = |number: u32, arrivals: Option<Load>| {
            let mut draws = stream(seed, FIRST_CLIENT + u64::from(number));
            let times = draws.next_u64();
            Stream { draws, times, sent: 0, tenant: TenantId(0), arrivals, tight: None }
        };
        let tenant = |number: u16, rate: f64, bursts: bool| {
            let draws = stream(seed, TENANT_ARRIVALS + u64::from(number));
            let load = Load { arrivals: Arrivals::poisson(rate)?, draws, bursts };
            let stream = stream_of(number.into(), Some(load));
            let tight = (!bursts).then_some(setup.knobs.tight);
            Ok::<_, SetupError>(Stream { tenant: TenantId(number), tight, ..stream })
        };
        // Each of two tenants has half of the requests outside of bursts.
        let half = rate.unwrap_or(RATE_OF_TENANTS) / 2.0;
        let streams = match (tenants, rate) {
            (Tenants::One, None) => (0..clients).map(|client| stream_of(client, None)).collect(),
            (Tenants::One, Some(rate)) => {
                let draws = stream(seed, ARRIVALS);
                let load = Load { arrivals: Arrivals::poisson(rate)?, draws, bursts: false };
                vec![stream_of(0, Some(load))]
            }
            (Tenants::Steady, _) => vec![tenant(0, half, false)?],
            (Tenants::Two, _) => vec![tenant(0, half, false)?, tenant(1, half * BURST, true)?],
        };
        // Each tenant has records of its own.
        let records = if tenants == Tenants::One { records } else { records / 2 };
        Ok(Self {
            streams,
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

    /// Returns true if requests arrive whatever becomes of those before.
    pub(super) fn are_open(&self) -> bool {
        self.streams.iter().any(|stream| stream.arrivals.is_some())
    }

    /// Returns the time from `now`, that of the last arrival, to the next in an open loop; none in
    /// a closed one.
    pub(super) fn next_gap(&mut self, stream: u32, now: Instant) -> Option<Duration> {
        let load = self.streams[stream as usize].arrivals.as_mut()?;
        let mut at = now;
        // A tenth of the draws ends the loop outside of bursts, and each one within.
        loop {
            at += load.arrivals.next_gap(&mut load.draws);
            if !load.bursts || is_in_burst(at) || uniform(&mut load.draws) < 1.0 / BURST {
                return Some(at - now);
            }
        }
    }

    /// Draws the next request of a stream.
    pub(super) fn next_request(&mut self, stream: u32) -> Drawn {
        let Stream { draws, times, sent, tenant, arrivals: _, tight } = &mut self.streams[stream as usize];
        *sent += 1;
        let is_write = uniform(draws) < self.writes;
        let record = match &self.keys {
            KeyLaw::Zipf(keys) => keys.draw(draws),
            KeyLaw::Uniform { records } => (uniform(draws) * *records as f64) as u64,
        };
        let draw = SplitMix64::new(*times ^ *sent).next_u64();
        let within = match *tight {
            Some((least, most)) => deadline_between(record, least, most),
            None => deadline_of(record),
        };
        Drawn { tenant: *tenant, record, is_write, within, draw }
    }
}

fn is_in_burst(at: Instant) -> bool {
    let (every, length) = (BURST_EVERY.as_nanos() as u64, BURST_FOR.as_nanos() as u64);
    at.as_nanos() % every >= every - length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursting_tenant_sends_ten_times_as_much_for_a_third_of_the_time() {
        let mut setup = Setup::new("memcached", 1);
        setup.set("tenants", "2").expect("a valid setting");
        let mut clients = Clients::new(&setup).expect("valid settings");
        assert_eq!(clients.streams(), 2);
        let count = |clients: &mut Clients, stream: u32| {
            let (mut at, mut counts) = (Instant::ZERO, [0_u32; 2]);
            while at < Instant::ZERO + 4 * BURST_EVERY {
                at += clients.next_gap(stream, at).expect("an open loop");
                counts[usize::from(is_in_burst(at))] += 1;
            }
            counts
        };
        let (steady, bursting) = (count(&mut clients, 0), count(&mut clients, 1));
        // 500 a second for 80 s and for 40 s; then 5,000 a second for the 40 s.
        assert!(steady[0].abs_diff(40_000) < 1_000 && steady[1].abs_diff(20_000) < 1_000, "{steady:?}");
        assert!(
            bursting[0].abs_diff(40_000) < 1_000 && bursting[1].abs_diff(200_000) < 2_000,
            "{bursting:?}"
        );
    }

    #[test]
    fn steady_tenant_sends_the_same_tight_requests_alone() {
        let clients = |tenants: &str| {
            let mut setup = Setup::new("memcached", 1);
            setup.set("tenants", tenants).expect("a valid setting");
            Clients::new(&setup).expect("valid settings")
        };
        let (mut both, mut alone) = (clients("2"), clients("steady"));
        assert_eq!(alone.streams(), 1);
        for _ in 0..1_000 {
            assert_eq!(both.next_gap(0, Instant::ZERO), alone.next_gap(0, Instant::ZERO));
            let (one, other) = (both.next_request(0), alone.next_request(0));
            assert_eq!((one.record, one.within, one.draw), (other.record, other.within, other.draw));
            assert!(one.within < Duration::from_millis(30), "{:?}", one.within);
            both.next_request(1);
        }
        assert_eq!(both.next_request(1).tenant, TenantId(1));
    }
}
