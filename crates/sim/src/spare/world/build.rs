//! Construction of the set-up's parts.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition};
use sherwood_control::Admission;
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};
use sherwood_path::{BackendOptions, Rules};
use sherwood_workload::Arrivals;

use super::servers::Server;
use super::{Event, SAMPLE_EVERY, Spare, World};
use crate::slab::Slab;
use crate::spare::policy::Policy;
use crate::spare::results::Recorder;
use crate::spare::scenario::Sizes;
use crate::spare::setup::{Copies, Setup, SetupError};
use crate::spare::{PAGES, TIERS};
use crate::traffic::stream;
use crate::world::{Interference, Machine, Neighbours, Node, Servers, fixed_division};

impl World {
    /// Returns the simulation of a run at its start. If the policy searches for the number of
    /// copies, it does so at the first [`advance`](Self::advance), which takes as long as some ten
    /// runs of the length of a window.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        Self::with(setup, setup.copies()?)
    }

    /// Returns the simulation with a certain number of copies in each tier.
    pub(super) fn with(setup: &Setup, copies: Option<Copies>) -> Result<Self, SetupError> {
        let mut world = world(setup, copies)?;
        world.schedule_page();
        world.schedule_neighbours();
        world.schedule(Instant::ZERO + SAMPLE_EVERY, Event::Sample);
        Ok(world)
    }
}

/// Returns the world before its first event.
fn world(setup: &Setup, copies: Option<Copies>) -> Result<World, SetupError> {
    let policy = setup.validate()?;
    let hash = SeededState::new(0);
    let machine = |tier: BackendId| {
        let servers = setup.knobs.servers[tier.index()].into();
        let options = BackendOptions {
            rules: Rules { ttl: Some(Duration::ZERO), ..Rules::default() },
            ..BackendOptions::new(
                policy.dispatch(&setup.knobs, tier, copies.unwrap_or_default().factors),
                servers,
                vec![PartitionId(tier.0)],
            )
        };
        Machine::new(options, Instant::ZERO, hash)
    };
    let machines = TIERS.into_iter().map(machine).collect::<Result<_, _>>()?;
    // Nothing is kept in the cache.
    let partitions = TIERS.map(|tier| Partition::new(TenantId(0), tier, CACHE_BYTES));
    let cache = Cache::new(CacheOptions::sized(2 * CACHE_BYTES, 1), &partitions, hash)?;
    let control = fixed_division(Admission::new([]), vec![CACHE_BYTES; 2]);
    let node = Node::new(cache, machines, control, TIERS.map(|tier| (TenantId(0), tier)).to_vec());
    let family = Spare {
        arrivals: Arrivals::poisson(setup.knobs.rate)?,
        arrival_draws: stream(setup.seed, ARRIVALS),
        sizes: Sizes::new(setup.scenario, setup.seed),
        pages: 0,
        queries: 0,
        servers: TIERS.map(|tier| servers(setup, &policy, tier)),
        copies_found: copies,
        copies: Slab::new(),
        connections: BTreeMap::new(),
        calls: Slab::new(),
        recorder: Recorder::new(setup),
        policy,
        probe_draws: stream(setup.seed, PROBES),
        setup: setup.clone(),
    };
    // Servers share their cores among all calls, so that none waits.
    let calls = Servers::new(setup.knobs.servers.into_iter().map(|servers| (servers, u32::MAX)));
    let end = Instant::ZERO + setup.duration();
    Ok(World::of(family, end, vec![node], calls, stream(setup.seed, ROUTES)))
}

/// Returns the servers of a tier, with neighbours that do not depend on the policy.
fn servers(setup: &Setup, policy: &Policy, tier: BackendId) -> Vec<Server> {
    let undisturbed = if tier == PAGES { 1 } else { 3 };
    let is_slowed = policy.interference && setup.knobs.pattern != undisturbed;
    let neighbours = |server: u16| {
        let number = NEIGHBOURS + (u64::from(tier.0) << 16) + u64::from(server);
        is_slowed.then(|| Interference::new(LAW, stream(setup.seed, number)))
    };
    (0..setup.knobs.servers[tier.index()]).map(|server| Server::new(neighbours(server))).collect()
}

/// Neighbours in the paper's private cloud. The paper says how often they are there, and shows
/// times of queries that change within a second, but not how much a server slows down. That is set
/// so that the latencies of Solr without copies are the paper's.
const LAW: Neighbours = Neighbours {
    gap: Duration::from_secs(40),
    stay: Duration::from_secs(10),
    redraw: Duration::from_millis(120),
    slowdown: 3.3,
};

/// Size of each tier's partition.
const CACHE_BYTES: u64 = 1 << 20;
/// Number of the stream of draws for the arrivals of pages.
const ARRIVALS: u64 = 0;
/// Number of the random stream with which dispatchers choose servers.
const ROUTES: u64 = 1;
/// Number of the random stream by which servers are asked about themselves.
const PROBES: u64 = 2;
/// Number of the stream of draws for the neighbours of the first server.
const NEIGHBOURS: u64 = 1 << 20;
