//! The simulation: servers, backends, and a clock that advances from event to event.

use std::collections::VecDeque;
use std::time::Duration;

use rand_core::Rng as _;
use sherwood_cache::Access;
use sherwood_dispatch::{AttemptId, QueuedCall, Reply};
use sherwood_model::{BackendId, Demand, Instant, ReplicaId, Slo};
use sherwood_path::{Action, FetchKey, Query, Request};
use sherwood_policy::{TaoMode, by_name};
use sherwood_workload::Rng;
use sherwood_workload::onerf::Limits;
use thiserror::Error;

pub use self::fork::ForkError;

use crate::backend::{Job, SimulatedBackend, Work, left_of, limit_at};
use crate::events::EventQueue;
use crate::key::Key;
use crate::partitions::Partitions;
use crate::record::{Backlog, Recorder};
use crate::recorded::{NoMore, TraceStop};
use crate::results::{Results, Sample};
use crate::sample::ECHOES_WITHIN;
use crate::server::{Server, SizedCache, Waiter};
use crate::setup::{Setup, SetupError, minutes};
use crate::sizes::Sizes;
use crate::slab::Slab;
use crate::statistics::{Known, Statistics};
use crate::traffic::{Arrived, Traffic, stream};

/// A simulated run, which starts with empty caches.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`]. The
/// state changes only at events, so results do not depend on the times at which `advance` stops.
///
/// # Time
/// A request is looked up the model's hit latency after its arrival; calls wait for a worker of
/// their backend and occupy it for the model's service time, computed with the limit in force when
/// service begins. Servers report once a second, on the second. Controllers decide every Δ, half a
/// second after a report, on statistics of the configured age. The SLO is measured on all finished
/// requests, without delay.
///
/// # Memory
/// The items of the caches (a record each with a declared size, no value), live requests and calls,
/// and a sample per observation of the SLO.
pub struct World {
    /// The setup as given; [`Self::setup`] has the values of its profile filled in.
    asked: Setup,
    setup: Setup,
    limits: Limits,
    depth: f64,
    hit_latency: Duration,
    measured_from: Instant,
    end: Instant,
    now: Instant,
    partitions: Partitions,
    events: EventQueue<Event>,
    traffic: Traffic,
    /// Reason for which the trace has no further requests, once it has ended.
    stop: Option<TraceStop>,
    /// Sizes of the requested objects, if given by a trace.
    sizes: Option<Sizes>,
    /// Number of calls that each call represents beside itself, when a sample of the keys is
    /// simulated.
    echoes: u32,
    echo_draws: Rng,
    /// Random numbers with which dispatchers choose replicas.
    route_draws: Rng,
    servers: Vec<Server>,
    backends: Vec<SimulatedBackend>,
    jobs: Slab<Job>,
    live: Slab<Live>,
    statistics: Statistics,
    /// Statistics sent to controllers for pending decisions, oldest first; their number is bounded
    /// by the age of statistics.
    told: VecDeque<Known>,
    recorder: Recorder,
    /// Keys looked up by all servers since the start.
    queries: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request that has arrived is looked up in its server's cache.
    LookUp,
    /// A worker of this backend finishes this job.
    Done { backend: u16, job: u32 },
    /// An echo (a call that stands for one not in the sample) reaches this backend.
    Echo { backend: u16, job: u32 },
    /// A wake-up that the state machine of a server's backend scheduled.
    Wake { server: u16, backend: u16 },
    /// Every server reports its statistics.
    Report,
    /// Every controller reads the statistics.
    Ask,
    /// Every controller decides on the statistics that it read.
    Decide,
    /// The SLO is observed.
    Observe,
}

/// A request that has not finished.
#[derive(Clone)]
struct Live {
    server: u16,
    request: Request<Key, u32>,
}

