//! The set-up (kind of simulation) of MicroFuge: clients with deadlines, a cache, and a store of
//! many servers.

mod build;

use std::time::Duration;

use sherwood_cache::{Access, ClassUsage, NewItem, Usage};
use sherwood_control::{AdmissionSeen, CacheSeen, Seen};
use sherwood_dispatch::{FetchError, Stats};
use sherwood_model::{BackendId, Demand, FinishedRequest, Instant, PartitionId, ReplicaId};
use sherwood_path::{FetchKey, Query, QueryFetch, Staleness, Status, WriteOptions};
use sherwood_workload::ReadTimes;

use super::clairvoyant::{Clairvoyant, Read};
use super::clients::{Clients, Drawn};
use super::key::{Key, holders};
use super::policy::{Policy, Scheduling, TIMEOUT};
use super::results::{Outcome, Recorder, Results, Sample};
use super::setup::{Setup, SetupError};
use crate::world::{Ask, AskedWrite, Family, Imbalance, Job, Live, Simulation, Waiter, Work};

/// A simulated run, which starts with an empty cache.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`].
///
/// # Memory
/// The items of the cache (a record each with a declared size, no value), live requests, of which
/// an open loop has as many as arrive within the backend's timeout, and a sample per second.
pub type World = Simulation<MicroFuge>;

/// Clients with deadlines in front of a cache and a store.
pub struct MicroFuge {
    setup: Setup,
    policy: Policy,
    clients: Clients,
    times: ReadTimes,
    clairvoyant: Clairvoyant<Waiter>,
    /// True if admission control has a target, for which the control loop chooses β.
    has_target: bool,
    recorder: Recorder,
}

/// Events of clients and of the clairvoyant scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A client sends its next request.
    Begin { stream: u32 },
    /// A request reaches the cache.
    LookUp { request: u32 },
    /// A server of the clairvoyant scheduler finishes the read in this slot.
    DoneClairvoyant { server: ReplicaId, slot: u32 },
    /// The control loop chooses β.
    Decide,
    /// A second is over.
    Sample,
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    stream: u32,
    /// Number of the request since the start.
    number: u64,
    deadline: Instant,
    drawn: Drawn,
    /// True if the store refused the write.
    is_refused: bool,
}

/// Time of a look-up in the cache, with the network.
pub(super) const LOOK_UP: Duration = Duration::from_micros(500);
/// Size of every value.
const VALUE_BYTES: u32 = 1_024;
/// Service time of a write, as a multiple of the workload's time scale: a record is appended to a
/// log.
const WRITE_SCALES: f64 = 0.05;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Interval of decisions of the control loop, a node's default.
const DECIDE_EVERY: Duration = Duration::from_secs(5);

/// The only node, with the only partition and backend.
const NODE: usize = 0;
const PARTITION: PartitionId = PartitionId(0);
const BACKEND: BackendId = BackendId(0);

impl Family for MicroFuge {
    type Key = Key;
    type Client = Sender;
    type Event = Event;

    fn happen(world: &mut World, event: Event) {
        match event {
            Event::Begin { stream } => world.send_next(stream),
            Event::LookUp { request } => world.arrive(request),
            Event::DoneClairvoyant { server, slot } => world.done_clairvoyant(server, slot),
            Event::Decide => world.choose_beta(),
            Event::Sample => world.sample(),
        }
    }

    fn ask(&mut self, _: Instant, sender: &mut Sender) -> Ask<Key> {
        let Sender { number, deadline, drawn, .. } = *sender;
        let Drawn { tenant, record, is_write, draw, .. } = drawn;
        // Reads that may not be joined are different keys to the dispatcher.
        let fetch = if self.policy.joins || is_write { 0 } else { number };
        let key = Key::new(tenant.0, record, fetch, draw);
        if is_write {
            let options = WriteOptions::default();
            let write =
                AskedWrite { backend: BACKEND, partition: PARTITION, key, bytes: VALUE_BYTES, options };
            return Ask { queries: Vec::new(), writes: vec![write] };
        }
        let query = Query {
            backend: BACKEND,
            partition: PARTITION,
            keys: vec![key],
            demand: Demand { tenant, deadline: Some(deadline), ..Demand::default() },
            timeout: TIMEOUT,
            staleness: Staleness::default(),
            shared: None,
        };
        Ask { queries: vec![query], writes: Vec::new() }
    }

