//! An application server: a cache, a controller and a machine for each backend, as in a node.

use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition, SHARD_BYTES_LIMIT, Value};
use sherwood_control::{Act, Admission, CacheSeen, ControlLoop, Levels, PartitionSeen, Pin, Seen};
use sherwood_dispatch::Options as DispatchOptions;
use sherwood_model::{CachePlan, Instant, SeededState, Tags};
use sherwood_path::{AnswerCache, Backend as BackendMachine, BackendOptions, Fetched, Slot};
use sherwood_policy::{Controller, MissRatioCurve, Needs, StartSize, by_name};
use sherwood_workload::onerf::BackendModel;

use crate::key::Key;
use crate::partitions::Partitions;
use crate::resize::Resizing;
use crate::setup::{Setup, SetupError};
use crate::statistics::{Known, KnownPartition, Report};

/// The key of an unfinished request that waits for a fetch: the request's number and the key's
/// position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) request: u32,
    pub(crate) slot: Slot,
}

/// The state machine of one backend. Its values are sizes in bytes.
pub(crate) type Machine = BackendMachine<Key, u32, Waiter>;

/// Adapter for a cache of objects with a size and no content.
pub(crate) struct SizedCache<'a>(pub(crate) &'a Cache);

impl AnswerCache<u32> for SizedCache<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, bytes: &'a u32) -> Fetched<'a> {
        Fetched { value: Value::Declared(*bytes), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

/// An application server: cache, control loop and a state machine for each backend.
pub(crate) struct Server {
    pub(crate) partitions: Partitions,
    pub(crate) cache: Cache,
    pub(crate) control: ControlLoop,
    /// State machines of the server, by backend.
    pub(crate) machines: Vec<Machine>,
    /// The time at which each state machine is woken up next.
    pub(crate) armed: Vec<Option<Instant>>,
    /// The next report to the statistics server.
    pub(crate) report: Report,
    pub(crate) resizing: Resizing,
}

impl Server {
    pub(crate) fn new(setup: &Setup, partitions: Partitions, number: u64) -> Result<Self, SetupError> {
        let total_bytes = setup.cache_bytes()?;
        let backends = setup.model.backends();
        let control = &setup.knobs.control;
        let policy = by_name(&setup.policy, control)?;
        let needs = policy.needs();
        control.validate(total_bytes, partitions.len())?;
        let budgets = control.start_budgets(total_bytes, &vec![StartSize::default(); partitions.len()])?;
        let cache_partition = |(id, &budget_bytes)| {
            let (tenant, backend) = partitions.pair(id);
            Partition::new(tenant, backend, budget_bytes)
        };
        let cache_partitions: Vec<Partition> = partitions.all().zip(&budgets).map(cache_partition).collect();
        let options = CacheOptions {
            total_bytes,
            item_bytes_max: 1 << 30,
            // A single shard, since there is one thread, unless the cache is too large for one.
            shards: total_bytes.div_ceil(SHARD_BYTES_LIMIT).next_power_of_two() as u16,
            eviction: setup.knobs.eviction,
            ghost_rate: if needs_curves(&needs) { setup.ghost_rate() } else { 0.0 },
            ..CacheOptions::default()
        };
        let hash = SeededState::new(number);
        let cache = Cache::new(options, &cache_partitions, hash)?;
        if policy.starts_shared() {
            cache.apply(&CachePlan::Shared).expect("always accepted");
        }
        let machine = |backend: &BackendModel| {
            let replicas = backend.service.replicas.at(&setup.profile);
            let own = partitions.of_backend(backend.backend_id()).collect();
            let options = BackendOptions::new(dispatch(setup.model.timeout()), replicas.into(), own);
            Machine::new(options, Instant::ZERO, hash)
        };
        let name = |partition| {
            let (tenant, backend) = partitions.pair(partition);
            let backend = &backends[backend.index()].name;
            if partitions.tenants() == 1 { backend.clone() } else { format!("{}/{backend}", tenant.0) }
        };
        let names = partitions.all().map(name).collect();
        let controller = Controller::new(policy, control, names, budgets.clone());
        let (levels, pins) = (Levels::One(Box::new(controller)), vec![Pin::default(); partitions.len()]);
        Ok(Self {
            partitions,
            cache,
            control: ControlLoop::new(levels, Admission::default(), control.clone(), pins, Instant::ZERO),
            machines: backends.iter().map(machine).collect::<Result<_, _>>()?,
            armed: vec![None; backends.len()],
            report: Report::default(),
            resizing: Resizing::new(setup.knobs.resize, budgets),
        })
    }

    /// Runs one round of the control loop on the statistics of all servers and the usage of this
    /// server's cache.
    pub(crate) fn decide(&mut self, now: Instant, known: &Known) {
        let seen = self.observe(known);
        self.control.handle_seen(now, Seen { cache: Some(seen), tenants: None });
        while let Some(act) = self.control.poll_act() {
            if let Act::Apply(plan) = act {
                let plan = self.resizing.plan(plan.cache, self.cache.total_bytes());
                self.apply(now, &plan);
            }
        }
    }

    /// The observations that decisions require.
    pub(crate) fn needs(&self) -> Needs {
        self.control.levels().needs()
    }

    /// Applies the next step of a gradual change of budgets; called once a second.
    pub(crate) fn go_on_resizing(&mut self, now: Instant) {
        if let Some(plan) = self.resizing.next(self.cache.total_bytes()) {
            self.apply(now, &plan);
        }
    }

    fn apply(&self, now: Instant, plan: &CachePlan) {
        self.cache.apply(plan).expect("plans of the controller fit the cache it was built with");
        while self.cache.step(now, STEP_ITEMS) {}
    }

    fn observe(&self, known: &Known) -> CacheSeen {
        let (needs, total_bytes) = (self.needs(), self.cache.total_bytes());
        let seen = |(partition, known): (_, &KnownPartition)| {
            let usage = self.cache.usage(partition);
            let (tenant, backend) = self.partitions.pair(partition);
            let slope = |curve: &MissRatioCurve| curve.hit_ratio_slope(usage.budget_bytes, total_bytes);
            let curve = &known.estimates.curve;
            PartitionSeen {
                allocated_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                hits: known.counts.0,
                misses: known.counts.1,
                query_p99: known.query_p99,
                shadow_hits: known.estimates.shadow_hits,
                hit_ratio_slope: curve.as_ref().filter(|_| needs.hit_ratio_slope).map(slope),
                miss_ratio_curve: curve.clone().filter(|_| needs.miss_ratio_curves),
                miss_latency: known.miss_latency.clone(),
                ..PartitionSeen::new(tenant, backend)
            }
        };
        CacheSeen {
            at: known.at,
            total_bytes,
            partitions: self.partitions.all().zip(&known.partitions).map(seen).collect(),
            requests: known.requests.clone(),
            ..CacheSeen::default()
        }
    }
}

/// True if a policy with these needs uses miss ratio curves.
pub(crate) fn needs_curves(needs: &Needs) -> bool {
    needs.shadow_ratio.is_some() || needs.miss_ratio_curves || needs.hit_ratio_slope
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
