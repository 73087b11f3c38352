//! The set-up (kind of simulation) of RobinHood: application servers with a cache each, in front of
//! shared backends.

mod build;
mod exchange;
mod fork;
mod rounds;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng as _;
use sherwood_cache::Usage;
use sherwood_model::{BackendId, CachePlan, Demand, FinishedRequest, Instant, PartitionId, ReplicaId};
use sherwood_path::{FetchKey, Query, WriteOptions, WriteRefused};
use sherwood_policy::TaoMode;
use sherwood_workload::Rng;
use sherwood_workload::onerf::Limits;
use thiserror::Error;

pub use self::fork::ForkError;

use self::exchange::Exchange;
use crate::backend::{SimulatedBackend, limit_at};
use crate::batches::Batches;
use crate::key::Key;
use crate::partitions::Partitions;
use crate::record::Recorder;
use crate::recorded::{NoMore, TraceStop};
use crate::results::{Results, Sample};
use crate::sample::ECHOES_WITHIN;
use crate::setup::{Setup, SetupError};
use crate::sizes::Sizes;
use crate::statistics::{Known, Report, Statistics};
use crate::traffic::{Arrived, Traffic};
use crate::world::{Ask, AskedWrite, Family, Imbalance, Job, Live, Node, Simulation, Work};

/// A simulated run, which starts with empty caches.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`]. The
/// state changes only at events, so results do not depend on the times at which `advance` stops.
///
/// # Time
/// A request is looked up in the cache after its arrival plus the model's hit latency. Calls wait
/// for a worker of their backend and occupy it for the model's service time, computed with the
/// limit in force when service begins. Servers report once a second, on the second. Controllers
/// decide every Δ, half a second after a report, on statistics of the configured age. Unless the
/// [`Bus`](crate::Bus) of the setup says otherwise, all know the statistics of all servers. The SLO
/// is measured on all finished requests, without delay.
///
/// # Memory
/// The items of the caches (a record each with a declared size, no value), live requests and calls,
/// and a sample per observation of the SLO.
pub type World = Simulation<OneRf>;

/// Application servers in front of the backends of a model.
pub struct OneRf {
    /// The setup as given; [`Self::setup`] has the values of its profile filled in.
    asked: Setup,
    setup: Setup,
    limits: Limits,
    depth: f64,
    hit_latency: Duration,
    timeout: Duration,
    measured_from: Instant,
    partitions: Partitions,
    traffic: Traffic,
    /// The reason why the trace has no further requests, once it has ended.
    stop: Option<TraceStop>,
    /// Sizes of the requested objects, if given by a trace.
    sizes: Option<Sizes>,
    /// Number of calls outside the sample that each simulated call also stands for, when only a
    /// sample of the keys is simulated.
    echoes: u32,
    echo_draws: Rng,
    backends: Vec<SimulatedBackend>,
    /// The next report of each server.
    reports: Vec<Report>,
    /// Statistics of all servers, from which no report is missing.
    statistics: Statistics,
    /// Statistics that each server knows; none if all know all of `statistics`.
    exchange: Option<Exchange>,
    /// Statistics that each controller has read but not decided on yet, oldest first; their number
    /// is bounded by the configured age of statistics.
    told: VecDeque<Vec<Arc<Known>>>,
    recorder: Recorder,
}

/// Events of arrivals and statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A request that has arrived is looked up in its server's cache.
    LookUp,
    /// An echo (a call that stands for one outside the sample) reaches this backend.
    Echo { backend: u16, job: u32 },
    /// Every server reports its statistics.
    Report,
    /// Every controller reads the statistics.
    Ask,
    /// Every controller decides on the statistics that it read.
    Decide,
    /// The SLO is observed.
    Observe,
}

/// The reason why a run stops.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Halt {
    /// The simulation has a bug.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// The trace has no further requests; the results so far are incomplete.
    #[error(transparent)]
    Trace(#[from] TraceStop),
}

impl Family for OneRf {
    type Key = Key;
    /// The queries of the request, until they are looked up.
    type Client = Vec<Query<Key>>;
    type Event = Event;

    #[inline]
    fn happen(world: &mut World, event: Event) {
        match event {
            Event::LookUp => world.look_up(),
            Event::Echo { backend, job } => world.enqueue(BackendId(backend), job, &Demand::default()),
            Event::Report => world.report(),
            Event::Ask => world.ask_statistics(),
            Event::Decide => world.decide_all(),
            Event::Observe => world.observe(),
        }
    }

