//! Construction of the set-up's parts.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition, SHARD_BYTES_LIMIT};
use sherwood_control::cluster::KnownNames;
use sherwood_control::{Admission, ControlLoop, Levels, Pin};
use sherwood_dispatch::Options as DispatchOptions;
use sherwood_model::{CachePlan, Instant, SeededState, Slo};
use sherwood_path::BackendOptions;
use sherwood_policy::{Controller, Needs, StartSize, by_name};
use sherwood_workload::onerf::{BackendModel, Model};

use super::exchange::{Exchange, Shared};
use super::{OneRf, World};
use crate::backend::SimulatedBackend;
use crate::key::Key;
use crate::partitions::Partitions;
use crate::record::Recorder;
use crate::setup::{Setup, SetupError, minutes};
use crate::sizes::Sizes;
use crate::statistics::{Report, Statistics, names, needs_curves};
use crate::traffic::{Traffic, stream};
use crate::world::{Machine, Node, Resizing, Servers};

/// Number of the random stream that determines the times of echoes.
const ECHOES: u64 = 4;
/// Number of the random stream with which dispatchers choose replicas.
const ROUTES: u64 = 5;
/// Number of the random stream that determines which reports are lost, after that of tenants.
const LOSSES: u64 = 7;

/// Returns the world of several tenants before its first event.
pub(super) fn world(setup: &Setup, tenants: u16) -> Result<World, SetupError> {
    setup.validate()?;
    let asked = setup.clone();
    let mut setup = asked.clone();
    setup.scale_bytes()?;
    let profile = *setup.profile()?;
    let scenario = setup.scenario()?;
    let (model, knobs) = (&setup.model, &setup.knobs);
    let servers = knobs.servers.unwrap_or(profile.app_servers);
    let measured_from = Instant::ZERO + minutes(scenario.warmup_min);
    let partitions = Partitions::new(tenants, model.backends().len());
    let policy = by_name(&setup.policy, &knobs.control)?;
    let slo = slo(&setup);
    let nodes = (0..servers).map(|number| node(&setup, partitions, number.into()));
    let nodes = nodes.collect::<Result<_, _>>()?;
    let backend = |model: &BackendModel| {
        let replicas = model.service.replicas.at(&setup.profile);
        (replicas, model.service.workers[&setup.profile])
    };
    let backends = Servers::new(model.backends().iter().map(backend));
    let (end, routes) = (measured_from + minutes(scenario.measure_min), stream(setup.seed, ROUTES));
    let rbc_window = knobs.control.rbc_window;
    let statistics =
        |servers, needs: &Needs| Statistics::new(partitions, servers, slo.window, rbc_window, needs);
    let exchange = (!knobs.bus.is_perfect()).then(|| {
        let (down, draws) = (knobs.bus.down(measured_from), stream(setup.seed, LOSSES));
        let empty = statistics(1, &policy.needs());
        let names = known_names(model, partitions);
        Exchange::new(&knobs.bus, down, draws, Shared { servers, names, rbc_window, empty })
    });
    // The latencies of queries are observed in any case.
    let observed = Needs { query_p99: true, ..policy.needs() };
    let family = OneRf {
        asked,
        limits: scenario.limits(knobs.walk),
        depth: setup.limit_depth()?,
        hit_latency: model.hit_latency(),
        timeout: model.timeout(),
        measured_from,
        partitions,
        traffic: Traffic::new(&setup, partitions, servers)?,
        stop: None,
        sizes: model.replay().map(|_| Sizes::new()),
        echoes: knobs.sample - 1,
        echo_draws: stream(setup.seed, ECHOES),
        backends: simulated(model, &setup),
        reports: (0..servers).map(|_| Report::default()).collect(),
        told: VecDeque::new(),
        statistics: statistics(servers, &observed),
        exchange,
        recorder: Recorder::new(slo, partitions, measured_from),
        setup,
    };
    let mut world = World::of(family, end, nodes, backends, routes);
    if policy.starts_shared() {
        (0..world.nodes.len()).for_each(|node| world.apply(node, CachePlan::Shared.into()));
    }
    Ok(world)
}

