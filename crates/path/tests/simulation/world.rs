//! The world: its clock, its backends and their data, the requests, and what must hold at every step.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_cache::{Access, Cache, Options as CacheOptions, Partition, Value};
use sherwood_dispatch::{
    Action, CallId, Dispatch, Failure, FailureKind, Options, ProbeOptions, Reply, RetryOptions,
};
use sherwood_model::{BackendId, Instant, PartitionId, ReplicaId, SeededState, SplitMix64, TenantId};
use sherwood_path::{Query, Request, Slot, Staleness, Status, fill};

/// One byte would do, but pairs like `([u8; 1], u32)`, a key and its slot, are likely miscompiled at `opt-level = 1`, which tests are
/// compiled with (rust-lang/rust#149294): this suite has hung by that.
type Key = [u8; 4];
type Version = u64;
type RequestId = usize;

const KEYS: u8 = 8;
const KEY_BYTES: usize = size_of::<Key>();
const BACKENDS: u16 = 4;
/// The one that never fails; its time-out is beyond any jump of the clock.
const HEALTHY: u16 = 0;
const REQUESTS: usize = 60;
const LENGTH: Duration = Duration::from_millis(800);
const JUMP_MAX: Duration = Duration::from_millis(200);

enum Event {
    Arrive(Vec<Query<Key>>),
    Write(u16, u8),
    /// A backend dies or returns.
    Flip(u16),
    Reply(u16, CallId, Reply<Version>),
    Probe(u16, ReplicaId),
}

/// A request and what it asked.
struct Running {
    queries: Vec<Query<Key>>,
    request: Request<Key, Version>,
}

