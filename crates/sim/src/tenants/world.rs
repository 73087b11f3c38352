//! The simulation: clients, the cache and the backends, and a clock that advances from event to
//! event.

mod machine;
mod network;
mod outcome;
mod plan;

use std::time::Duration;

use rand_core::Rng as _;
use sherwood_cache::{Access, Cache, Options as CacheOptions, Partition};
use sherwood_dispatch::AttemptId;
use sherwood_model::{
    BackendId, Demand, FinishedRequest, Instant, PartitionId, ReplicaId, SeededState, TenantId,
};
use sherwood_path::{Change, FetchKey, Write, WriteId, WriteOptions};
use sherwood_workload::Operation;
use sherwood_workload::tenants::{Load, Scenario, Tenant, pause_after_refusal};

use super::clients::Clients;
use super::control::Control;
use super::key::{KEY_BYTES, Key};
use super::part::Part;
use super::record::{BUCKET, Measured, Recorder, Sample};
use super::setup::{Setup, SetupError};
use super::warm::Warm;
use super::within::DECIDE_EVERY;
use crate::events::EventQueue;
use crate::server::SizedCache;
use crate::slab::Slab;
use crate::onerf::Imbalance;
use machine::Machine;
use network::Network;

/// Time from the node's answer to the client's next request, through the network.
pub const ROUND_TRIP: Duration = Duration::from_micros(200);

/// A simulated run, which starts with caches filled as after a long time of the load.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`] with
/// the figures of a run of `baseline`. The state changes only at events, so results do not depend
/// on the times at which `advance` stops.
///
/// # Memory
/// The items of the cache (a record each with a declared size, no value), live requests, of which
/// an open loop has as many as arrive within the backend's timeout, and a sample for each ten
/// seconds.
pub struct World {
    setup: Setup,
    scenario: Scenario,
    now: Instant,
    events: EventQueue<Event>,
    clients: Clients,
    parts: Vec<Part>,
    cache: Cache,
    backends: Vec<Machine>,
    warm: Warm,
    control: Control,
    network: Network,
    /// True if tenants have no shares of their own.
    is_shared: bool,
    /// Units of each resource that each tenant had used at the start of the measurement.
    used_before: Vec<Vec<f64>>,
    live: Slab<Live>,
    began: u64,
    ended: u64,
    recorder: Recorder,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client sends its next request.
    Begin { client: u32 },
    /// A backend answers a call for a key of this partition.
    Answer { attempt: AttemptId, partition: PartitionId },
    /// A backend acknowledges a write.
    Written { backend: BackendId, write: WriteId, replica: ReplicaId },
    /// A wake-up that a backend scheduled.
    Wake { backend: BackendId },
    /// A tenant's rate of network may allow what waits.
    Network,
    /// The level between tenants has something to do.
    Between,
    /// The policy within each tenant decides.
    Within,
    /// The caches are filled as after a long time.
    Fill,
    /// Ten seconds are over.
    Bucket,
}

/// End of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Hit,
    /// The read was fetched from the backend.
    Miss,
    /// The read joined the fetch of another.
    Joined,
    Written,
    /// The operation was refused; the time after which it may be tried again, if that is known.
    Refused(Option<Duration>),
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct Live {
    client: u32,
    began: Instant,
    /// Operations that have not ended.
    open: u32,
    /// The longest pause that a refused operation asks the client for; none if all went well.
    pause: Option<Duration>,
}