    fn refused(sender: &mut Sender, _: Option<Duration>) {
        sender.is_refused = true;
    }

    fn takes(world: &mut World, request: u32, fetch: &QueryFetch<Key>) -> bool {
        let is_clairvoyant = matches!(world.family.policy.scheduling, Scheduling::Clairvoyant);
        if is_clairvoyant {
            for &(key, slot) in &fetch.keys {
                world.read_clairvoyantly(Waiter { request, slot }, key, &fetch.demand);
            }
        }
        is_clairvoyant
    }

    /// In a closed loop, the client then sends its next request.
    fn finish(world: &mut World, live: Live<Key, Sender>, _: FinishedRequest) {
        let (now, is_measured) = (world.now, world.is_measured());
        let Live { client: Sender { stream, drawn, is_refused, .. }, began, request, .. } = live;
        let read = request.iter().flat_map(|request| request.answers()).next();
        let outcome = match read.map(|(.., answer)| answer.status) {
            Some(Status::Hit) => Outcome::Hit,
            Some(Status::Rejected) => Outcome::Rejected,
            None if is_refused => Outcome::Rejected,
            Some(_) | None => Outcome::Answered,
        };
        world.family.recorder.count(&drawn, now - began, outcome, is_measured);
        if !world.family.clients.are_open() {
            world.schedule(now, Event::Begin { stream });
        }
    }

    fn service_time(&mut self, _: Instant, _: BackendId, job: &Job<Key>) -> Duration {
        match &job.work {
            Work::Call { keys, .. } => keys.iter().map(|key| self.times.of(key.key.draw)).sum(),
            Work::Probe | Work::Write { .. } | Work::Echo { .. } => self.times.scale.mul_f64(WRITE_SCALES),
        }
    }

    fn read(&mut self, _: BackendId, _: ReplicaId, _: Instant, _: &FetchKey<Key>) -> u32 {
        VALUE_BYTES
    }
}

