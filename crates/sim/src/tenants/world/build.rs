//! Construction of the set-up's parts.

use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition};
use sherwood_dispatch::{
    DebtOptions, Options as DispatchOptions, OverRate, RetryOptions, TenantGate, TenantOptions,
};
use sherwood_model::{BackendId, Instant, Legs, PartitionId, ResourceClass, ResourceKind};
use sherwood_model::{SeededState, TenantId, Unit};
use sherwood_path::{BackendOptions, Units};
use sherwood_workload::tenants::{Load, Resource, Scenario, Tenant};

use super::{Tenants, World};
use crate::tenants::clients::Clients;
use crate::tenants::control::control_loop;
use crate::tenants::key::{KEY_BYTES, Key};
use crate::tenants::part::{Part, kind};
use crate::tenants::record::Recorder;
use crate::tenants::setup::{Setup, SetupError};
use crate::tenants::warm::Warm;
use crate::tenants::within::Statistics;
use crate::traffic::stream;
use crate::world::{Machine, Network, Node, Servers};

/// Returns the world before its first event.
pub(super) fn world(setup: &Setup) -> Result<World, SetupError> {
    let (scenario, _) = setup.validate()?;
    let hash = SeededState::new(0);
    let parts = parts(&scenario);
    let cache = cache(setup, &scenario, &parts, hash)?;
    let machines = (0..scenario.backends.len())
        .map(|index| machine(setup, &scenario, &parts, BackendId::from_index(index), hash))
        .collect::<Result<_, _>>()?;
    let control = control_loop(setup, &scenario, &parts)?;
    let owners = parts.iter().map(|part| (part.tenant, part.backend)).collect();
    let mut node = Node::new(cache, machines, control, owners);
    node.network = Some(network(setup, &scenario));
    let least = |tenant: &Tenant| tenant.loads.iter().map(|load| load.item_bytes() as f64).sum();
    let family = Tenants {
        clients: Clients::new(&scenario, setup.seed),
        latencies: scenario.backends.iter().map(|backend| backend.latency.0).collect(),
        least_bytes: scenario.tenants.iter().map(least).collect(),
        warm: Warm::new(&scenario, setup.seed),
        decide: scenario.control.decide,
        once: None,
        decisions: 0,
        applied: 0,
        statistics: setup.knobs.within.is_some().then(|| Statistics::new(&scenario, &parts)),
        is_shared: node.between().policy().shares_all(),
        used_before: vec![vec![0.0; scenario.resources.len()]; scenario.tenants.len()],
        recorder: Recorder::new(&scenario),
        setup: setup.clone(),
        parts,
        scenario,
    };
    let end = Instant::ZERO + family.scenario.warm_up.0 + family.scenario.measure.0;
    let servers = Servers::new(family.latencies.iter().map(|_| (1, u32::MAX)));
    Ok(World::of(family, end, vec![node], servers, stream(setup.seed, ROUTES)))
}

/// Number of the random stream with which dispatchers choose replicas.
const ROUTES: u64 = 3 << 40;

/// Returns the partitions. Those of a tenant are adjacent, in the order of its loads.
fn parts(scenario: &Scenario) -> Vec<Part> {
    let of_tenant = |(index, tenant): (usize, &Tenant)| {
        let part = |load: &Load| Part {
            tenant: TenantId::from_index(index),
            backend: BackendId::from_index(scenario.backend(&load.backend).expect("scenarios are validated")),
            value_bytes: (load.item_bytes() - u64::from(KEY_BYTES)) as u32,
        };
        tenant.loads.iter().map(part).collect::<Vec<_>>()
    };
    scenario.tenants.iter().enumerate().flat_map(of_tenant).collect()
}

/// Returns the cache. Each tenant has the size of its baseline, divided equally among its
/// partitions.
fn cache(setup: &Setup, scenario: &Scenario, parts: &[Part], hash: SeededState) -> Result<Cache, SetupError> {
    let partition = |part: &Part| {
        let tenant = &scenario.tenants[part.tenant.index()];
        let budget_bytes = tenant.cache.0 / tenant.loads.len() as u64;
        let metered = Some(units(scenario, part.backend).reads);
        Partition { metered, ..Partition::new(part.tenant, part.backend, budget_bytes) }
    };
    let partitions: Vec<Partition> = parts.iter().map(partition).collect();
    let total_bytes = scenario.cache_bytes();
    let options = CacheOptions {
        eviction: setup.knobs.eviction,
        ghost_rate: setup.ghost_rate(),
        ..CacheOptions::sized(total_bytes, 1)
    };
    Ok(Cache::new(
        CacheOptions { shards: total_bytes.div_ceil(SHARD_BYTES).next_power_of_two() as u16, ..options },
        &partitions,
        hash,
    )?)
}

/// Returns the state machine of a backend.
fn machine(
    setup: &Setup,
    scenario: &Scenario,
    parts: &[Part],
    id: BackendId,
    hash: SeededState,
) -> Result<Machine<Key>, SetupError> {
    let own = parts.iter().enumerate().filter(|(_, part)| part.backend == id);
    let partitions = own.map(|(index, _)| PartitionId::from_index(index)).collect();
    let dispatch = DispatchOptions {
        batch_keys_max: 1,
        in_flight_calls_max: scenario.backends[id.index()].slots,
        queued_calls_max: WAITING_MAX,
        waiters_max: WAITING_MAX,
        timeout: TIMEOUT,
        tenants: Some(TenantOptions {
            tenants: scenario.tenants.len() as u16,
            burst_units: TenantOptions::BURST_UNITS,
            lends: setup.knobs.lends,
            over: OverRate::Wait,
        }),
        retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
        ..DispatchOptions::default()
    };
    let options =
        BackendOptions { units: units(scenario, id), ..BackendOptions::new(dispatch, 1, partitions) };
    Ok(Machine::new(options, Instant::ZERO, hash)?)
}

/// Returns the gate that enforces the tenants' network rates.
fn network(setup: &Setup, scenario: &Scenario) -> Network {
    let tenants = scenario.tenants.len() as u16;
    let network = scenario.resources.iter().find(|resource| resource.kind == ResourceClass::Network);
    let legs = network.map_or(Legs::Client, |network| network.legs);
    // An open loop sends without end; a daemon has its bounds on connections.
    let options = DebtOptions { waiting_max: Some((WAITING_MAX, tenants)), ..DebtOptions::default() };
    Network::new(TenantGate::new(tenants, setup.knobs.lends), legs, options)
}

/// Returns the units in which a backend's reads and writes are measured, as the scenario's
/// resources define them.
fn units(scenario: &Scenario, id: BackendId) -> Units {
    let unit = |of: ResourceKind| {
        let found = scenario.resources.iter().find(|resource| kind(resource, scenario) == of);
        found.map_or(Unit::Count, Resource::measure)
    };
    Units { reads: unit(ResourceKind::Reads(id)), writes: unit(ResourceKind::Writes(id)) }
}

/// Timeout of backends: far longer than the time for which a client of a closed loop waits because
/// of its tenant's rate.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest number of operations that wait for a backend or for the network: a few seconds of a
/// flood of requests.
const WAITING_MAX: u32 = 50_000;
/// Largest size of a shard in bytes: it has few enough items for its index to be resized quickly.
const SHARD_BYTES: u64 = 1 << 30;
