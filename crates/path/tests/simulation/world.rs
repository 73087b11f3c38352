//! The world: its clock, its events, the driver of the backends, and the checks of every step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::time::Duration;

use sherwood_cache::{Access, Cache, Item, NewItem, Options as CacheOptions, Partition, Value};
use sherwood_dispatch::ConnectionAction;
use sherwood_model::{BackendId, DemandKind, Instant, PartitionId, SeededState, SplitMix64, TenantId};
use sherwood_path::{Action, AnswerCache, Backend, Fetched};

use crate::Seen;
use crate::events::{Arrival, At, Content, Event, Key, Stored, TENANTS};
use crate::reads::{Asked, Listened, Waiter};
use crate::side::{BACKENDS, GRACE, HEALTHY, NUMBERS, Side, timeout};
use crate::store::Moment;
use crate::walks::Walk;

/// The longest jump of the simulated clock, in milliseconds.
const JUMP_MAX: u64 = 200;
const STEPS_MAX: u64 = 20_000;
/// Number of simulation steps between two checks of all cached items.
const LOOK: u64 = 8;

/// The node's state machine of one backend.
pub(crate) type Machine = Backend<Key, Stored, Waiter>;

/// The node's cache, and the answers that have filled it since the last check.
pub(crate) struct NodeCache<'a> {
    cache: &'a Cache,
    filled: &'a RefCell<Vec<Filled>>,
}

/// An answer that was allowed to fill the cache.
#[derive(Debug)]
struct Filled {
    partition: PartitionId,
    key: Key,
    content: Content,
}

impl AnswerCache<Stored> for NodeCache<'_> {
    fn cache(&self) -> &Cache {
        self.cache
    }

    fn fetched<'a>(&self, value: &'a Stored) -> Fetched<'a> {
        let Stored { bytes, good_for, tags } = value;
        Fetched { value: Value::Bytes(bytes), flags: 0, good_for: *good_for, tags: *tags }
    }

    fn note_fill(&self, _: Instant, partition: PartitionId, key: &[u8], value: Option<&Stored>) {
        let key = key.try_into().expect("all keys are of one length");
        self.filled.borrow_mut().push(Filled { partition, key, content: value.map(|value| value.value()) });
    }

    fn note_refused(&self, _: PartitionId, key: &[u8], refused: &sherwood_cache::Refused) {
        panic!("there is room for {key:x?}: {refused}");
    }
}

pub(crate) struct World {
    pub(crate) now: Instant,
    random: SplitMix64,
    pub(crate) faulty: bool,
    /// True if the driver carries some actions out late, twice or never.
    negligent: bool,
    pub(crate) cache: Cache,
    filled: RefCell<Vec<Filled>>,
    pub(crate) sides: Vec<Side>,
    pub(crate) requests: BTreeMap<usize, Asked>,
    pub(crate) arrived: usize,
    /// Reads of a listener's clients that wait, by their numbers.
    pub(crate) listened: BTreeMap<usize, Listened>,
    /// The version that was written last.
    pub(crate) version: u64,
    pub(crate) walks: Vec<Walk>,
    seed: u64,
    events: BTreeMap<(Instant, u64), Event>,
    arrivals: BTreeMap<(Instant, u64), Arrival>,
    planned: u64,
    step: u64,
    seen: Seen,
    told: bool,
}

impl World {
    /// Creates a world before its first event; `told` writes its events to the terminal.
    pub(crate) fn new(seed: u64, told: bool) -> Self {
        let mut random = SplitMix64::new(seed);
        Self {
            now: Instant::from_secs(1),
            faulty: true,
            negligent: seed % 2 == 1,
            cache: empty_cache(seed),
            filled: RefCell::default(),
            sides: (0..BACKENDS).map(|at| Side::new(at, seed, &mut random)).collect(),
            random,
            requests: BTreeMap::new(),
            arrived: 0,
            listened: BTreeMap::new(),
            version: 0,
            walks: Vec::new(),
            seed,
            events: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            planned: 0,
            step: 0,
            seen: Seen::new(),
            told,
        }
    }

