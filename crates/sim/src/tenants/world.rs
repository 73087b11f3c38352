//! The set-up (kind of simulation) of tenants: clients, a node with the tenants' rates, and
//! backends that answer after a fixed time.

mod build;
mod outcome;
mod rounds;

use std::time::Duration;

use sherwood_cache::Usage;
use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, FinishedRequest, Instant, PartitionId, Plan, ReplicaId, TenantId};
use sherwood_path::{FetchKey, Query, Staleness, WriteOptions};
use sherwood_workload::Operation;
use sherwood_workload::tenants::{Decide, Scenario, pause_after_refusal};

use super::clients::Clients;
use super::key::Key;
use super::part::Part;
use super::record::{BUCKET, Measured, Recorder, Sample};
use super::setup::{Setup, SetupError};
use super::warm::Warm;
use super::within::{DECIDE_EVERY, Statistics};
use crate::world::{Ask, AskedWrite, Family, Imbalance, Job, Live, Simulation};
use build::TIMEOUT;

/// Time from the node's answer to the client's next request, through the network.
pub const ROUND_TRIP: Duration = Duration::from_micros(200);

/// A simulated run, which starts with caches filled as after a long time of the load.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`] with
/// the figures of a run of `baseline`.
///
/// # Memory
/// The items of the cache (a record each with a declared size, no value), live requests, of which
/// an open loop has as many as arrive within the backend's timeout, and a sample for each ten
/// seconds.
pub type World = Simulation<Tenants>;

/// Tenants that share a node.
pub struct Tenants {
    setup: Setup,
    scenario: Scenario,
    clients: Clients,
    parts: Vec<Part>,
    /// Time after which each backend answers.
    latencies: Vec<Duration>,
    /// Least bytes of network that a request of each tenant takes.
    least_bytes: Vec<f64>,
    warm: Warm,
    decide: Decide,
    /// The plan of the single decision, if there was one; it is applied at once.
    once: Option<Plan>,
    decisions: u64,
    applied: u64,
    /// Statistics for the policy that divides each tenant's cache; none without such a policy.
    statistics: Option<Statistics>,
    /// True if tenants have no shares of their own.
    is_shared: bool,
    /// Units of each resource that each tenant had used at the start of the measurement.
    used_before: Vec<Vec<f64>>,
    recorder: Recorder,
}

/// The only node.
const NODE: usize = 0;

/// Events of tenants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A client sends its next request.
    Begin { client: u32 },
    /// The level between tenants has something to do.
    Between,
    /// The policy within each tenant decides.
    Within,
    /// The caches are filled as after a long time.
    Fill,
    /// Ten seconds are over.
    Bucket,
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    client: u32,
    tenant: TenantId,
    /// The longest pause that a refused operation asks the client for; none if all went well.
    pause: Option<Duration>,
}

impl Family for Tenants {
    type Key = Key;
    type Client = Sender;
    type Event = Event;

    fn happen(world: &mut World, event: Event) {
        match event {
            Event::Begin { client } => world.send_next(client),
            Event::Between => world.decide_between(),
            Event::Within => world.decide_within(),
            Event::Fill => world.fill(),
            Event::Bucket => world.end_bucket(),
        }
    }

    fn ask(&mut self, now: Instant, &mut Sender { client, tenant, .. }: &mut Sender) -> Ask<Key> {
        let Self { clients, parts, .. } = self;
        let first = parts.partition_point(|part| part.tenant < tenant);
        let mut ask = Ask { queries: Vec::new(), writes: Vec::new() };
        for (index, operation) in (first..).zip(clients.next_request(client, now)) {
            let (partition, Part { backend, value_bytes, .. }) =
                (PartitionId::from_index(index), parts[index]);
            match operation {
                Operation::Get(rank) => ask.queries.push(Query {
                    backend,
                    partition,
                    keys: vec![Key::new(tenant.0, rank)],
                    demand: Demand { tenant, ..Demand::default() },
                    timeout: TIMEOUT,
                    staleness: Staleness::default(),
                    shared: None,
                }),
                Operation::Set(rank) => ask.writes.push(AskedWrite {
                    backend,
                    partition,
                    key: Key::new(tenant.0, rank),
                    bytes: value_bytes,
                    options: WriteOptions { tenant, cache_first: true, admit: true },
                }),
            }
        }
        ask
    }

    fn tenant(sender: &Sender) -> TenantId {
        sender.tenant
    }

    fn client_bytes(&self, sender: &Sender) -> f64 {
        self.least_bytes[sender.tenant.index()]
    }

    fn looked_up(&mut self, now: Instant, live: &Live<Key, Sender>) {
        for (query, mut ended) in live.request.iter().flat_map(|request| request.queries()) {
            let is_hit = ended.next().is_some();
            self.recorder.read(now, live.client.tenant, is_hit);
            if is_hit && let Some(statistics) = &mut self.statistics {
                statistics.operation(now, query.partition, now - live.began);
            }
        }
    }