impl World {
    /// Returns the simulation of a run at its start.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut world = build::world(setup)?;
        for stream in 0..world.family.clients.streams() {
            let after = world.family.clients.next_gap(stream, Instant::ZERO).unwrap_or_default();
            world.schedule(Instant::ZERO + after, Event::Begin { stream });
        }
        world.schedule(Instant::ZERO + SAMPLE_EVERY, Event::Sample);
        if world.family.has_target {
            world.schedule(Instant::ZERO + DECIDE_EVERY, Event::Decide);
        }
        Ok(world)
    }

    /// The cache's counters and sizes.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.nodes[NODE].cache.usage(PARTITION)
    }

    /// The cache's counters and sizes by class of deadlines.
    #[must_use]
    pub fn class_usage(&self) -> Vec<ClassUsage> {
        self.nodes[NODE].cache.class_usage(PARTITION)
    }

    /// The dispatcher's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.nodes[NODE].machines[BACKEND.index()].stats()
    }

    /// Returns the numbers of deadlines since the start that were met, and that were missed;
    /// rejected requests are not counted.
    #[must_use]
    pub fn ended(&self) -> (u64, u64) {
        self.family.recorder.ended()
    }

    /// Samples of the run so far, one per second.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.family.recorder.samples()
    }

    /// Processes all events before `until` and then checks that all counters balance. If `until` is
    /// the end of the run, events at the end are included.
    ///
    /// # Errors
    /// If they do not balance, which is a bug.
    pub fn advance(&mut self, until: Instant) -> Result<(), Imbalance> {
        self.run(until)
    }

    /// Returns the results of the run so far. A request that still waits has missed its deadline if
    /// that has passed.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut recorder = self.family.recorder.clone();
        for live in self.live.iter() {
            let (drawn, waited) = (&live.client.drawn, self.now - live.began);
            if waited > drawn.within {
                recorder.count(drawn, waited, Outcome::Answered, self.is_measured());
            }
        }
        recorder.results(&self.family.setup, self.now >= self.end)
    }

    /// Sends the next request of a stream.
    fn send_next(&mut self, stream: u32) {
        let (now, number) = (self.now, self.began + 1);
        let drawn = self.family.clients.next_request(stream);
        let deadline = now + drawn.within;
        let sender = Sender { stream, number, deadline, drawn, is_refused: false };
        let request = self.begin(NODE as u16, now, sender);
        self.schedule(now + LOOK_UP, Event::LookUp { request });
        if let Some(gap) = self.family.clients.next_gap(stream, now) {
            self.schedule(now + gap, Event::Begin { stream });
        }
    }

    /// Makes the control loop choose β for the target of admission control.
    fn choose_beta(&mut self) {
        let node = &self.nodes[NODE];
        let stats = node.machines[BACKEND.index()].stats();
        let admissions = vec![AdmissionSeen::of(BACKEND, &stats, self.family.recorder.ended())];
        let seen = CacheSeen { admissions, ..node.cache_seen(self.now) };
        let acts = self.decide(NODE, Seen { cache: Some(seen), ..Seen::default() });
        self.carry_out(NODE, acts);
        self.schedule(self.now + DECIDE_EVERY, Event::Decide);
    }

    fn sample(&mut self) {
        let node = &self.nodes[NODE];
        let classes = node.cache.class_usage(PARTITION);
        let multipliers = classes.iter().map(|class| class.multiplier).collect();
        let beta = node.machines[BACKEND.index()].stats().beta;
        self.family.recorder.sample(self.now.as_nanos() as f64 / 1e9, beta, multipliers);
        self.schedule(self.now + SAMPLE_EVERY, Event::Sample);
    }

    /// Has the clairvoyant scheduler read a record.
    fn read_clairvoyantly(&mut self, waiter: Waiter, key: Key, demand: &Demand) {
        let Demand { class, deadline: Some(deadline), .. } = *demand else { return };
        let MicroFuge { clairvoyant, times, .. } = &mut self.family;
        let read = Read { key, class, deadline, time: times.of(key.draw), waiters: vec![waiter] };
        match clairvoyant.accept(self.now, holders(key.as_ref()), read) {
            Some(server) => self.start_clairvoyantly(server),
            None => self.tell(waiter, PARTITION, Err(FetchError::Rejected { expected: deadline - self.now })),
        }
    }

    fn start_clairvoyantly(&mut self, server: ReplicaId) {
        while let Some((slot, end)) = self.family.clairvoyant.start_next(self.now, server) {
            self.schedule(end, Event::DoneClairvoyant { server, slot });
        }
    }

    fn done_clairvoyant(&mut self, server: ReplicaId, slot: u32) {
        let done = self.family.clairvoyant.complete(server, slot);
        let Some(Read { key, class, waiters, .. }) = done else { return };
        // The cache has room for more than one record, so that none is refused for its size.
        let access = Access { class: Some(class), ..Access::at(self.now) };
        let cache = &self.nodes[NODE].cache;
        let _ = cache.set(PARTITION, key.as_ref(), NewItem::declared(VALUE_BYTES), &access);
        for waiter in waiters {
            self.tell(waiter, PARTITION, Ok(Some(VALUE_BYTES)));
        }
        self.start_clairvoyantly(server);
    }

    fn is_measured(&self) -> bool {
        self.now >= self.family.setup.measured_from()
    }
}

#[cfg(test)]
mod tests;