/// Returns the backends of a model.
fn simulated(model: &Model, setup: &Setup) -> Vec<SimulatedBackend> {
    let backend = |model| SimulatedBackend::new(model, &setup.profile, setup.seed);
    model.backends().iter().map(backend).collect()
}

/// Returns the names in the reports of servers.
fn known_names(model: &Model, partitions: Partitions) -> KnownNames {
    let backends = model.backends().iter().map(|backend| backend.name.clone()).collect();
    let tenants = (0..partitions.tenants()).map(|tenant| tenant.to_string()).collect();
    KnownNames::new(backends, tenants, names(partitions))
}

fn slo(setup: &Setup) -> Slo {
    let slo = setup.model.slo();
    Slo {
        percentile: slo.percentile,
        bound: Duration::from_secs_f64(slo.limit_ms / 1e3),
        window: Duration::from_secs_f64(slo.window_s),
        observe: Duration::from_secs_f64(slo.every_s),
    }
}

/// Returns an application server.
fn node(setup: &Setup, partitions: Partitions, number: u64) -> Result<Node<Key>, SetupError> {
    let total_bytes = setup.cache_bytes()?;
    let backends = setup.model.backends();
    let control = &setup.knobs.control;
    let policy = by_name(&setup.policy, control)?;
    control.validate(total_bytes, partitions.len())?;
    let budgets = control.start_budgets(total_bytes, &vec![StartSize::default(); partitions.len()])?;
    let hash = SeededState::new(number);
    let samples = needs_curves(&policy.needs());
    let cache = cache(setup, partitions, &budgets, samples, hash)?;
    let machine = |backend: &BackendModel| {
        let replicas = backend.service.replicas.at(&setup.profile);
        let own = partitions.of_backend(backend.backend_id()).collect();
        let options = BackendOptions::new(dispatch(setup.model.timeout()), replicas.into(), own);
        Machine::new(options, Instant::ZERO, hash)
    };
    let machines = backends.iter().map(machine).collect::<Result<_, _>>()?;
    let name = |partition| {
        let (tenant, backend) = partitions.pair(partition);
        let backend = &backends[backend.index()].name;
        if partitions.tenants() == 1 { backend.clone() } else { format!("{}/{backend}", tenant.0) }
    };
    let names = partitions.all().map(name).collect();
    let controller = Controller::new(policy, control, names, budgets.clone());
    let (levels, pins) = (Levels::One(Box::new(controller)), vec![Pin::default(); partitions.len()]);
    let control = ControlLoop::new(levels, Admission::default(), control.clone(), pins, Instant::ZERO);
    let owners = partitions.all().map(|partition| partitions.pair(partition)).collect();
    let mut node = Node::new(cache, machines, control, owners);
    node.resizing = Resizing::new(setup.knobs.resize, budgets);
    Ok(node)
}

fn cache(
    setup: &Setup,
    partitions: Partitions,
    budgets: &[u64],
    samples: bool,
    hash: SeededState,
) -> Result<Cache, SetupError> {
    let total_bytes = setup.cache_bytes()?;
    let cache_partition = |(id, &budget_bytes)| {
        let (tenant, backend) = partitions.pair(id);
        Partition::new(tenant, backend, budget_bytes)
    };
    let cache_partitions: Vec<Partition> = partitions.all().zip(budgets).map(cache_partition).collect();
    let options = CacheOptions {
        total_bytes,
        item_bytes_max: 1 << 30,
        // A single shard, since there is one thread, unless the cache is too large for one.
        shards: total_bytes.div_ceil(SHARD_BYTES_LIMIT).next_power_of_two() as u16,
        eviction: setup.knobs.eviction,
        ghost_rate: if samples { setup.ghost_rate() } else { 0.0 },
        ..CacheOptions::default()
    };
    Ok(Cache::new(options, &cache_partitions, hash)?)
}

/// Returns options with which each request makes one call per backend, as the workload's definition
/// requires. Batches may have more objects than any request, and so many calls may be in flight
/// that none is queued or rejected, since the queue is in front of the simulated servers.
fn dispatch(timeout: Duration) -> DispatchOptions {
    DispatchOptions {
        batch_keys_max: 1 << 20,
        in_flight_calls_max: 100_000,
        queued_calls_max: 0,
        waiters_max: 10_000_000,
        timeout,
        ..DispatchOptions::default()
    }
}
