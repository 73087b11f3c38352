//! Construction of the set-up's parts.

use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition};
use sherwood_control::Admission;
use sherwood_dispatch::{CancelRule, ExtraOrder, Options as DispatchOptions, RetryOptions};
use sherwood_model::{Instant, SeededState, TenantId};
use sherwood_path::{BackendOptions, Placement, Rules};
use sherwood_policy::slo::{Costs, Objective};
use sherwood_policy::stores::{Manager, ManagerAim, ManagerOptions};
use sherwood_workload::Arrivals;

use super::{Event, PARTITION, SAMPLE_EVERY, STORE, TIMEOUT, World, Zoolander};
use crate::traffic::stream;
use crate::world::{Machine, Node, Servers, fixed_division};
use crate::zoolander::key::holders;
use crate::zoolander::pairs::Pairs;
use crate::zoolander::policy::DIVIDED;
use crate::zoolander::results::Recorder;
use crate::zoolander::services::Services;
use crate::zoolander::setup::{Setup, SetupError};
use crate::zoolander::{NODES, Scenario};

impl World {
    /// Returns the simulation of a run at its start.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let policy = setup.validate()?;
        let hash = SeededState::new(0);
        let options = BackendOptions {
            rules: Rules { ttl: Some(Duration::ZERO), ..Rules::default() },
            placement: Placement::ByKey(holders),
            ..BackendOptions::new(dispatch(setup), NODES.into(), vec![PARTITION])
        };
        let machine = Machine::new(options, Instant::ZERO, hash)?;
        // Nothing is kept in the cache.
        let partitions = [Partition::new(TenantId(0), STORE, CACHE_BYTES)];
        let cache = Cache::new(CacheOptions::sized(CACHE_BYTES, 1), &partitions, hash)?;
        let control = fixed_division(Admission::new([]), vec![CACHE_BYTES]);
        let node = Node::new(cache, vec![machine], control, vec![(TenantId(0), STORE)]);
        let services = Services::new(&setup.knobs, setup.seed);
        let times = services.table();
        let constant = setup.knobs.load * f64::from(NODES) / (times.mean_ms() / 1e3);
        let objectives = [0, 1].map(|phase| setup.scenario.objective(phase, constant));
        let requests = |phase: usize| {
            let Objective { rate_per_s, accesses, .. } = objectives[phase];
            Arrivals::poisson(rate_per_s / f64::from(accesses))
        };
        let end = Instant::ZERO + setup.duration();
        let family = Zoolander {
            arrivals: [requests(0)?, requests(1)?],
            arrival_draws: stream(setup.seed, ARRIVALS),
            requests: 0,
            phase: 0,
            recorded_until: end - setup.after(),
            in_use: (DIVIDED, Instant::ZERO),
            objectives,
            manager: policy
                .uses
                .is_none()
                .then(|| (Manager::new(managed(&objectives[0]), DIVIDED.plan()), times.clone())),
            services,
            pairs: (setup.scenario == Scenario::Model).then(|| Pairs::new(times)),
            decisions: Vec::new(),
            recorder: Recorder::default(),
            policy,
            setup: setup.clone(),
        };
        // Each node serves one access at a time.
        let servers = Servers::new([(NODES, 1)].into_iter());
        let mut world = Self::of(family, end, vec![node], servers, stream(setup.seed, ROUTES));
        world.schedule(Instant::ZERO, Event::Phase(0));
        world.schedule(setup.night_from(), Event::Phase(1));
        world.schedule(Instant::ZERO + SAMPLE_EVERY, Event::Sample);
        world.schedule_request();
        Ok(world)
    }
}

/// Options of the store's dispatcher. Nodes have queues of their own, so that nothing waits before
/// them; copies are limited by the rule alone, and served even if another answer was first.
fn dispatch(setup: &Setup) -> DispatchOptions {
    DispatchOptions {
        batch_keys_max: 1,
        in_flight_calls_max: CALLS_MAX,
        waiters_max: CALLS_MAX,
        timeout: TIMEOUT,
        balance: setup.knobs.balance,
        copies: DIVIDED.copies,
        extra: ExtraOrder::Equal,
        cancel: CancelRule::Never,
        retry: RetryOptions { per_call_max: 0, ratio: 1.0, burst: COPIES_MAX },
        ..DispatchOptions::default()
    }
}

/// Returns the settings of the manager, which knows the SLO of the experiment.
fn managed(objective: &Objective) -> ManagerOptions {
    let &Objective { accesses, composition, bound_ms, .. } = objective;
    ManagerOptions {
        nodes: NODES.into(),
        accesses,
        composition,
        bound_ms,
        level: 0.999,
        aim: ManagerAim::BestLevel,
        costs: Costs { node: 1.0, idle: 1.0 },
        gain_min: ManagerOptions::GAIN_MIN,
        move_cost: ManagerOptions::MOVE_COST,
        error_max: ManagerOptions::ERROR_MAX,
        // Nothing limits the copies of the simulated dispatcher.
        hedged_max: 1.0,
        keeps_layout: false,
        dry_run: false,
    }
}

/// Largest number of calls of a node: more than arrive within the timeout.
const CALLS_MAX: u32 = 10_000_000;
/// Largest number of copies that are made at once: more than there are accesses in flight.
const COPIES_MAX: u32 = 1_000_000;
/// Size of the cache.
const CACHE_BYTES: u64 = 1 << 20;
/// Number of the stream of draws for the arrivals of requests.
const ARRIVALS: u64 = 0;
/// Number of the random stream with which the dispatcher chooses nodes.
const ROUTES: u64 = 1;
