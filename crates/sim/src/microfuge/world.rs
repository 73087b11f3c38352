//! The simulation: clients, the cache and the servers, and a clock that advances from event to
//! event.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_core::Rng as _;
use sherwood_cache::{Access, Cache, DeadlineOptions, NewItem, Options as CacheOptions, Partition, charge};
use sherwood_control::{Admission, AdmissionSeen};
use sherwood_dispatch::{FetchError, Reply};
use sherwood_model::{
    BackendId, DeadlineClasses, Demand, Instant, PartitionId, ReplicaId, SeededState, TenantId,
};
use sherwood_path::{
    Action, Backend, BackendOptions, Change, FetchKey, Write, WriteId, WriteOptions, WriteOrder, WriteOutcome,
};
use sherwood_workload::Rng;

use super::SERVERS;
use super::clairvoyant::{Clairvoyant, Read};
use super::clients::{Clients, Drawn};
use super::key::{KEY_BYTES, Key};
use super::policy::{Caching, Policy, Scheduling};
use super::results::{Outcome, Recorder, Results, Sample};
use super::servers::{Job, Servers, Work};
use super::setup::{Setup, SetupError};
use crate::events::EventQueue;
use crate::server::SizedCache;
use crate::slab::Slab;
use crate::traffic::stream;
use crate::onerf::Imbalance;

/// A simulated run, which starts with an empty cache.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`]. The
/// state changes only at events, so results do not depend on the times at which `advance` stops.
///
/// # Memory
/// The items of the cache (a record each with a declared size, no value), live requests, of which
/// an open loop has as many as arrive within the backend's timeout, and a sample per second.
pub struct World {
    setup: Setup,
    policy: Policy,
    now: Instant,
    events: EventQueue<Event>,
    clients: Clients,
    cache: Cache,
    backend: Backend<Key, u32, u32>,
    /// The choice of β, if admission has a target.
    admission: Admission,
    /// The time at which the backend is woken up next.
    armed: Option<Instant>,
    /// Random numbers with which the dispatcher chooses replicas.
    route_draws: Rng,
    servers: Servers,
    clairvoyant: Clairvoyant,
    live: Slab<Live>,
    /// The requests of the writes in flight.
    writes: BTreeMap<WriteId, u32>,
    began: u64,
    ended: u64,
    recorder: Recorder,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client sends its next request.
    Begin { stream: u32 },
    /// A request reaches the cache.
    LookUp { request: u32 },
    /// A server finishes this job.
    Done { job: u32 },
    /// A server of the clairvoyant scheduler finishes the read in this slot.
    DoneClairvoyant { server: ReplicaId, slot: u32 },
    /// A wake-up that the backend scheduled.
    Wake,
    /// The control loop chooses β.
    Decide,
    /// A second is over.
    Sample,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct Live {
    stream: u32,
    /// Number of the request since the start.
    number: u64,
    began: Instant,
    drawn: Drawn,
}

/// Time of a look-up in the cache, with the network.
const LOOK_UP: Duration = Duration::from_micros(500);
/// Size of every value.
const VALUE_BYTES: u32 = 1_024;
/// Number of the stream of random draws with which the dispatcher chooses replicas.
const ROUTES: u64 = 1;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Interval of decisions of the control loop, a node's default.
const DECIDE_EVERY: Duration = Duration::from_secs(5);

const PARTITION: PartitionId = PartitionId(0);
const BACKEND: BackendId = BackendId(0);

impl World {
    /// Returns the simulation of a run at its start.
    ///
    /// # Errors
    /// If the policy does not exist or a number is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let policy = setup.validate()?;
        let hash = SeededState::new(0);
        let records = setup.knobs.records / 5;
        let total_bytes = records * charge(KEY_BYTES, VALUE_BYTES as usize) as u64;
        let options = CacheOptions {
            total_bytes,
            shards: 1,
            eviction: setup.knobs.eviction.unwrap_or(policy.eviction),
            ..CacheOptions::sized(total_bytes, 1)
        };
        let deadlines = match policy.caching {
            Caching::None | Caching::Lru => DeadlineOptions::ONE,
            Caching::Deadlines(cost) => DeadlineOptions {
                classes: DeadlineClasses::of_equal_width(setup.knobs.classes, setup.knobs.classes_upto)?,
                step: setup.knobs.epsilon,
                cost,
            },
        };
        let partition = Partition { deadlines, ..Partition::new(TenantId(0), BACKEND, total_bytes) };
        let backend = BackendOptions::new(policy.dispatch(&setup.knobs)?, SERVERS.into(), vec![PARTITION]);
        let mut world = Self {
            policy,
            now: Instant::ZERO,
            events: EventQueue::default(),
            clients: Clients::new(setup)?,
            cache: Cache::new(options, &[partition], hash)?,
            admission: Admission::new(backend.dispatch.admit.target().map(|target| (BACKEND, target))),
            backend: Backend::new(backend, Instant::ZERO, hash)?,
            armed: None,
            route_draws: stream(setup.seed, ROUTES),
            servers: Servers::new(setup),
            clairvoyant: Clairvoyant::new(setup),
            live: Slab::new(),
            writes: BTreeMap::new(),
            began: 0,
            ended: 0,
            recorder: Recorder::new(),
            setup: setup.clone(),
        };
        world.begin();
        Ok(world)
    }