    #[inline]
    fn ask(&mut self, _: Instant, queries: &mut Vec<Query<Key>>) -> Ask<Key> {
        Ask { queries: std::mem::take(queries), writes: Vec::new() }
    }

    #[inline]
    fn finish(world: &mut World, live: Live<Key, Vec<Query<Key>>>, finished: FinishedRequest) {
        let Some(request) = live.request else { return };
        let now = world.now;
        let Self { reports, recorder, sizes, setup, .. } = &mut world.family;
        let report = &mut reports[usize::from(live.node)];
        if !setup.knobs.batches {
            report.requests.push((now, finished));
        }
        recorder.request(now, finished);
        let mut batches = setup.knobs.batches.then(Batches::default);
        request.each_latency_group(|ended| {
            recorder.keys(now, ended);
            report.queries.push((now, ended));
            batches.iter_mut().for_each(|batches| batches.add(ended));
        });
        let batches = batches.into_iter().flat_map(Batches::requests);
        report.requests.extend(batches.map(|batch| (now, batch)));
        if let Some(sizes) = sizes {
            request.answers().for_each(|(backend, key, _)| sizes.end(backend, *key));
        }
    }

    #[inline]
    fn calling(world: &mut World, node: u16, backend: BackendId, replica: ReplicaId, keys: u32) {
        if world.family.echoes > 0 {
            world.send_echoes((node, backend, replica), keys);
        }
    }

    /// An echo that has waited longer than the timeout is dropped: its sender would have cancelled
    /// it, as others do.
    #[inline]
    fn gives_up(&self, now: Instant, job: &Job<Key>) -> bool {
        matches!(job.work, Work::Echo { .. }) && now - job.sent > self.timeout
    }

    #[inline]
    fn service_time(&mut self, now: Instant, backend: BackendId, job: &Job<Key>) -> Duration {
        let limit = self.limit(now, backend, job.replica);
        self.backends[backend.index()].service_time(job, limit)
    }

    #[inline]
    fn read(
        &mut self,
        backend: BackendId,
        replica: ReplicaId,
        sent: Instant,
        FetchKey { key, .. }: &FetchKey<Key>,
    ) -> u32 {
        match &self.sizes {
            // A replica reads when the call is sent.
            None => self.backends[backend.index()].read(replica, key.object(), sent),
            Some(sizes) => sizes.bytes(backend, *key),
        }
    }

    fn stored(&mut self, now: Instant, backend: BackendId, replica: ReplicaId, key: Key, bytes: u32) {
        self.backends[backend.index()].store(replica, key.object(), now, bytes);
    }

    fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Checks that every key looked up was a hit or a miss, that every miss was requested from a
    /// backend, and that budgets add up to the total.
    fn balance(world: &World) -> Result<(), Imbalance> {
        let (mut hits, mut misses, mut asked) = (0, 0, 0);
        for node in &world.nodes {
            let total = node.cache.total();
            (hits, misses) = (hits + total.hits, misses + total.misses);
            asked += node.machines.iter().map(|machine| machine.stats().counters.asked).sum::<u64>();
        }
        world.equal("the number of hits and misses", hits + misses, world.queries)?;
        let what = "the number of keys that backends were asked for";
        // A query of a trace may contain an object twice; one call then answers both.
        if world.family.sizes.is_some() {
            world.at_most(what, asked, misses)?;
        } else {
            world.equal(what, asked, misses)?;
        }
        for Node { cache, .. } in &world.nodes {
            if let CachePlan::Budgets(budgets) = cache.plan() {
                world.equal("the sum of budgets", budgets.iter().sum(), cache.total_bytes())?;
            }
        }
        Ok(())
    }
}

