//! The world: its clock, its events, the driver of the machine, and the checks of every step.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition, Value};
use sherwood_dispatch::{DuplicateState, Options};
use sherwood_model::{BackendId, Instant, SeededState, SplitMix64, Tags, TenantId};
use sherwood_path::{
    Acknowledge, Action, AnswerCache, Backend, BackendOptions, Consistency, DuplicateOptions, Fetched,
    WriteId,
};

use crate::Seen;
use crate::clients::{Client, Running};
use crate::events::{Event, Key, PARTITION, TIMEOUT, Version, key};
use crate::history::History;
use crate::servers::Server;

const STEPS_MAX: u64 = 100_000;

/// The machine of the replicated store.
pub(crate) type Machine = Backend<Key, Version, u64>;

/// The process's cache.
pub(crate) struct Cached<'a>(&'a Cache);

impl AnswerCache<Version> for Cached<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, Version(bytes): &'a Version) -> Fetched<'a> {
        Fetched { value: Value::Bytes(bytes), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) begun: Instant,
    pub(crate) step: u64,
    random: SplitMix64,
    pub(crate) cache: Cache,
    pub(crate) machine: Machine,
    pub(crate) options: BackendOptions,
    pub(crate) duplicates: DuplicateOptions,
    pub(crate) servers: Vec<Server>,
    pub(crate) history: History,
    /// The writes of this process by partition and number in the log.
    pub(crate) numbers: BTreeMap<(usize, u64), u64>,
    pub(crate) clients: Vec<Client>,
    pub(crate) writes: BTreeMap<WriteId, Running>,
    pub(crate) events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    seen: Seen,
    told: bool,
}

impl World {
    /// Creates a world before its first event; `told` writes its events to the terminal.
    pub(crate) fn new(seed: u64, told: bool) -> Self {
        let (mut random, now) = (SplitMix64::new(seed), Instant::from_secs(1));
        let options = draw_options(|bound| random.next_u64() % bound);
        let world = Self {
            now,
            begun: now,
            step: 0,
            cache: empty_cache(seed),
            machine: start(&options, now, seed),
            duplicates: options.duplicates.expect("they were drawn"),
            servers: (0..options.replicas).map(|_| Server::new()).collect(),
            options,
            random,
            history: History::default(),
            numbers: BTreeMap::new(),
            clients: Vec::new(),
            writes: BTreeMap::new(),
            events: BTreeMap::new(),
            planned: 0,
            seen: Seen::new(),
            told,
        };
        world.tell(|| format!("{:?}", world.options));
        world
    }

    pub(crate) fn plan_inputs(&mut self) {
        self.add_clients();
    }