    fn operation_ended(&mut self, now: Instant, live: &Live<Key, Sender>, partition: PartitionId) {
        if let Some(statistics) = &mut self.statistics {
            statistics.operation(now, partition, now - live.began);
        }
    }

    fn refused(sender: &mut Sender, retry_in: Option<Duration>) {
        sender.pause = sender.pause.max(Some(pause_after_refusal(retry_in)));
    }

    fn write_failed(sender: &mut Sender) {
        Self::refused(sender, None);
    }

    /// In a closed loop, the client then sends its next request, after a pause if an operation was
    /// refused.
    fn finish(world: &mut World, live: Live<Key, Sender>, finished: FinishedRequest) {
        let (now, at) = (world.now, world.now + ROUND_TRIP);
        let Live { mut client, request, began, .. } = live;
        for (.., answer) in request.iter().flat_map(|request| request.answers()) {
            match answer.error {
                Some(FetchError::OverRate(refusal)) => Self::refused(&mut client, Some(refusal.retry_in())),
                Some(_) => Self::refused(&mut client, None),
                None => {}
            }
        }
        let Sender { client, tenant, pause } = client;
        let Self { clients, recorder, statistics, .. } = &mut world.family;
        recorder.request(now, tenant, at - began, pause.is_none());
        if let Some(statistics) = statistics {
            statistics.request(now, tenant, finished);
        }
        if !clients.is_open(client) {
            world.schedule(at + pause.unwrap_or_default(), Event::Begin { client });
        }
    }

    fn fades_curves(&self) -> bool {
        !self.setup.knobs.is_warm
    }

    fn service_time(&mut self, _: Instant, backend: BackendId, _: &Job<Key>) -> Duration {
        self.latencies[backend.index()]
    }

    fn read(&mut self, _: BackendId, _: ReplicaId, _: Instant, key: &FetchKey<Key>) -> u32 {
        self.parts[key.partition.index()].value_bytes
    }
}

impl World {
    /// Returns the simulation of a run at its start.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut world = build::world(setup)?;
        world.begin_run();
        Ok(world)
    }

    /// Returns the counters and sizes of a partition. The partitions of a tenant are adjacent, in
    /// the order of its loads.
    #[must_use]
    pub fn usage(&self, partition: PartitionId) -> Usage {
        self.nodes[NODE].cache.usage(partition)
    }

    /// Returns the units of each resource that each tenant was charged for since the start.
    #[must_use]
    pub fn charged(&self) -> Vec<Vec<f64>> {
        self.used()
    }

    /// Samples of the run so far, one for each ten seconds.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.family.recorder.samples()
    }

    /// Returns the figures of the measured part so far.
    #[must_use]
    pub fn measured(&self) -> Measured {
        self.family.recorder.measured(self.now, &self.family.scenario)
    }

    /// Processes all events before `until` and then checks that all counters balance. If `until` is
    /// the end of the run, events at the end are included.
    ///
    /// # Errors
    /// If they do not balance, which is a bug.
    pub fn advance(&mut self, until: Instant) -> Result<(), Imbalance> {
        self.run(until)
    }

    fn begin_run(&mut self) {
        self.apply(NODE, self.plan());
        if self.family.setup.knobs.is_warm {
            self.schedule(Instant::ZERO, Event::Fill);
        }
        for client in 0..self.family.clients.len() {
            let after = self.family.clients.next_gap(client, Instant::ZERO).unwrap_or_default();
            self.schedule(Instant::ZERO + after, Event::Begin { client });
        }
        // Ends of ten seconds are also ends of ten seconds of the measurement.
        let first = self.family.scenario.warm_up.0.as_nanos() % BUCKET.as_nanos();
        let first = if first == 0 { BUCKET } else { Duration::from_nanos(first as u64) };
        self.schedule(Instant::ZERO + first, Event::Bucket);
        if self.family.is_shared {
            return;
        }
        self.schedule(self.family.first_round(), Event::Between);
        if self.family.statistics.is_some() {
            self.schedule(Instant::ZERO + DECIDE_EVERY, Event::Within);
        }
    }

    /// Sends the next request of a client.
    fn send_next(&mut self, client: u32) {
        let (now, clients) = (self.now, &mut self.family.clients);
        let (gap, tenant) = (clients.next_gap(client, now), clients.tenant(client));
        if let Some(gap) = gap {
            self.schedule(now + gap, Event::Begin { client });
        }
        let request = self.begin(NODE as u16, now, Sender { client, tenant, pause: None });
        self.arrive(request);
    }

    fn fill(&mut self) {
        self.family.warm.fill(&self.nodes[NODE].cache, self.now);
    }
}

#[cfg(test)]
mod tests;