impl OneRf {
    /// Returns the share of a replica's resource that is left by the scenario's limits.
    fn limit(&self, now: Instant, backend: BackendId, replica: ReplicaId) -> f64 {
        if now < self.measured_from {
            return 1.0;
        }
        let minute = (now - self.measured_from).as_secs_f64() / 60.0;
        limit_at(&self.limits, backend, replica, minute, self.depth)
    }
}

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
        let mut world = build::world(setup, tenants)?;
        world.expect_arrival();
        world.begin_rounds();
        Ok(world)
    }

    /// Processes all events before `until` and then checks that all counters balance. If `until` is
    /// [`World::end`], events at that time are included.
    ///
    /// # Errors
    /// If counters do not balance, or if a trace ends before the run does; the run then stops at
    /// the last request of the trace.
    pub fn advance(&mut self, until: Instant) -> Result<(), Halt> {
        self.run(until)?;
        self.family.stop.clone().map_or(Ok(()), |stop| Err(stop.into()))
    }

    /// Returns the reason why the trace has no further requests, if that stopped the run.
    #[must_use]
    pub fn trace_stop(&self) -> Option<&TraceStop> {
        self.family.stop.as_ref()
    }

    /// Returns the results of the run so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let errors = self.nodes.iter().flat_map(|node| &node.machines).map(|machine| {
            let counters = machine.stats().counters;
            counters.timed_out + counters.failed + counters.refused
        });
        self.family.recorder.results(&self.family.setup, self.now >= self.end, errors.sum())
    }

    /// Samples of the run so far, one per observation of the SLO.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.family.recorder.samples()
    }

    /// Usage of each partition of a server's cache since the start; empty if there is no such
    /// server.
    #[must_use]
    pub fn usage(&self, server: usize) -> Vec<Usage> {
        let Some(node) = self.nodes.get(server) else { return Vec::new() };
        self.family.partitions.all().map(|partition| node.cache.usage(partition)).collect()
    }

    /// Writes an object with a new size, at the current time, through a server and for the tenant
    /// of a partition. A replica applies the write when a worker has finished it. Objects of traces
    /// are not written.
    ///
    /// # Errors
    /// When the backend's state machine refuses the write.
    ///
    /// # Panics
    /// If there is no such server or partition.
    pub fn write(
        &mut self,
        server: usize,
        partition: PartitionId,
        object: u64,
        bytes: u32,
    ) -> Result<(), WriteRefused> {
        let (tenant, backend) = self.family.partitions.pair(partition);
        let options = WriteOptions { tenant, ..WriteOptions::default() };
        let write = AskedWrite { backend, partition, key: Key::new(object), bytes, options };
        self.begin_write(server as u16, write)?;
        self.drive(server as u16, backend);
        Ok(())
    }

    /// Returns the allocation of each backend in bytes, averaged over the servers and over the
    /// samples that `mode` selects from the measurement so far. Policy `tao` learns it from a run
    /// of RobinHood ([`Setup::learning`]). Empty before the first observation.
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
            (sum / of.len() as f64 / f64::from(self.family.setup.knobs.sample)) as u64
        };
        (0..last.backends.len()).map(mean).collect()
    }

    fn look_up(&mut self) {
        let Arrived { server, queries, bytes } = self.family.traffic.next_request();
        if let Some(sizes) = &mut self.family.sizes {
            sizes.ask(&queries, &bytes);
        }
        let request = self.begin(server as u16, self.now - self.family.hit_latency, queries);
        self.arrive(request);
        self.expect_arrival();
    }

    /// Schedules the look-up of the next request to arrive, or stops the run if there is none.
    fn expect_arrival(&mut self) {
        let why = match self.family.traffic.next_arrival() {
            Ok(at) => return self.schedule(at + self.family.hit_latency, Event::LookUp),
            Err(why) => why,
        };
        let name = self.family.traffic.trace().unwrap_or_default();
        self.family.stop = Some(match why {
            NoMore::End => {
                TraceStop::Ended { name, reached: self.now - Instant::ZERO, needed: self.end - Instant::ZERO }
            }
            NoMore::Error(detail) => TraceStop::Unreadable { name, detail },
        });
    }

    /// Schedules the echoes of a call, which stand for calls outside the sample at the same
    /// replica.
    fn send_echoes(&mut self, (node, backend, replica): (u16, BackendId, ReplicaId), keys: u32) {
        for _ in 0..self.family.echoes {
            let draw = u128::from(self.family.echo_draws.next_u64());
            let sent = self.now + Duration::from_nanos(((draw * ECHOES_WITHIN.as_nanos()) >> 64) as u64);
            let job = self.servers.jobs.insert(Job { node, replica, sent, work: Work::Echo { keys } });
            self.schedule(sent, Event::Echo { backend: backend.0, job });
        }
    }
}

#[cfg(test)]
mod tests;