    /// Lets everything happen until nothing is planned.
    pub(crate) fn run(&mut self) {
        loop {
            let due = self.machine.next_timeout();
            let next = self.events.first_key_value().map(|((at, _), _)| *at);
            match due.filter(|due| next.is_none_or(|at| *due <= at)) {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.drive(|machine, now, cache| machine.handle_timeout(now, cache));
                    assert!(
                        self.machine.next_timeout().is_none_or(|due| due > self.now),
                        "due again at once"
                    );
                }
                None => {
                    let Some(((at, _), event)) = self.events.pop_first() else { return };
                    self.now = at;
                    self.take(event);
                }
            }
            self.step += 1;
            assert!(self.step < STEPS_MAX, "it does not come to rest");
            self.check();
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Act(client) => self.act(client),
            Event::Serve(server) => self.serve(server),
        }
    }

    /// Passes an input to the machine, and carries out its actions.
    pub(crate) fn drive<R>(&mut self, input: impl FnOnce(&mut Machine, Instant, &Cached<'_>) -> R) -> R {
        let result = self.input(input);
        self.carry_out_all();
        result
    }

    /// Passes an input to the machine.
    pub(crate) fn input<R>(&mut self, input: impl FnOnce(&mut Machine, Instant, &Cached<'_>) -> R) -> R {
        input(&mut self.machine, self.now, &Cached(&self.cache))
    }

    pub(crate) fn carry_out_all(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action<Key, Version, u64>) {
        match action {
            Action::Duplicate { replica, step } => self.take_step(replica.index(), step),
            Action::EndWrite { write, outcome, session, .. } => self.end_write(write, outcome, session),
            Action::StartWrite(_) => unreachable!("writes go to the logs"),
            Action::Announce(_) => unreachable!("no other node caches the values"),
            Action::Call { .. } | Action::Cancel { .. } | Action::Probe { .. } | Action::Deliver { .. } => {
                unreachable!("nothing is read")
            }
        }
    }

    /// Checks the bounds of what the machine holds.
    fn check(&self) {
        let logs = self.machine.logs().expect("it has logs");
        let partitions = self.duplicates.partitions;
        assert!(logs.entries <= partitions * self.duplicates.entries_max);
        assert!(logs.bytes <= partitions as u64 * self.duplicates.bytes_max);
        let holdings = self.machine.holdings();
        assert_eq!((holdings.writes, holdings.pending_actions), (self.writes.len(), 0));
        assert!(holdings.writes <= self.options.writes_max as usize);
        let keys_max = self.options.writes_max + self.options.fenced_keys_max;
        assert!(holdings.written_or_fenced_keys <= keys_max as usize);
    }

    /// Lets time pass until no fence is left, and checks that all is well in the end.
    pub(crate) fn assert_at_rest(&mut self) {
        self.now += Duration::from_secs(120);
        self.drive(|machine, now, cache| machine.handle_timeout(now, cache));
        self.check();
        assert!(self.events.is_empty() && self.writes.is_empty());
        let (holdings, stats) = (self.machine.holdings(), self.machine.stats());
        assert_eq!((holdings.written_or_fenced_keys, self.machine.next_timeout()), (0, None));
        assert_eq!((stats.waiters, stats.keys, stats.calls, stats.joinable_keys), (0, 0, 0, 0));
        let logs = self.machine.logs().expect("it has logs");
        let mut duplicates = logs.duplicates.iter();
        assert!(duplicates.all(|one| (one.state, one.lag) == (DuplicateState::Current, 0)), "{logs:?}");
        for of_partition in self.servers.chunks(self.duplicates.duplicates) {
            let data = &of_partition[0].contents.data;
            assert!(of_partition.iter().all(|other| other.contents.data == *data), "duplicates differ");
        }
        for (number, least) in self.history.acknowledged().into_iter().enumerate() {
            let first = self.duplicates.partition(&key(number)) * self.duplicates.duplicates;
            let has = self.servers[first].contents.data.get(&number).copied().unwrap_or(0);
            let place = self.history.place(has);
            assert!(place >= least, "key {number} has write {has} at place {place}, before {least}");
        }
    }

    /// Counts an event by its name.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn into_seen(self) -> Seen {
        self.seen
    }

    /// Writes an event to the terminal if this run reports them.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.told {
            let line = format!("{:>6} {:>12?} {}\n", self.step, self.now - self.begun, what());
            // Bypasses the harness, which captures what a test prints. A closed terminal is no
            // failure.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    pub(crate) fn plan(&mut self, after: Duration, event: Event) {
        self.plan_at(self.now + after, event);
    }

    pub(crate) fn plan_at(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
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
        Duration::from_micros(self.draw(longest.as_micros() as u64 + 1))
    }
}

fn start(options: &BackendOptions, now: Instant, seed: u64) -> Machine {
    Backend::new(options.clone(), now, SeededState::new(seed)).expect("these options can work")
}

fn empty_cache(seed: u64) -> Cache {
    let partitions = [Partition::new(TenantId(0), BackendId(0), 1 << 20)];
    Cache::new(CacheOptions::default(), &partitions, SeededState::new(seed)).expect("these options can work")
}

fn draw_options(mut draw: impl FnMut(u64) -> u64) -> BackendOptions {
    let (partitions, copies) = (draw(3) as usize + 1, draw(4) as usize + 1);
    let duplicates = DuplicateOptions {
        partitions,
        duplicates: copies,
        consistency: [Consistency::Eventual, Consistency::ReadYourWrites, Consistency::Causal]
            [draw(3) as usize],
        entries_max: 4 << draw(4),
        bytes_max: 100 << draw(3),
        epoch: 1,
    };
    let dispatch = Options { timeout: TIMEOUT, ..Options::default() };
    BackendOptions {
        acknowledge: [Acknowledge::First, Acknowledge::Majority, Acknowledge::All][draw(3) as usize],
        reads_as_written: draw(4) > 0,
        writes_max: draw(6) as u32 + 2,
        duplicates: Some(duplicates),
        ..BackendOptions::new(dispatch, partitions * copies, vec![PARTITION])
    }
}
