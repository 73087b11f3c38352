//! The set-up (kind of simulation) of Zoolander: requests of a replicated store, whose layout
//! changes between day and night.

mod build;
mod layout;
mod model;

use std::time::Duration;

use sherwood_model::{BackendId, Demand, FinishedRequest, Instant, PartitionId, ReplicaId, RequestId};
use sherwood_path::{FetchKey, Query, Staleness};
use sherwood_policy::slo::{Objective, ServiceTimes};
use sherwood_policy::stores::Manager;
use sherwood_workload::{Arrivals, Rng};

pub use model::{Level, ModelResults};

use super::key::{Key, nodes};
use super::pairs::Pairs;
use super::policy::{Policy, Use};
use super::results::{Recorder, Results, Sample};
use super::services::Services;
use super::setup::Setup;
use crate::world::{Ask, Family, Imbalance, Job, Live, Simulation, Work};

/// A simulated run.
///
/// Call [`World::advance`] with increasing times up to [`World::end`], then [`World::results`].
///
/// # Memory
/// Requests in flight, of which there are as many as arrive within the timeout if the nodes are
/// overloaded, and a sample for each ten seconds.
pub type World = Simulation<Zoolander>;

/// A store whose load and layout change between day and night.
pub struct Zoolander {
    setup: Setup,
    policy: Policy,
    services: Services,
    /// The accesses of requests by day and at night, and their bound.
    objectives: [Objective; 2],
    /// Arrivals of requests by day and at night.
    arrivals: [Arrivals; 2],
    arrival_draws: Rng,
    /// Number of requests that have arrived.
    requests: u64,
    /// The phase: 0 by day, 1 at night.
    phase: usize,
    /// The time after which nothing is recorded as of the night.
    recorded_until: Instant,
    /// The use of the nodes, and the time from which it is in force.
    in_use: (Use, Instant),
    /// The manager, with the service times that it knows; none if the policy has none.
    manager: Option<(Manager, ServiceTimes)>,
    /// Sentences of the manager.
    decisions: Vec<String>,
    recorder: Recorder,
    /// Service times of accesses at two duplicates; none where nothing is compared with a model.
    pairs: Option<Pairs>,
}

/// Events of users and of the day.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A user sends a request.
    Arrive,
    /// The day (0) or the night (1) begins.
    Phase(u8),
    /// Ten seconds are over.
    Sample,
}

/// A request that makes its accesses one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    request: u64,
    /// Number of accesses that have ended.
    ended: u32,
    began: Instant,
    /// The phase in which it began.
    phase: usize,
    is_failed: bool,
}

/// The phase after the warm-up, in which levels are measured.
const MEASURED: usize = 1;
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Timeout of accesses, far beyond their latencies.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The only node in front of the store, and the store.
const NODE: u16 = 0;
const STORE: BackendId = BackendId(0);
const PARTITION: PartitionId = PartitionId(0);
/// Bytes of each answer, which nothing depends on.
const BYTES: u32 = 1;

impl Family for Zoolander {
    type Key = Key;
    type Client = Sender;
    type Event = Event;

    fn happen(world: &mut World, event: Event) {
        match event {
            Event::Arrive => world.send_request(),
            Event::Phase(phase) => world.begin_phase(phase.into()),
            Event::Sample => {
                world.sample();
                world.schedule(world.now + SAMPLE_EVERY, Event::Sample);
            }
        }
    }

    fn ask(&mut self, now: Instant, sender: &mut Sender) -> Ask<Key> {
        let phase = self.recorded(now);
        self.recorder.access(phase);
        let accesses = u64::from(self.objectives[self.phase].accesses);
        let access = sender.request * accesses + u64::from(sender.ended);
        if let Some(pairs) = self.pairs.as_mut().filter(|_| phase == MEASURED) {
            pairs.record([0, 1].map(|duplicate| self.services.time(access, duplicate)));
        }
        let query = Query {
            backend: STORE,
            partition: PARTITION,
            keys: vec![Key::new(access, self.in_use.0.layout)],
            demand: Demand { request: RequestId::new(sender.request + 1), ..Demand::default() },
            timeout: TIMEOUT,
            staleness: Staleness::default(),
            shared: None,
        };
        Ask { queries: vec![query], writes: Vec::new() }
    }

    fn finish(world: &mut World, live: Live<Key, Sender>, _: FinishedRequest) {
        let answers = live.request.iter().flat_map(|request| request.answers());
        let is_failed = answers.filter(|(.., answer)| answer.error.is_some()).count() > 0;
        let Sender { ended, is_failed: was_failed, .. } = live.client;
        let sender = Sender { ended: ended + 1, is_failed: was_failed || is_failed, ..live.client };
        let Objective { accesses, bound_ms, .. } = world.family.objectives[sender.phase];
        if sender.ended < accesses {
            return world.begin_access(sender);
        }
        let latency = world.now - sender.began;
        let bound = Duration::from_secs_f64(bound_ms / 1e3);
        world.family.recorder.ended(sender.phase, latency, bound, sender.is_failed);
    }

    fn calling(world: &mut World, _: u16, _: BackendId, _: ReplicaId, _: u32) {
        let phase = world.family.recorded(world.now);
        world.family.recorder.call(phase);
    }

    fn service_time(&mut self, _: Instant, _: BackendId, job: &Job<Key>) -> Duration {
        let Work::Call { keys, .. } = &job.work else { return Duration::ZERO };
        let services = &self.services;
        let time =
            |FetchKey { key, .. }: &FetchKey<Key>| services.time(key.access(), key.duplicate(job.replica));
        keys.iter().map(time).sum()
    }

    fn read(&mut self, _: BackendId, _: ReplicaId, _: Instant, _: &FetchKey<Key>) -> u32 {
        BYTES
    }
}

impl Zoolander {
    /// The phase as of which something is recorded that happens now.
    fn recorded(&self, now: Instant) -> usize {
        if now < self.recorded_until { self.phase } else { 0 }
    }
}

impl World {
    /// Advances the run to `until`.
    ///
    /// # Errors
    /// If counters do not balance, which is a bug.
    pub fn advance(&mut self, until: Instant) -> Result<(), Imbalance> {
        self.run(until)
    }

    /// Samples of the run so far, one for each ten seconds.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        self.family.recorder.samples()
    }

    /// Returns the results of the run so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let Zoolander { recorder, setup, decisions, in_use: (used, since), .. } = &self.family;
        let mut recorder = recorder.clone();
        recorder.used(nodes(used.layout), self.now - *since);
        recorder.results(setup, decisions, self.now >= self.end)
    }

    /// Begins the next request.
    fn send_request(&mut self) {
        let phase = self.family.recorded(self.now);
        let request = self.family.requests;
        let sender = Sender { request, ended: 0, began: self.now, phase, is_failed: false };
        self.family.requests += 1;
        self.begin_access(sender);
        self.schedule_request();
    }

    fn begin_access(&mut self, sender: Sender) {
        let request = self.begin(NODE, self.now, sender);
        self.arrive(request);
    }

    fn schedule_request(&mut self) {
        let Zoolander { arrivals, arrival_draws, phase, .. } = &mut self.family;
        let at = self.now + arrivals[*phase].next_gap(arrival_draws);
        self.schedule(at, Event::Arrive);
    }
}

#[cfg(test)]
mod tests;