impl World {
    /// Returns the simulation of a run at its start.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let (scenario, _) = setup.validate()?;
        let hash = SeededState::new(0);
        let parts = parts(&scenario);
        let cache = cache(setup, &scenario, &parts, hash)?;
        let backends = (0..scenario.backends.len())
            .map(|index| Machine::new(setup, &scenario, &parts, BackendId::from_index(index), hash));
        let control = Control::new(setup, &scenario, &parts)?;
        let mut world = Self {
            now: Instant::ZERO,
            events: EventQueue::default(),
            clients: Clients::new(&scenario, setup.seed),
            backends: backends.collect::<Result<_, _>>()?,
            warm: Warm::new(&scenario, setup.seed),
            is_shared: control.shares_all(),
            control,
            network: Network::new(setup, &scenario),
            used_before: vec![vec![0.0; scenario.resources.len()]; scenario.tenants.len()],
            live: Slab::new(),
            began: 0,
            ended: 0,
            recorder: Recorder::new(&scenario),
            setup: setup.clone(),
            scenario,
            parts,
            cache,
        };
        world.begin();
        Ok(world)
    }

    /// End of the run's measurement.
    #[must_use]
    pub fn end(&self) -> Instant {
        Instant::ZERO + self.scenario.warm_up.0 + self.scenario.measure.0
    }

    /// Current simulated time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of requests sent so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.began
    }

    /// Samples of the run so far, one for each ten seconds.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.recorder.samples()
    }

    /// Returns the figures of the measured part so far.
    #[must_use]
    pub fn measured(&self) -> Measured {
        self.recorder.measured(self.now, &self.scenario)
    }

    /// Processes all events up to `until`, and then checks that every request has ended once or is
    /// still waiting.
    ///
    /// # Errors
    /// If not, which is a bug.
    pub fn advance(&mut self, until: Instant) -> Result<(), Imbalance> {
        let until = until.min(self.end());
        while let Some((at, event)) = self.events.take_before(until + Duration::from_nanos(1)) {
            self.now = at;
            self.happen(event);
        }
        self.now = self.now.max(until);
        let found = self.ended + self.live.iter().count() as u64;
        if found == self.began {
            return Ok(());
        }
        let seconds = self.now.as_nanos() / 1_000_000_000;
        let what = "the number of requests that ended or are waiting";
        Err(Imbalance { seconds, what, found, expected: self.began })
    }

    fn begin(&mut self) {
        self.apply();
        self.events.schedule(Instant::ZERO, Event::Fill);
        for client in 0..self.clients.len() {
            let after = self.clients.next_gap(client, Instant::ZERO).unwrap_or_default();
            self.events.schedule(Instant::ZERO + after, Event::Begin { client });
        }
        // Ends of ten seconds are also ends of ten seconds of the measurement.
        let first = self.scenario.warm_up.0.as_nanos() % BUCKET.as_nanos();
        let first = if first == 0 { BUCKET } else { Duration::from_nanos(first as u64) };
        self.events.schedule(Instant::ZERO + first, Event::Bucket);
        if self.is_shared {
            return;
        }
        self.control.due().into_iter().for_each(|due| self.events.schedule(due, Event::Between));
        if self.setup.knobs.within.is_some() {
            self.events.schedule(Instant::ZERO + DECIDE_EVERY, Event::Within);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin { client } => self.send(client),
            Event::Answer { attempt, partition } => self.answer(attempt, partition),
            Event::Written { backend, write, replica } => self.written(backend, write, replica),
            Event::Wake { backend } => self.wake(backend),
            Event::Network => self.wake_network(),
            Event::Between => self.decide_between(),
            Event::Within => self.decide_within(),
            Event::Fill => self.warm.fill(&self.cache, self.now),
            Event::Bucket => self.end_bucket(),
        }
    }

    /// Sends the next request of a client.
    fn send(&mut self, client: u32) {
        self.began += 1;
        if let Some(gap) = self.clients.next_gap(client, self.now) {
            self.events.schedule(self.now + gap, Event::Begin { client });
        }
        let live = Live { client, began: self.now, open: 0, pause: None };
        let (tenant, request) = (self.clients.tenant(client), self.live.insert(live));
        self.arrive(tenant, request);
    }

    /// Ends a request that is refused, and may be tried again after this time, if that is known.
    fn refuse(&mut self, request: u32, retry_in: Option<Duration>) {
        let pause = pause_after_refusal(retry_in);
        self.change(request, |live| live.pause = Some(pause));
        self.end_request(request, None);
    }

    /// Executes the operations of a request that its tenant's rate of network has let in.
    fn execute(&mut self, request: u32) {
        let Some(&Live { client, .. }) = self.live.get(request) else { return };
        let tenant = self.clients.tenant(client);
        let first = self.first_part(tenant);
        let operations: Vec<Operation> = self.clients.next_request(client, self.now).collect();
        self.change(request, |live| live.open = operations.len() as u32);
        for (partition, operation) in (first..).zip(operations) {
            let partition = PartitionId(partition);
            match operation {
                Operation::Get(rank) => self.read(request, partition, Key::new(tenant.0, rank)),
                Operation::Set(rank) => self.write(request, partition, Key::new(tenant.0, rank)),
            }
        }
    }

    fn read(&mut self, request: u32, partition: PartitionId, key: Key) {
        let Part { tenant, backend, .. } = self.parts[partition.index()];
        let access = Access::at(self.now);
        let is_hit = self.cache.get(partition, key.as_ref(), &access, |_| ()).is_some();
        self.recorder.read(self.now, tenant, is_hit);
        if is_hit {
            return self.end_operation(request, partition, Outcome::Hit);
        }
        let demand = Demand { tenant, ..Demand::default() };
        let Machine { backend: machine, draws, .. } = &mut self.backends[backend.index()];
        let (entropy, keys) = (draws.next_u64(), [(FetchKey { partition, key }, request)]);
        machine.handle_fetch(self.now, &SizedCache(&self.cache), &demand, keys, entropy);
        self.drive(backend);
    }

    fn write(&mut self, request: u32, partition: PartitionId, key: Key) {
        let Part { tenant, backend, value_bytes } = self.parts[partition.index()];
        let options = WriteOptions { tenant, cache_first: true, admit: true };
        let write = Write { key, change: Change::Put(value_bytes), partition: Some(partition), options };
        let machine = &mut self.backends[backend.index()];
        match machine.backend.handle_write(self.now, &SizedCache(&self.cache), write) {
            Ok(write) => {
                machine.writes.insert(write, (request, partition));
                self.drive(backend);
            }
            Err(refused) => {
                let outcome = Outcome::Refused(machine::retry_in(&refused));
                self.end_operation(request, partition, outcome);
            }
        }
    }

    /// Ends an operation; with the last one, its request.
    fn end_operation(&mut self, request: u32, partition: PartitionId, outcome: Outcome) {
        let Some(&Live { began, .. }) = self.live.get(request) else { return };
        let Part { tenant, backend, value_bytes } = self.parts[partition.index()];
        let reaches_backend = matches!(outcome, Outcome::Miss | Outcome::Written);
        let legs = if reaches_backend { self.control.legs().saturating_sub(1) } else { 0 };
        if legs > 0 {
            let bytes = (u64::from(KEY_BYTES) + u64::from(value_bytes)) * legs;
            self.network.charge(self.now, tenant, bytes as f64);
        }
        if let Some(statistics) = self.control.statistics() {
            statistics.operation(self.now, partition, self.now - began);
        }
        self.change(request, |live| {
            live.open -= 1;
            if let Outcome::Refused(retry_in) = outcome {
                live.pause = live.pause.max(Some(pause_after_refusal(retry_in)));
            }
        });
        if self.live.get(request).is_some_and(|live| live.open == 0) {
            self.end_request(request, Some(backend));
        }
    }

    /// Ends a request, whose last answer is that of `last`. In a closed loop, the client sends the
    /// next one, after a pause if an operation was refused.
    fn end_request(&mut self, request: u32, last: Option<BackendId>) {
        let Some(Live { client, began, pause, .. }) = self.live.remove(request) else { return };
        self.ended += 1;
        let (tenant, at) = (self.clients.tenant(client), self.now + ROUND_TRIP);
        self.recorder.request(self.now, tenant, at - began, pause.is_none());
        if let Some(statistics) = self.control.statistics() {
            statistics.request(self.now, tenant, FinishedRequest::new(self.now - began, last));
        }
        if !self.clients.is_open(client) {
            self.events.schedule(at + pause.unwrap_or_default(), Event::Begin { client });
        }
    }

    fn change(&mut self, request: u32, change: impl FnOnce(&mut Live)) {
        if let Some(live) = self.live.get_mut(request) {
            change(live);
        }
    }

    /// The first partition of a tenant.
    fn first_part(&self, tenant: TenantId) -> u16 {
        self.parts.partition_point(|part| part.tenant < tenant) as u16
    }
}

/// Returns the partitions: a tenant's are neighbours, in the order of its loads.
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

/// Returns the cache, divided by the baselines, and each of these among the tenant's partitions
/// equally.
fn cache(setup: &Setup, scenario: &Scenario, parts: &[Part], hash: SeededState) -> Result<Cache, SetupError> {
    let partition = |part: &Part| {
        let tenant = &scenario.tenants[part.tenant.index()];
        let budget_bytes = tenant.cache.0 / tenant.loads.len() as u64;
        let metered = Some(machine::units(scenario, part.backend).reads);
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

/// Largest number of operations that wait for a backend, or for network: a few seconds of a flood.
const WAITING_MAX: u32 = 50_000;
/// Bytes of a shard: few enough items for its index to be resized quickly.
const SHARD_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests;