pub(crate) struct World {
    now: Instant,
    random: SplitMix64,
    faulty: bool,
    cache: Cache,
    dispatches: Vec<Dispatch<Key, Version, (RequestId, Slot)>>,
    dead: Vec<bool>,
    versions: BTreeMap<(u16, u8), Version>,
    requests: BTreeMap<RequestId, Running>,
    arrived: usize,
    /// How many keys ended how.
    pub(crate) ends: BTreeMap<Status, u32>,
    events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        // Room for about half of the keys.
        let budget_bytes = u64::from(KEYS / 2) * sherwood_cache::charge(KEY_BYTES, 8);
        let partition = |backend| Partition::new(TenantId(0), BackendId(backend), budget_bytes);
        let partitions: Vec<_> = (0..BACKENDS).map(partition).collect();
        let options = CacheOptions { shards: 2, ..CacheOptions::default() };
        let mut world = Self {
            now: Instant::from_secs(1),
            random: SplitMix64::new(seed),
            faulty: true,
            cache: Cache::new(options, &partitions, SeededState::new(seed)).unwrap(),
            dispatches: Vec::new(),
            dead: vec![false; BACKENDS.into()],
            versions: BTreeMap::new(),
            requests: BTreeMap::new(),
            arrived: 0,
            ends: BTreeMap::new(),
            events: BTreeMap::new(),
            planned: 0,
        };
        for backend in 0..BACKENDS {
            let replicas = world.draw(3) as usize + 1;
            let dispatch = Dispatch::new(world.dispatch_options(backend), replicas, SeededState::new(seed));
            world.dispatches.push(dispatch.unwrap());
        }
        world
    }

    fn dispatch_options(&mut self, backend: u16) -> Options {
        if backend == HEALTHY {
            return Options { timeout: timeout(backend), ..Options::default() };
        }
        Options {
            batch_keys_max: self.draw(4) as u32 + 1,
            in_flight_calls_max: self.draw(4) as u32 + 1,
            queued_calls_max: self.draw(6) as u32,
            waiters_max: self.draw(60) as u32 + 10,
            timeout: timeout(backend),
            retry: RetryOptions { per_call_max: 2, ratio: 0.2, burst: 5 },
            probe: ProbeOptions {
                failures_max: 4,
                interval_min: Duration::from_millis(5),
                interval_max: Duration::from_millis(50),
            },
        }
    }

    pub(crate) fn plan_inputs(&mut self) {
        for _ in 0..REQUESTS {
            let queries = (0..self.draw(5)).map(|_| self.draw_query()).collect();
            self.plan_sometime(Event::Arrive(queries));
        }
        for _ in 0..REQUESTS / 2 {
            let write = Event::Write(self.draw(u64::from(BACKENDS)) as u16, self.draw(u64::from(KEYS)) as u8);
            self.plan_sometime(write);
        }
        for _ in 0..5 {
            let flip = Event::Flip(self.draw(u64::from(BACKENDS - 1)) as u16 + 1);
            self.plan_sometime(flip);
        }
    }

    fn draw_query(&mut self) -> Query<Key> {
        let backend = self.draw(u64::from(BACKENDS)) as u16;
        let keys = (0..self.draw(7)).map(|_| key(self.draw(u64::from(KEYS)) as u8)).collect();
        query(backend, keys, self.draw(5) == 0)
    }

    fn plan_sometime(&mut self, event: Event) {
        // On a coarse grid, so that the clock often stands still.
        let after = Duration::from_millis(self.draw(LENGTH.as_millis() as u64 / 20) * 20);
        self.plan(after, event);
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.planned += 1;
        self.events.insert((self.now + after, self.planned), event);
    }

    /// No faults from now on, and everything lives.
    pub(crate) fn heal(&mut self) {
        self.faulty = false;
        self.dead.fill(false);
    }

    /// Lets everything happen that is going to; backends that stay dead are probed until the steps are used up.
    pub(crate) fn run(&mut self) {
        for _ in 0..20_000 {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let wake = self.dispatches.iter().filter_map(Dispatch::next_timeout).min();
            let waiting = self.dispatches.iter().any(|dispatch| dispatch.stats().calls > 0);
            let Some(next) = event.into_iter().chain(wake).min() else { return };
            if event.is_none() && !waiting && self.dead.contains(&true) {
                return;
            }
            self.now = self.now.max(next);
            if self.faulty && self.draw(50) == 0 {
                let jump = Duration::from_millis(self.draw(JUMP_MAX.as_millis() as u64));
                self.now += jump;
            }
            if event.is_some_and(|at| at <= self.now) {
                let (_, event) = self.events.pop_first().expect("an event is due");
                self.happen(event);
            }
            for backend in 0..BACKENDS {
                self.dispatches[usize::from(backend)].handle_timeout(self.now);
                self.carry_out(backend);
            }
            self.check();
        }
        panic!("the world does not come to rest");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(queries) => self.arrive(queries),
            Event::Flip(backend) => self.dead[usize::from(backend)] ^= true,
            Event::Write(backend, number) => {
                *self.versions.entry((backend, number)).or_default() += 1;
                self.cache.remove(PartitionId(backend), &key(number), &Access::at(self.now));
                self.dispatches[usize::from(backend)].invalidate(&key(number));
            }
            Event::Reply(backend, call, reply) => {
                self.dispatches[usize::from(backend)].handle_reply(self.now, call, reply);
                self.carry_out(backend);
            }
            Event::Probe(backend, replica) => {
                let ok = !self.dead[usize::from(backend)];
                self.dispatches[usize::from(backend)].handle_probe(self.now, replica, ok);
                self.carry_out(backend);
            }
        }
    }

    fn arrive(&mut self, queries: Vec<Query<Key>>) {
        let id = self.arrived;
        self.arrived += 1;
        let mut request = Request::start(self.now, queries.clone());
        let fetches = request.look_up(&self.cache, &Access::at(self.now), |_, _, item| match item.value {
            Value::Bytes(bytes) => Version::from_le_bytes(bytes.try_into().unwrap()),
            Value::Declared(_) => panic!("nothing is declared here"),
        });
        self.requests.insert(id, Running { queries, request });
        for fetch in fetches {
            let entropy = self.draw(u64::MAX);
            let keys = fetch.keys.into_iter().map(|(key, slot)| (key, (id, slot)));
            self.dispatches[fetch.backend.index()].handle_fetch(self.now, keys, entropy);
            self.carry_out(fetch.backend.0);
        }
        self.finish(id);
    }

    fn carry_out(&mut self, backend: u16) {
        while let Some(action) = self.dispatches[usize::from(backend)].poll_action() {
            match action {
                Action::Call { call, keys, .. } => self.serve(backend, call, &keys),
                Action::Cancel { .. } => {}
                Action::Probe { replica, .. } => {
                    self.plan(Duration::from_millis(1), Event::Probe(backend, replica))
                }
                Action::Deliver { key, result, fill: may_fill, waiters } => {
                    if let (true, Ok(Some(version))) = (may_fill, &result) {
                        self.fill(backend, key, *version);
                    }
                    for (id, slot) in waiters {
                        let Running { request, .. } =
                            self.requests.get_mut(&id).expect("only the unfinished wait");
                        let ended = request.answers().count();
                        request.handle_result(self.now, slot, result.clone());
                        assert!(request.answers().count() > ended, "a key ended twice");
                        self.finish(id);
                    }
                }
            }
        }
    }

    fn fill(&mut self, backend: u16, key: Key, version: Version) {
        let ttl = (self.draw(2) == 0).then(|| Duration::from_millis(100));
        let bytes = version.to_le_bytes();
        let access = Access::at(self.now);
        fill(&self.cache, PartitionId(backend), &key, Value::Bytes(&bytes), ttl, &access).unwrap();
    }

    fn serve(&mut self, backend: u16, call: CallId, keys: &[Key]) {
        let faulty = self.faulty && backend != HEALTHY;
        if faulty && self.draw(10) == 0 {
            return;
        }
        let reply = if self.dead[usize::from(backend)] {
            Reply::Failed(Failure::new(FailureKind::Unreachable, "connection refused"))
        } else if faulty && self.draw(10) == 0 {
            Reply::Failed(Failure::new(FailureKind::Reset, "connection reset"))
        } else {
            Reply::Ok(keys.iter().map(|&[number, ..]| self.read(backend, number)).collect())
        };
        let delay_max = if faulty { timeout(backend) * 5 / 4 } else { Duration::from_millis(8) };
        for _ in 0..if faulty { self.draw(2) + 1 } else { 1 } {
            let delay = Duration::from_nanos(self.draw(delay_max.as_nanos() as u64));
            self.plan(delay, Event::Reply(backend, call, reply.clone()));
        }
    }

    /// Key 0 does not exist.
    fn read(&self, backend: u16, number: u8) -> Option<Version> {
        (number != 0).then(|| self.versions.get(&(backend, number)).copied().unwrap_or_default())
    }

    /// Checks and forgets a request that has finished.
    fn finish(&mut self, id: RequestId) {
        let Some(Running { queries, request }) = self.requests.get(&id) else { return };
        let Some(finished) = request.finished() else { return };
        let mut answers = request.answers();
        let mut slowest = (Duration::ZERO, Vec::new());
        for query in queries {
            let mut counted = Duration::ZERO;
            for key in &query.keys {
                let (backend, answered, answer) = answers.next().expect("every key has its answer");
                assert_eq!((backend, answered), (query.backend, key));
                assert_eq!(answer.value.is_some(), matches!(answer.status, Status::Hit | Status::Miss));
                assert_eq!(answer.error.is_some(), answer.status.is_failure());
                assert!(backend.0 != HEALTHY || !answer.status.is_failure(), "{answer:?}");
                let penalty = answer.status.is_failure() && !query.best_effort;
                counted =
                    counted.max(answer.latency).max(if penalty { query.timeout } else { Duration::ZERO });
                *self.ends.entry(answer.status).or_default() += 1;
            }
            if !query.keys.is_empty() && counted >= slowest.0 {
                if counted > slowest.0 {
                    slowest = (counted, Vec::new());
                }
                slowest.1.push(query.backend);
            }
        }
        assert!(answers.next().is_none());
        drop(answers);
        assert_eq!(u128::from(finished.latency_us), slowest.0.as_micros());
        assert_eq!(finished.blocking.is_none(), slowest.1.is_empty());
        assert!(finished.blocking.is_none_or(|blocking| slowest.1.contains(&blocking)));
        self.requests.remove(&id);
    }

    fn check(&self) {
        for Running { queries, request } in self.requests.values() {
            let latest = queries.iter().map(|query| query.timeout).max().unwrap_or_default();
            assert!(request.started() + latest > self.now, "a request outlived its time-outs");
        }
        for backend in 0..BACKENDS {
            for number in 0..KEYS {
                let access = Access::at(self.now);
                let cached =
                    self.cache.peek(PartitionId(backend), &key(number), &access, |item| match item.value {
                        Value::Bytes(bytes) => Version::from_le_bytes(bytes.try_into().unwrap()),
                        Value::Declared(_) => panic!("nothing is declared here"),
                    });
                assert!(cached.is_none() || cached == self.read(backend, number), "a stale value is cached");
            }
        }
    }

    pub(crate) fn assert_at_rest(&self) {
        assert!(self.requests.is_empty());
        for dispatch in &self.dispatches {
            let stats = dispatch.stats();
            assert_eq!((stats.waiters, stats.keys, stats.calls, stats.joinable_keys), (0, 0, 0, 0));
            assert!(stats.replicas.iter().all(|replica| replica.up));
        }
    }

    /// Requests of one key at a time, so that no bound is met, are answered by every backend.
    pub(crate) fn assert_all_backends_are_used_again(&mut self) {
        self.ends.clear();
        self.cache.flush(None, self.now, self.now);
        for backend in 0..BACKENDS {
            for number in 0..3 {
                let alone = query(backend, vec![key(number)], false);
                self.plan(Duration::from_millis(1), Event::Arrive(vec![alone]));
                self.run();
            }
        }
        assert_eq!(
            self.ends,
            BTreeMap::from([(Status::Miss, 2 * u32::from(BACKENDS)), (Status::NotFound, BACKENDS.into())])
        );
    }

    /// A number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }
}

fn key(number: u8) -> Key {
    [number, 0, 0, 0]
}

fn timeout(backend: u16) -> Duration {
    if backend == HEALTHY { Duration::from_secs(30) } else { Duration::from_millis(40 * u64::from(backend)) }
}

fn query(backend: u16, keys: Vec<Key>, best_effort: bool) -> Query<Key> {
    Query {
        backend: BackendId(backend),
        partition: PartitionId(backend),
        keys,
        best_effort,
        timeout: timeout(backend),
        staleness: Staleness::default(),
    }
}
