//! An application server: a cache, a controller and a dispatcher for each backend, as in a node.

use std::time::Duration;

use sherwood_cache::{Access, Cache, Options as CacheOptions, Partition, SHARD_BYTES_LIMIT, Value};
use sherwood_dispatch::{Dispatch, Options as DispatchOptions};
use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};
use sherwood_path::Slot;
use sherwood_policy::{Controller, MissRatioCurve, Observation, PartitionSeen, StartSize, by_name};
use sherwood_workload::onerf::BackendModel;

use crate::beyond::{self, KnownBeyond};
use crate::key::Key;
use crate::resize::Resizing;
use crate::setup::{Setup, SetupError};
use crate::statistics::{Known, KnownBackend, Report};

/// Who waits for a key: a live request's number, and the key's place in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) request: u32,
    pub(crate) slot: Slot,
}

pub(crate) type Machine = Dispatch<Key, u32, Waiter>;

/// One server. Partition `b` of its cache is backend `b`'s.
pub(crate) struct Server {
    pub(crate) cache: Cache,
    pub(crate) controller: Controller,
    pub(crate) machines: Vec<Machine>,
    /// When each machine is going to be woken up, if it is.
    pub(crate) armed: Vec<Option<Instant>>,
    /// What goes to the statistics server with the next report.
    pub(crate) report: Report,
    pub(crate) resizing: Resizing,
}

impl Server {
    pub(crate) fn new(setup: &Setup, number: u64) -> Result<Self, SetupError> {
        let total_bytes = setup.cache_bytes()?;
        let backends = setup.model.backends();
        let control = &setup.knobs.control;
        let policy = by_name(&setup.policy, control)?;
        let needs = policy.needs();
        control.validate(total_bytes, backends.len())?;
        let budgets = control.start_budgets(total_bytes, &vec![StartSize::default(); backends.len()])?;
        let partition =
            |(index, &budget_bytes)| Partition::new(TenantId(0), BackendId::from_index(index), budget_bytes);
        let partitions: Vec<Partition> = budgets.iter().enumerate().map(partition).collect();
        let options = CacheOptions {
            total_bytes,
            item_bytes_max: 1 << 30,
            // A single shard, since there is one thread, unless the cache is too large for one.
            shards: total_bytes.div_ceil(SHARD_BYTES_LIMIT).next_power_of_two() as u16,
            eviction: setup.knobs.eviction,
            ghost_rate: if beyond::is_asked(&needs) { setup.ghost_rate() } else { 0.0 },
            ..CacheOptions::default()
        };
        let hash = SeededState::new(number);
        let cache = Cache::new(options, &partitions, hash)?;
        if policy.starts_shared() {
            cache.apply(&CachePlan::Shared).expect("always accepted");
        }
        let machine = |backend: &BackendModel| {
            let replicas = backend.service.replicas.at(&setup.profile);
            Dispatch::new(dispatch(setup.model.timeout()), replicas.into(), hash)
        };
        let names = backends.iter().map(|backend| backend.name.clone()).collect();
        Ok(Self {
            cache,
            controller: Controller::new(policy, control, names, budgets.clone()),
            machines: backends.iter().map(machine).collect::<Result<_, _>>()?,
            armed: vec![None; backends.len()],
            report: Report::default(),
            resizing: Resizing::new(setup.knobs.resize, budgets),
        })
    }

    /// Takes an answer into the cache. One that does not fit its partition is fetched again when it
    /// is asked for again.
    pub(crate) fn fill(&self, now: Instant, backend: BackendId, key: Key, bytes: u32) {
        let (partition, access) = (PartitionId(backend.0), Access::at(now));
        let _ =
            sherwood_path::fill(&self.cache, partition, key.as_ref(), Value::Declared(bytes), None, &access);
    }

    /// One round of the control loop: what all servers reported is known, what this cache holds is
    /// seen.
    pub(crate) fn decide(&mut self, now: Instant, known: &Known) {
        let seen = self.observe(known);
        let decision = self.controller.decide(now, &seen);
        if decision.apply {
            let plan = self.resizing.plan(decision.plan, self.cache.options().total_bytes);
            self.apply(now, &plan);
        }
    }

    /// Applies the next step of a gradual resize; called once a second.
    pub(crate) fn go_on_resizing(&mut self, now: Instant) {
        if let Some(plan) = self.resizing.next(self.cache.options().total_bytes) {
            self.apply(now, &plan);
        }
    }

    fn apply(&self, now: Instant, plan: &CachePlan) {
        self.cache.apply(plan).expect("plans of the controller fit the cache it was built with");
        while self.cache.step(now, STEP_ITEMS) {}
    }

    fn observe(&self, known: &Known) -> Observation {
        let (needs, total_bytes) = (self.controller.needs(), self.cache.options().total_bytes);
        let seen = |(index, known): (usize, &KnownBackend)| {
            let usage = self.cache.usage(PartitionId::from_index(index));
            let (hits, misses) = known.counts;
            let KnownBeyond { curve, shadow_hits } = known.beyond.clone();
            let slope = |curve: &MissRatioCurve| curve.hit_ratio_slope(usage.budget_bytes, total_bytes);
            PartitionSeen {
                allocated_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                hits,
                misses,
                queries: hits + misses,
                query_p99: known.query_p99,
                shadow_hits,
                hit_ratio_slope: curve.as_ref().filter(|_| needs.hit_ratio_slope).map(slope),
                miss_ratio_curve: curve.filter(|_| needs.miss_ratio_curves),
                miss_latency: known.miss_latency.clone(),
                ..PartitionSeen::new(TenantId(0), BackendId::from_index(index))
            }
        };
        Observation {
            total_bytes,
            partitions: known.backends.iter().enumerate().map(seen).collect(),
            ..known.requests.clone()
        }
    }
}

/// Items processed per background step; steps are repeated until nothing is left.
const STEP_ITEMS: usize = 4_096;

/// Options under which each request makes one call per backend, as the workload's definition
/// requires: batches have fewer objects than the limit, and no call of the time within a timeout is
/// queued or rejected, since the queue is in the simulated backend.
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