    /// End of the run's measurement.
    #[must_use]
    pub fn end(&self) -> Instant {
        Instant::ZERO + self.setup.duration()
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

    /// Samples of the run so far, one per second.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.recorder.samples()
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

    /// Returns the results of the run so far. A request that still waits has missed its deadline if
    /// that has passed.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut recorder = self.recorder.clone();
        for live in self.live.iter() {
            let waited = self.now - live.began;
            if waited > live.drawn.within {
                recorder.count(&live.drawn, waited, Outcome::Answered, self.is_measured());
            }
        }
        recorder.results(&self.setup, self.now >= self.end())
    }

    fn begin(&mut self) {
        for stream in 0..self.clients.streams() {
            let after = self.clients.next_gap(stream, Instant::ZERO).unwrap_or_default();
            self.events.schedule(Instant::ZERO + after, Event::Begin { stream });
        }
        self.events.schedule(Instant::ZERO + SAMPLE_EVERY, Event::Sample);
        self.events.schedule(Instant::ZERO + DECIDE_EVERY, Event::Decide);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin { stream } => self.send(stream),
            Event::LookUp { request } => self.look_up(request),
            Event::Done { job } => self.done(job),
            Event::DoneClairvoyant { server, slot } => self.done_clairvoyant(server, slot),
            Event::Wake => self.wake(),
            Event::Decide => self.decide(),
            Event::Sample => {
                let classes = self.cache.class_usage(PARTITION);
                let multipliers = classes.iter().map(|class| class.multiplier).collect();
                let beta = self.backend.stats().beta;
                self.recorder.sample(self.now.as_nanos() as f64 / 1e9, beta, multipliers);
                self.events.schedule(self.now + SAMPLE_EVERY, Event::Sample);
            }
        }
    }

    /// Chooses β for the target of admission, if it has one.
    fn decide(&mut self) {
        if self.admission.is_empty() {
            return;
        }
        let seen = AdmissionSeen::of(BACKEND, &self.backend.stats(), self.recorder.ended());
        let plans = self.admission.propose(self.now, &[seen]);
        plans.iter().for_each(|plan| self.backend.apply(plan));
        self.events.schedule(self.now + DECIDE_EVERY, Event::Decide);
    }

    /// Sends the next request of a stream.
    fn send(&mut self, stream: u32) {
        self.began += 1;
        let drawn = self.clients.next_request(stream);
        let request = self.live.insert(Live { stream, number: self.began, began: self.now, drawn });
        self.events.schedule(self.now + LOOK_UP, Event::LookUp { request });
        if let Some(gap) = self.clients.next_gap(stream, self.now) {
            self.events.schedule(self.now + gap, Event::Begin { stream });
        }
    }

    /// Looks a request up in the cache, and asks the store for what is not there.
    fn look_up(&mut self, request: u32) {
        let Some(&Live { number, began, drawn, .. }) = self.live.get(request) else { return };
        // Reads that may not be joined are different keys to the dispatcher.
        let fetch = if self.policy.joins || drawn.is_write { 0 } else { number };
        let key = Key::new(drawn.tenant.0, drawn.record, fetch, drawn.draw);
        if drawn.is_write {
            return self.write(request, key);
        }
        let class = self.cache.deadline_class(PARTITION, drawn.within);
        let Drawn { tenant, within, .. } = drawn;
        let demand = Demand { tenant, deadline: Some(began + within), class, ..Demand::default() };
        let access = Access { class: Some(class), ..Access::at(self.now) };
        let caches = self.policy.caching != Caching::None;
        if caches && self.cache.get(PARTITION, key.as_ref(), &access, |_| ()).is_some() {
            return self.end_request(request, Outcome::Hit);
        }
        if matches!(self.policy.scheduling, Scheduling::Clairvoyant) {
            return self.read_clairvoyantly(request, key, &demand);
        }
        let entropy = self.route_draws.next_u64();
        let keys = [(FetchKey { partition: PARTITION, key }, request)];
        let cache = SizedCache(&self.cache);
        self.backend.handle_fetch_from(self.now, &cache, key.holders(), &demand, keys, entropy);
        self.drive();
    }

    /// Has the clairvoyant scheduler read a record.
    fn read_clairvoyantly(&mut self, request: u32, key: Key, demand: &Demand) {
        let Demand { class, deadline: Some(deadline), .. } = *demand else { return };
        let time = self.servers.read_time(key);
        let read = Read { key, class, deadline, time, requests: vec![request] };
        match self.clairvoyant.accept(self.now, key.holders(), read) {
            Some(server) => self.start_clairvoyantly(server),
            None => self.end_request(request, Outcome::Rejected),
        }
    }

    fn start_clairvoyantly(&mut self, server: ReplicaId) {
        while let Some((slot, end)) = self.clairvoyant.start_next(self.now, server) {
            self.events.schedule(end, Event::DoneClairvoyant { server, slot });
        }
    }

    fn done_clairvoyant(&mut self, server: ReplicaId, slot: u32) {
        let Some(Read { key, class, requests, .. }) = self.clairvoyant.complete(server, slot) else { return };
        // The cache has room for more than one record, so that none is refused for its size.
        let access = Access { class: Some(class), ..Access::at(self.now) };
        let _ = self.cache.set(PARTITION, key.as_ref(), NewItem::declared(VALUE_BYTES), &access);
        for request in requests {
            self.end_request(request, Outcome::Answered);
        }
        self.start_clairvoyantly(server);
    }

    fn write(&mut self, request: u32, key: Key) {
        let (change, options) = (Change::Put(VALUE_BYTES), WriteOptions::default());
        let write = Write { key, change, partition: Some(PARTITION), options };
        match self.backend.handle_write(self.now, &SizedCache(&self.cache), write) {
            Ok(write) => {
                self.writes.insert(write, request);
                self.drive();
            }
            Err(_) => self.end_request(request, Outcome::Rejected),
        }
    }

    /// Performs the pending actions of the backend.
    fn drive(&mut self) {
        while let Some(action) = self.backend.poll_action() {
            match action {
                Action::Call { attempt, replica, keys, .. } => {
                    for key in keys {
                        self.serve(Job { server: replica, work: Work::Read { attempt, key } });
                    }
                }
                Action::Deliver { result, waiters, .. } => {
                    let outcome = match result {
                        Err(
                            FetchError::Rejected { .. }
                            | FetchError::NotAdmitted { .. }
                            | FetchError::Overloaded { .. },
                        ) => Outcome::Rejected,
                        _ => Outcome::Answered,
                    };
                    for request in waiters {
                        self.end_request(request, outcome);
                    }
                }
                Action::StartWrite(write) => self.start_write(write),
                Action::EndWrite { write, .. } => {
                    if let Some(request) = self.writes.remove(&write) {
                        self.end_request(request, Outcome::Answered);
                    }
                }
                // A call that is no longer needed is served nevertheless; servers are never down.
                Action::Cancel { .. } | Action::Probe { .. } => {}
            }
        }
        if let Some(due) = self.backend.next_timeout()
            && self.armed.is_none_or(|armed| due < armed)
        {
            self.armed = Some(due);
            self.events.schedule(due, Event::Wake);
        }
    }

    fn wake(&mut self) {
        if self.armed == Some(self.now) {
            self.armed = None;
        }
        self.backend.handle_timeout(self.now, &SizedCache(&self.cache));
        self.drive();
    }

    /// Sends a write to the servers of its record. The others have nothing to write.
    fn start_write(&mut self, write: WriteId) {
        let Some(WriteOrder { replicas, key, .. }) = self.backend.take_write(self.now, write) else { return };
        for server in replicas {
            if key.holders().include(server, SERVERS.into()) {
                self.serve(Job { server, work: Work::Write(write) });
            } else {
                self.acknowledge(write, server);
            }
        }
    }

    fn acknowledge(&mut self, write: WriteId, server: ReplicaId) {
        let outcome = WriteOutcome::Acknowledged;
        self.backend.handle_write_reply(self.now, &SizedCache(&self.cache), write, server, outcome);
    }

    fn serve(&mut self, job: Job) {
        let server = job.server;
        self.servers.enqueue(self.now, job);
        self.start_jobs(server);
    }

    fn start_jobs(&mut self, server: ReplicaId) {
        while let Some((job, time)) = self.servers.start_next(self.now, server) {
            self.events.schedule(self.now + time, Event::Done { job });
        }
    }

    fn done(&mut self, job: u32) {
        let Some(Job { server, work }) = self.servers.complete(job) else { return };
        match work {
            Work::Read { attempt, .. } => {
                let reply = Reply::Ok(vec![Some(VALUE_BYTES)]);
                self.backend.handle_reply(self.now, &SizedCache(&self.cache), attempt, reply);
            }
            Work::Write(write) => self.acknowledge(write, server),
        }
        self.start_jobs(server);
        self.drive();
    }

    /// Records a request that has its answer. In a closed loop, its client sends the next one.
    fn end_request(&mut self, request: u32, outcome: Outcome) {
        let Some(Live { stream, began, drawn, .. }) = self.live.remove(request) else { return };
        self.ended += 1;
        self.recorder.count(&drawn, self.now - began, outcome, self.is_measured());
        if !self.clients.are_open() {
            self.events.schedule(self.now, Event::Begin { stream });
        }
    }

    fn is_measured(&self) -> bool {
        self.now >= self.setup.measured_from()
    }
}

#[cfg(test)]
mod tests;