    /// Counts an event by its name.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Resets the counts of events.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
    }

    /// Writes an event to the terminal if this run reports them.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.told {
            let line = format!(
                "{:>6} {:>12} {}\n",
                self.step,
                format!("{:?}", self.now - Instant::from_secs(1)),
                what()
            );
            // Bypasses the harness, which captures what a test prints. A closed terminal is no
            // failure.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { step: self.step, now: self.now }
    }

    pub(crate) fn plan(&mut self, after: Duration, event: Event) {
        self.plan_at(self.now + after, event);
    }

    /// Schedules an event as [`plan`](Self::plan) does, at a time that may have passed.
    pub(crate) fn plan_at(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(crate) fn plan_arrival(&mut self, at: Instant, arrival: Arrival) {
        self.planned += 1;
        self.arrivals.insert((at, self.planned), arrival);
    }

    /// Returns true if this backend can fail.
    pub(crate) fn fails(&self, backend: At) -> bool {
        self.faulty && backend != HEALTHY
    }

    /// Ends all faults and revives all replicas.
    pub(crate) fn heal(&mut self) {
        self.tell(|| "no faults from now on".to_owned());
        self.faulty = false;
        self.sides
            .iter_mut()
            .flat_map(|side| &mut side.stores.replicas)
            .for_each(|replica| replica.dead = false);
    }

    /// Carries out all events. Replicas that stay dead are probed until the steps are used up.
    pub(crate) fn run(&mut self) {
        let last = self.step + STEPS_MAX;
        while self.step < last {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
            let wake = self.sides.iter().filter_map(|side| side.machine.next_timeout()).min();
            let is_busy = |side: &Side| side.machine.stats().calls > 0 || side.machine.holdings().writes > 0;
            let waiting = self.sides.iter().any(is_busy);
            let late = self.requests.values().filter_map(Asked::next_timeout).min();
            let next = event.into_iter().chain(arrival).chain(wake).chain(late).min();
            let Some(next) = next else { break };
            let dead =
                || self.sides.iter().flat_map(|side| &side.stores.replicas).any(|replica| replica.dead);
            if event.is_none() && arrival.is_none() && !waiting && dead() {
                break;
            }
            self.step += 1;
            self.now = self.now.max(next);
            if self.faulty && self.draw(50) == 0 {
                let jump = Duration::from_millis(self.draw(JUMP_MAX));
                self.now += jump;
                self.tell(|| format!("the clock jumped by {jump:?}"));
            }
            self.happen();
        }
        assert!(self.step < last, "the world does not come to rest");
        self.time_out();
        self.check_all();
    }

    /// Carries out what is due at the stores, one event at the node, and due timeouts.
    fn happen(&mut self) {
        self.note_due_flushes();
        while let Some(first) = self.arrivals.first_entry().filter(|first| first.key().0 <= self.now) {
            let ((at, _), arrival) = first.remove_entry();
            self.arrive_at_store(at, arrival);
        }
        self.time_out();
        if let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= self.now) {
            let event = first.remove();
            self.take_place(event);
        }
        self.time_out();
        let backend = self.step as usize % BACKENDS;
        if self.negligent && self.fails(backend) && self.once_in(4) {
            self.report_strays(backend);
        }
        if self.fails(backend) && self.once_in(20) {
            self.connect(backend);
        }
        self.wake_requests();
        self.check_requests();
        if self.step.is_multiple_of(LOOK) {
            self.check_all();
        }
    }

    fn take_place(&mut self, event: Event) {
        match event {
            Event::Arrive(queries) => self.ask(queries),
            Event::Listen { backend, number, tenant } => self.listen(backend, number, tenant),
            Event::Reply(backend, call, reply) => {
                self.tell(|| format!("backend {backend} answers {call:?}: {}", shown(&reply)));
                self.drive(backend, |machine, now, cache| machine.handle_reply(now, cache, call, reply));
            }
            Event::Probe(backend, replica) => {
                let is_up = !self.sides[backend].stores.replicas[replica.index()].dead;
                self.drive(backend, |machine, now, cache| machine.handle_probe(now, cache, replica, is_up));
            }
            Event::Write { backend, number, tenant, delete } => {
                self.begin_write(backend, number, tenant, delete)
            }
            Event::Written { backend, write, replica, outcome } => {
                self.written(backend, write, replica, outcome)
            }
            Event::CarryOut(backend, action) => {
                self.tell(|| format!("backend {backend}: late: {action:x?}"));
                self.carry_out(backend, action);
            }
            Event::Flip(backend, replica) => {
                let replica = &mut self.sides[backend].stores.replicas[replica];
                replica.dead ^= true;
                let dead = replica.dead;
                self.tell(|| {
                    format!("backend {backend}: a replica {}", if dead { "dies" } else { "returns" })
                });
            }
            Event::Foreign { backend, number } => self.change_foreign(backend, number),
            Event::Change { backend, number, tenant, delete } => self.change(backend, number, tenant, delete),
            Event::Restart { warm } => self.restart(warm),
            Event::Invalidate { backend, which } => self.begin_walk(backend, which),
            Event::Rates(backend) => self.set_rates(backend),
            Event::Flush { backend, after } => self.flush(backend, after),
            Event::Walk(walk) => self.walk_on(walk),
        }
    }

    /// Passes an input to a backend, and carries out its actions.
    pub(crate) fn drive<R>(
        &mut self,
        backend: At,
        input: impl FnOnce(&mut Machine, Instant, &NodeCache<'_>) -> R,
    ) -> R {
        let result = self.input(backend, input);
        self.carry_out_all(backend);
        result
    }

    /// Passes an input to a backend, and checks the cache afterwards.
    pub(crate) fn input<R>(
        &mut self,
        backend: At,
        input: impl FnOnce(&mut Machine, Instant, &NodeCache<'_>) -> R,
    ) -> R {
        let cache = NodeCache { cache: &self.cache, filled: &self.filled };
        let result = input(&mut self.sides[backend].machine, self.now, &cache);
        for Filled { partition, key, content } in self.filled.take() {
            self.check_fill(backend, partition, key, content);
        }
        let (numbers, all) = self.sides[backend].lifted();
        (0..numbers).for_each(|_| self.count("key settled"));
        if all {
            self.count("all settled");
        }
        result
    }

    /// Carries out all actions of a backend, or lets a negligent driver carry them out.
    pub(crate) fn carry_out_all(&mut self, backend: At) {
        while let Some(write) = self.sides[backend].machine.poll_acknowledged() {
            self.acknowledge_write(backend, write);
        }
        while let Some(action) = self.sides[backend].machine.poll_connection() {
            let fate = match action {
                ConnectionAction::Call { lease, .. } => {
                    self.sides[backend].leased.push(lease);
                    "call over a connection"
                }
                ConnectionAction::Fail { .. } => "call over a connection failed",
                ConnectionAction::End { .. } => "connection expired or given up",
            };
            self.count(fate);
        }
        while let Some(action) = self.sides[backend].machine.poll_action() {
            if !self.negligent || !self.fails(backend) || !self.once_in(10) {
                self.carry_out(backend, action);
                continue;
            }
            match action {
                // Answers to clients concern only the driver, and are never neglected.
                Action::Deliver { .. } | Action::EndWrite { .. } => self.carry_out(backend, action),
                _ => self.neglect(backend, action),
            }
        }
    }

    /// Carries an action out late, twice or never.
    fn neglect(&mut self, backend: At, action: Action<Key, Stored, Waiter>) {
        match self.draw(3) {
            0 => {
                self.count("action carried out late");
                let late = self.draw_time(timeout(backend) * 5 / 4);
                self.plan(late, Event::CarryOut(backend, action));
            }
            1 => {
                self.count("action carried out twice");
                let late = self.draw_time(timeout(backend) / 2);
                self.plan(late, Event::CarryOut(backend, action.clone()));
                self.carry_out(backend, action);
            }
            _ => {
                self.count("action never carried out");
                self.tell(|| format!("backend {backend}: never: {action:x?}"));
            }
        }
    }

    /// Tells the time to every backend's state machine, which carries out what is due.
    fn time_out(&mut self) {
        for backend in 0..BACKENDS {
            self.drive(backend, |machine, now, cache| machine.handle_timeout(now, cache));
        }
    }

    fn check_all(&self) {
        for (at, side) in self.sides.iter().enumerate() {
            side.assert_bounded(self.now);
            side.assert_cached(at, &self.cache, self.now);
        }
    }

    /// Restarts the node. It keeps what a snapshot holds of the cache and of writes that may land.
    fn restart(&mut self, warm: bool) {
        self.tell(|| format!("the node starts again{}", if warm { ", with a snapshot" } else { "" }));
        let unsettled: Vec<_> = (0..BACKENDS).map(|backend| self.give_up_writes(backend, warm)).collect();
        self.events.retain(|_, event| !event.ends_with_the_node());
        self.requests.clear();
        self.listened.clear();
        self.walks.clear();
        let cache = mem::replace(&mut self.cache, empty_cache(self.seed));
        if warm {
            self.keep(&cache);
        }
        for (side, unsettled) in self.sides.iter_mut().zip(unsettled) {
            side.start(self.now, unsettled.filter(|_| warm));
        }
        (0..BACKENDS).for_each(|backend| self.set_rates(backend));
        self.count(if warm { "started warm" } else { "started cold" });
    }

    /// Ends the writes of a backend like a node that ends. Returns the time until which one may
    /// land.
    fn give_up_writes(&mut self, backend: At, warm: bool) -> Option<Instant> {
        let (now, side) = (self.now, &mut self.sides[backend]);
        side.gave_up |= !side.running.is_empty();
        // No write may land later than the landing time after its end.
        let until = now + side.landing();
        let late = self.arrivals.iter().filter(|((at, _), _)| *at > until);
        let late = late.filter_map(|(_, arrival)| match arrival {
            Arrival::Land { backend: of, number, .. } if *of == backend => Some(*number),
            _ => None,
        });
        side.spoilt.extend(late);
        let unsettled = self.input(backend, |machine, now, cache| machine.handle_shutdown(now, cache));
        while let Some(action) = self.sides[backend].machine.poll_action() {
            if let Action::EndWrite { .. } = action {
                self.carry_out(backend, action);
            }
        }
        let withheld = self.sides[backend].withheld();
        (0..withheld).for_each(|_| self.count("fill withheld"));
        let side = &mut self.sides[backend];
        if !warm {
            // The next process does not know the writes that may still land.
            let lost = side.unsettled.iter().filter(|(_, until)| now < **until).map(|(number, _)| *number);
            side.spoilt.extend(lost);
        }
        unsettled
    }

    /// Stores what a snapshot keeps of the cache before: neither stale nor absent values.
    fn keep(&self, before: &Cache) {
        let access = Access::at(self.now);
        for partition in (0..BACKENDS * usize::from(TENANTS)).map(PartitionId::from_index) {
            let end = before.scan(partition, 0, &access, usize::MAX, |key, item| {
                let Item { value, flags, expires, kind, tags, .. } = item;
                let item = NewItem { value, flags, expires, kind, tags, received: None };
                self.cache.set(partition, key, item, &access).expect("there is room for one");
            });
            assert_eq!(end, 0);
        }
    }

    /// Draws rates of reads and writes for the tenants of a backend, if they have rates.
    fn set_rates(&mut self, backend: At) {
        for kind in [DemandKind::Read, DemandKind::Write] {
            let rates = [(); TENANTS as usize].map(|()| self.draw(300) as f64 + 20.0);
            self.drive(backend, |machine, now, cache| {
                machine.set_rates(now, cache, kind, rates.iter().sum(), &rates);
            });
        }
        if (0..TENANTS).any(|tenant| self.sides[backend].used(tenant).reads.waiting > 0) {
            self.count("fetch waited for its tenant's rate");
        }
    }

    /// Lets time pass until no fence is left. Then everything else has to be empty as well.
    pub(crate) fn assert_at_rest(&mut self) {
        self.now += Duration::from_secs(120);
        self.note_due_flushes();
        self.time_out();
        assert!(self.requests.is_empty() && self.listened.is_empty());
        assert!(self.events.is_empty() && self.arrivals.is_empty());
        self.sides.iter().for_each(Side::assert_at_rest);
        self.check_all();
        for backend in 0..BACKENDS {
            let withheld = self.sides[backend].withheld();
            (0..withheld).for_each(|_| self.count("fill withheld"));
            let stats = self.sides[backend].machine.stats();
            if stats.counters.ramped > 0 {
                self.count("ramp refused");
            }
            if stats.ramp.is_some_and(|ramp| ramp.warm) {
                self.count("ramp ended");
            }
        }
    }

    /// Draws a number below `bound`.
    pub(crate) fn draw(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    /// Returns true with a probability of one in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.draw(times) == 0
    }

    /// Draws a time up to `longest`.
    pub(crate) fn draw_time(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.draw(longest.as_nanos() as u64 + 1))
    }
}

fn empty_cache(seed: u64) -> Cache {
    // Room for about half of the keys.
    let budget_bytes = u64::from(NUMBERS / 2) * sherwood_cache::charge(4, 16);
    let partition = |index: usize| {
        let tenant = TenantId::from_index(index % usize::from(TENANTS));
        let backend = BackendId::from_index(index / usize::from(TENANTS));
        Partition { grace: GRACE, ..Partition::new(tenant, backend, budget_bytes) }
    };
    let partitions: Vec<_> = (0..BACKENDS * usize::from(TENANTS)).map(partition).collect();
    let options = CacheOptions { shards: 2, ..CacheOptions::default() };
    Cache::new(options, &partitions, SeededState::new(seed)).expect("these options can work")
}

/// Formats `what` in hexadecimal, in which values show their backend and number.
pub(crate) fn shown(what: &impl fmt::Debug) -> String {
    format!("{what:x?}")
}