/// Inputs and outputs differ: the simulation has a bug, and its results are invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the books do not balance after {seconds} s: {what} is {found}, should be {expected}; this is a bug, please report it with the command line"
)]
pub struct Imbalance {
    /// Simulated seconds since the start.
    pub seconds: u64,
    /// Name of the quantity that does not balance.
    pub what: &'static str,
    /// Value found of the quantity.
    pub found: u64,
    /// Expected value, or upper bound, of the quantity.
    pub expected: u64,
}

/// Reason for which a run stops.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Halt {
    /// The simulation has a bug.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// The trace has no further requests; the results so far are incomplete.
    #[error(transparent)]
    Trace(#[from] TraceStop),
}

/// Number of the stream of random draws for the times of echoes.
const ECHOES: u64 = 4;
/// Number of the stream of random draws with which dispatchers choose replicas.
const ROUTES: u64 = 5;

const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Time between the servers' report and the controllers' reading of the statistics.
const ASK_AFTER: Duration = Duration::from_millis(500);

impl World {
    /// Returns the simulation of a run at its start.
    ///
    /// # Errors
    /// If the setup names something that does not exist, or a number in it is out of range.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        Self::with_tenants(setup, 1)
    }

    /// Returns a simulation of several tenants, which send equally many requests and share no keys
    /// in the cache.
    fn with_tenants(setup: &Setup, tenants: u16) -> Result<Self, SetupError> {
        setup.validate()?;
        let asked = setup.clone();
        let mut setup = asked.clone();
        setup.scale_bytes()?;
        let profile = *setup.profile()?;
        let scenario = setup.scenario()?;
        let (model, knobs) = (&setup.model, &setup.knobs);
        let servers = knobs.servers.unwrap_or(profile.app_servers);
        let slo = model.slo();
        let slo = Slo {
            percentile: slo.percentile,
            bound: Duration::from_secs_f64(slo.limit_ms / 1e3),
            window: Duration::from_secs_f64(slo.window_s),
            observe: Duration::from_secs_f64(slo.every_s),
        };
        let measured_from = Instant::ZERO + minutes(scenario.warmup_min);
        let partitions = Partitions::new(tenants, model.backends().len());
        let needs = by_name(&setup.policy, &knobs.control)?.needs();
        let mut world = Self {
            asked,
            limits: scenario.limits(knobs.walk),
            depth: setup.limit_depth()?,
            hit_latency: model.hit_latency(),
            measured_from,
            end: measured_from + minutes(scenario.measure_min),
            now: Instant::ZERO,
            partitions,
            events: EventQueue::default(),
            traffic: Traffic::new(&setup, partitions, servers)?,
            stop: None,
            sizes: model.replay().map(|_| Sizes::new()),
            echoes: knobs.sample - 1,
            echo_draws: stream(setup.seed, ECHOES),
            route_draws: stream(setup.seed, ROUTES),
            servers: (0..servers)
                .map(|number| Server::new(&setup, partitions, number.into()))
                .collect::<Result<_, _>>()?,
            backends: model
                .backends()
                .iter()
                .map(|model| SimulatedBackend::new(model, &setup.profile, setup.seed))
                .collect(),
            jobs: Slab::new(),
            live: Slab::new(),
            told: VecDeque::new(),
            statistics: Statistics::new(partitions, slo.window, knobs.control.rbc_window, &needs),
            recorder: Recorder::new(slo, partitions, measured_from),
            queries: 0,
            setup,
        };
        world.begin();
        Ok(world)
    }

    /// End of the run's measurement.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Current simulated time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of keys looked up so far.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Processes all events before `until` and then checks that inputs and outputs agree. Events at
    /// [`World::end`] itself are included if that is `until`.
    ///
    /// # Errors
    /// If inputs and outputs differ, or a trace ends before the run does, at its last request.
    pub fn advance(&mut self, until: Instant) -> Result<(), Halt> {
        // Events at the end are part of the run: the last observation is.
        let before = if until < self.end { until } else { self.end + Duration::from_nanos(1) };
        while self.stop.is_none()
            && let Some((at, event)) = self.events.take_before(before)
        {
            self.now = at;
            self.happen(event);
        }
        if let Some(stop) = &self.stop {
            self.balance()?;
            return Err(stop.clone().into());
        }
        self.now = self.now.max(until.min(self.end));
        Ok(self.balance()?)
    }

    /// Reason for which the trace has no further requests, if that stopped the run.
    #[must_use]
    pub fn trace_stop(&self) -> Option<&TraceStop> {
        self.stop.as_ref()
    }

    /// Returns the results of the run so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let errors = self.machines().map(|machine| {
            let counters = machine.stats().counters;
            counters.timed_out + counters.failed + counters.refused
        });
        self.recorder.results(&self.setup, self.now >= self.end, errors.sum())
    }

    /// Samples of the run so far, one per observation of the SLO.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.recorder.samples()
    }

    /// Returns the mean allocation of each backend in the measurement so far over the servers, in
    /// bytes: what policy `tao` learns from a run of RobinHood ([`Setup::learning`]). Empty before
    /// the first observation.
    #[must_use]
    pub fn learned_allocation(&self, mode: TaoMode) -> Vec<u64> {
        let samples = self.samples();
        let of = match mode {
            TaoMode::Mean => samples,
            TaoMode::Snapshot => &samples[samples.len().saturating_sub(1)..],
        };
        let Some(last) = of.last() else { return Vec::new() };
        let mean = |backend: usize| {
            let sum: f64 = of.iter().map(|sample| sample.backends[backend].allocation_bytes).sum();
            (sum / of.len() as f64 / f64::from(self.setup.knobs.sample)) as u64
        };
        (0..last.backends.len()).map(mean).collect()
    }

    fn begin(&mut self) {
        self.expect_arrival();
        self.events.schedule(Instant::ZERO + REPORT_EVERY, Event::Report);
        let delta = self.setup.knobs.control.delta;
        self.events.schedule(Instant::ZERO + delta + ASK_AFTER, Event::Ask);
        self.events.schedule(self.recorder.due(), Event::Observe);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::LookUp => self.look_up(),
            Event::Done { backend, job } => self.done(BackendId(backend), job),
            Event::Echo { backend, job } => self.echo(BackendId(backend), job),
            Event::Wake { server, backend } => self.wake(server, BackendId(backend)),
            Event::Report => self.report(),
            Event::Ask => self.ask(),
            Event::Decide => self.decide(),
            Event::Observe => self.observe(),
        }
    }

    fn look_up(&mut self) {
        let Arrived { server, queries, bytes } = self.traffic.next_request();
        if let Some(sizes) = &mut self.sizes {
            sizes.ask(&queries, &bytes);
        }
        self.start(server, queries);
        self.expect_arrival();
    }

    /// Starts a request at a server, and fetches what its cache does not have.
    fn start(&mut self, server: usize, queries: Vec<Query<Key>>) {
        let now = self.now;
        self.queries += queries.iter().map(|query| query.keys.len() as u64).sum::<u64>();
        let mut request = Request::start(now - self.hit_latency, queries);
        let fetches = request
            .look_up(&self.servers[server].cache, &Access::at(now), |_, _, item| item.value.len() as u32);
        let number = self.live.insert(Live { server: server as u16, request });
        if fetches.is_empty() {
            self.finish(number);
        }
        for fetch in fetches {
            let (partition, demand) = (fetch.partition, fetch.demand);
            let keys = fetch.keys.into_iter();
            let keys =
                keys.map(|(key, slot)| (FetchKey { partition, key }, Waiter { request: number, slot }));
            // A single replica needs no random number.
            let several = self.backends[fetch.backend.index()].replicas() > 1;
            let entropy = if several { self.route_draws.next_u64() } else { 0 };
            let Server { cache, machines, .. } = &mut self.servers[server];
            let machine = &mut machines[fetch.backend.index()];
            machine.handle_fetch(now, &SizedCache(cache), &demand, keys, entropy);
            self.drive(server as u16, fetch.backend);
        }
    }

    /// Schedules the look-up of the next request to arrive, or stops the run if there is none.
    fn expect_arrival(&mut self) {
        let why = match self.traffic.next_arrival() {
            Ok(at) => return self.events.schedule(at + self.hit_latency, Event::LookUp),
            Err(why) => why,
        };
        let name = self.traffic.trace().unwrap_or_default();
        self.stop = Some(match why {
            NoMore::End => {
                TraceStop::Ended { name, reached: self.now - Instant::ZERO, needed: self.end - Instant::ZERO }
            }
            NoMore::Error(detail) => TraceStop::Unreadable { name, detail },
        });
    }

    /// Performs the pending actions of the state machine of a server's backend.
    fn drive(&mut self, server: u16, backend: BackendId) {
        let place = (usize::from(server), backend.index());
        while let Some(action) = self.servers[place.0].machines[place.1].poll_action() {
            match action {
                Action::Call { attempt, replica, keys, demand, .. } => {
                    self.send(server, backend, replica, &demand, Work::Call { attempt, keys });
                }
                Action::Probe { replica, .. } => {
                    self.send(server, backend, replica, &Demand::default(), Work::Probe);
                }
                Action::Cancel { attempt, replica, .. } => self.cancel(server, backend, replica, attempt),
                Action::Deliver { result, waiters, .. } => {
                    for waiter in waiters {
                        self.tell(waiter, result.clone());
                    }
                }
                Action::StartWrite(write) => self.send_write(server, backend, write),
                Action::EndWrite { write, .. } => self.withdraw_write(server, backend, write),
            }
        }
        self.arm(server, backend);
    }

    /// Schedules the next wake-up of a state machine. One that is woken too early is scheduled
    /// again.
    fn arm(&mut self, server: u16, backend: BackendId) {
        let Server { machines, armed, .. } = &mut self.servers[usize::from(server)];
        let armed = &mut armed[backend.index()];
        if let Some(due) = machines[backend.index()].next_timeout()
            && armed.is_none_or(|armed| due < armed)
        {
            *armed = Some(due);
            self.events.schedule(due, Event::Wake { server, backend: backend.0 });
        }
    }

    fn wake(&mut self, server: u16, backend: BackendId) {
        let Server { cache, machines, armed, .. } = &mut self.servers[usize::from(server)];
        // The earlier of two alarms was scheduled later and left the other one in place.
        if armed[backend.index()] == Some(self.now) {
            armed[backend.index()] = None;
        }
        machines[backend.index()].handle_timeout(self.now, &SizedCache(cache));
        self.drive(server, backend);
    }

    fn tell(&mut self, waiter: Waiter, result: Result<Option<u32>, sherwood_dispatch::FetchError>) {
        let Some(live) = self.live.get_mut(waiter.request) else { return };
        live.request.handle_result(self.now, waiter.slot, result);
        if live.request.finished().is_some() {
            self.finish(waiter.request);
        }
    }

    /// Records a request that has all answers.
    fn finish(&mut self, number: u32) {
        let Some(Live { server, request }) = self.live.remove(number) else { return };
        let Some(finished) = request.finished() else { return };
        let report = &mut self.servers[usize::from(server)].report;
        report.requests.push((self.now, finished));
        self.recorder.request(self.now, finished);
        request.each_latency_group(|ended| {
            self.recorder.keys(self.now, ended);
            report.queries.push((self.now, ended));
        });
        if let Some(sizes) = &mut self.sizes {
            request.answers().for_each(|(backend, key, _)| sizes.end(backend, *key));
        }
    }

    /// Sends a call or a probe of a server to a replica.
    fn send(&mut self, server: u16, backend: BackendId, replica: ReplicaId, demand: &Demand, work: Work) {
        if let (1.., Work::Call { keys, .. }) = (self.echoes, &work) {
            self.send_echoes(server, backend, replica, keys.len() as u32);
        }
        let job = self.jobs.insert(Job { server, replica, sent: self.now, work });
        self.enqueue(backend, replica, job, demand);
    }

    /// Schedules the echoes of a call: calls of requests that are not simulated, at the same
    /// replica.
    fn send_echoes(&mut self, server: u16, backend: BackendId, replica: ReplicaId, keys: u32) {
        for _ in 0..self.echoes {
            let delay_ns = (u128::from(self.echo_draws.next_u64()) * ECHOES_WITHIN.as_nanos()) >> 64;
            let sent = self.now + Duration::from_nanos(delay_ns as u64);
            let job = self.jobs.insert(Job { server, replica, sent, work: Work::Echo { keys } });
            self.events.schedule(sent, Event::Echo { backend: backend.0, job });
        }
    }

    fn echo(&mut self, backend: BackendId, job: u32) {
        let Some(&Job { replica, .. }) = self.jobs.get(job) else { return };
        self.enqueue(backend, replica, job, &Demand::default());
    }

    /// Adds a job to the queue of its replica.
    fn enqueue(&mut self, backend: BackendId, replica: ReplicaId, job: u32, demand: &Demand) {
        let keys = match self.jobs.get(job).map(|job| &job.work) {
            Some(Work::Call { keys, .. }) => keys.len() as u32,
            Some(Work::Echo { keys }) => *keys,
            Some(Work::Probe | Work::Write { .. }) | None => 1,
        };
        let call = QueuedCall { keys, attempt: 0 };
        let is_queued = self.backends[backend.index()].queue(replica).enqueue(self.now, job, demand, call);
        debug_assert!(is_queued, "the queue has no bound of its own");
        self.start_next(backend, replica);
    }

    /// Starts the next job of a replica, if one waits and a worker is idle. An echo that has waited
    /// longer than the timeout is dropped: its sender would have cancelled it, as others do.
    fn start_next(&mut self, backend: BackendId, replica: ReplicaId) {
        let timeout = self.setup.model.timeout();
        while let Some(next) = self.backends[backend.index()].queue(replica).start_next(self.now) {
            match self.jobs.get(next) {
                Some(Job { work: Work::Echo { .. }, sent, .. }) if self.now - *sent > timeout => {
                    self.jobs.remove(next);
                    self.backends[backend.index()].queue(replica).complete(next, None);
                }
                _ => self.serve(backend, next),
            }
        }
    }

    /// Starts the service of a job by a worker.
    fn serve(&mut self, backend: BackendId, job: u32) {
        let Some(begun) = self.jobs.get(job) else { return };
        let limit = self.limit(backend, begun.replica);
        let done = self.now + self.backends[backend.index()].service_time(begun, limit);
        self.events.schedule(done, Event::Done { backend: backend.0, job });
    }

    fn done(&mut self, backend: BackendId, job: u32) {
        let Some(&Job { replica, .. }) = self.jobs.get(job) else { return };
        self.backends[backend.index()].queue(replica).complete(job, None);
        self.start_next(backend, replica);
        let Some(Job { server, work, sent, .. }) = self.jobs.remove(job) else { return };
        let Server { cache, machines, .. } = &mut self.servers[usize::from(server)];
        let machine = &mut machines[backend.index()];
        match work {
            Work::Call { attempt, keys } => {
                // The keys are filled next.
                cache.prefetch(keys.iter().map(|key| (key.partition, key.as_ref())));
                let simulated = &mut self.backends[backend.index()];
                let sizes = keys.into_iter().map(|FetchKey { key, .. }| match &self.sizes {
                    // A replica reads when the call is sent.
                    None => Some(simulated.read(replica, key.object(), sent)),
                    Some(sizes) => Some(sizes.bytes(backend, key)),
                });
                machine.handle_reply(self.now, &SizedCache(cache), attempt, Reply::Ok(sizes.collect()));
            }
            Work::Write { write, object, bytes } => {
                self.apply_write(server, backend, replica, (write, object, bytes));
            }
            Work::Echo { .. } => return,
            Work::Probe => machine.handle_probe(self.now, &SizedCache(cache), replica, true),
        }
        self.drive(server, backend);
    }

    /// Cancels a call that no request waits for: removes it if it still waits for a worker.
    fn cancel(&mut self, server: u16, backend: BackendId, replica: ReplicaId, cancelled: AttemptId) {
        self.withdraw(
            server,
            backend,
            replica,
            |work| matches!(work, Work::Call { attempt, .. } if *attempt == cancelled),
        );
    }

    /// Takes the first job of a server out of a replica's queue whose work is `wanted`.
    fn withdraw(
        &mut self,
        server: u16,
        backend: BackendId,
        replica: ReplicaId,
        wanted: impl Fn(&Work) -> bool,
    ) {
        let jobs = &self.jobs;
        let is_it = |&job: &u32| jobs.get(job).is_some_and(|job| job.server == server && wanted(&job.work));
        let queue = self.backends[backend.index()].queue(replica);
        let found = queue.entries().find(is_it);
        if let Some(job) = found {
            queue.cancel(job);
            self.jobs.remove(job);
        }
    }

    fn report(&mut self) {
        let mut counts = vec![(0, 0); self.partitions.len()];
        for server in &mut self.servers {
            self.statistics.receive(self.now, &mut server.report);
            for (partition, (hits, misses)) in self.partitions.all().zip(&mut counts) {
                let usage = server.cache.usage(partition);
                (*hits, *misses) = (*hits + usage.hits, *misses + usage.misses);
            }
            server.go_on_resizing(self.now);
        }
        self.statistics.count(counts);
        self.events.schedule(self.now + REPORT_EVERY, Event::Report);
    }

    fn ask(&mut self) {
        // All servers have the same policy and thus the same needs.
        let needs = self.servers[0].needs();
        self.told.push_back(self.statistics.known(self.now, &needs, &self.servers));
        match self.setup.knobs.stale {
            Duration::ZERO => self.decide(),
            age => self.events.schedule(self.now + age, Event::Decide),
        }
        self.events.schedule(self.now + self.setup.knobs.control.delta, Event::Ask);
    }

    fn decide(&mut self) {
        let Some(known) = self.told.pop_front() else { return };
        for server in &mut self.servers {
            server.decide(self.now, &known);
        }
    }

    fn observe(&mut self) {
        let limit = |(index, backend): (usize, &SimulatedBackend)| {
            left_of(backend.replicas(), |replica| self.limit(BackendId::from_index(index), replica))
        };
        let limits = self.backends.iter().enumerate().map(limit).collect();
        let waiting = self.backends.iter().map(SimulatedBackend::waiting).collect();
        let query_p99 = self.statistics.query_p99(self.now);
        let stands_for = f64::from(self.setup.knobs.sample);
        self.recorder.observe(self.now, &self.servers, Backlog { limits, waiting, query_p99, stands_for });
        self.events.schedule(self.recorder.due(), Event::Observe);
    }

    /// Share of a replica's resource that the scenario's limits leave.
    fn limit(&self, backend: BackendId, replica: ReplicaId) -> f64 {
        if self.now < self.measured_from {
            return 1.0;
        }
        let minute = (self.now - self.measured_from).as_secs_f64() / 60.0;
        limit_at(&self.limits, backend, replica, minute, self.depth)
    }

    fn machines(&self) -> impl Iterator<Item = &crate::server::Machine> {
        self.servers.iter().flat_map(|server| &server.machines)
    }
}

mod books;
mod caches;
mod fork;
#[cfg(test)]
mod tests;
mod writes;
