//! The world: its clock, its events, the driver of the machine, and the checks of every step.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, Cache, Options as CacheOptions, Partition, Value};
use sherwood_dispatch::{
    BalanceChoice, CopiesChoice, DuplicateState, Layout, Options, ProbeOptions, RetryOptions,
};
use sherwood_model::{BackendId, Instant, Percent, SeededState, SplitMix64, Tags, TenantId};
use sherwood_path::{
    Acknowledge, Action, AnswerCache, Backend, BackendOptions, Consistency, DuplicateOptions, Fetched, Rules,
    WriteId, possible_layouts,
};

use crate::Seen;
use crate::calls::Call;
use crate::clients::{Client, Read, Running, content};
use crate::disks::{Disk, DiskFaults};
use crate::events::{BUSY, Event, KEYS, Key, PARTITION, TIMEOUT, Version, View, key, ms};
use crate::history::History;
use crate::servers::{Link, Seat, Server};

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

/// Writes by partition and number in the log.
type Numbers = BTreeMap<(usize, u64), u64>;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) begun: Instant,
    /// Clients do nothing until the first time, and nothing more from the second one on.
    pub(crate) quiet_until: Instant,
    pub(crate) busy_until: Instant,
    pub(crate) step: u64,
    /// Number of processes before this one.
    pub(crate) process: u64,
    random: SplitMix64,
    pub(crate) faulty: bool,
    pub(crate) cache: Cache,
    pub(crate) machine: Machine,
    pub(crate) options: BackendOptions,
    pub(crate) duplicates: DuplicateOptions,
    pub(crate) servers: Vec<Server>,
    pub(crate) links: BTreeMap<Seat, Link>,
    /// The writes that each duplicate had when it was looked at last, while it is read.
    were_read: BTreeMap<Seat, View>,
    /// The disk with the logs, if they are kept on one.
    pub(crate) disks: Option<Vec<Disk>>,
    /// An earlier state of the disk, and of `numbers`.
    pub(crate) earlier: (Option<Vec<Disk>>, Numbers),
    pub(crate) disk_faults: DiskFaults,
    /// True if the driver says that a write is stored before it is: a fault that must be found.
    pub(crate) reports_early: bool,
    /// The writes that were acknowledged before the last end of the process: every later read
    /// reflects them.
    pub(crate) kept: View,
    pub(crate) history: History,
    /// The writes by partition and number in the log.
    pub(crate) numbers: Numbers,
    pub(crate) clients: Vec<Client>,
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) asked: u64,
    pub(crate) writes: BTreeMap<WriteId, Running>,
    pub(crate) calls: BTreeMap<u64, Call>,
    pub(crate) called: u64,
    pub(crate) events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    seen: Seen,
    seed: u64,
    told: bool,
}

impl World {
    /// Creates a world before its first event; `told` writes its events to the terminal. With
    /// `reports_early`, writes to the disk are slow, and reported before they are done.
    pub(crate) fn new(seed: u64, told: bool, reports_early: bool) -> Self {
        let (mut random, now) = (SplitMix64::new(seed), Instant::from_secs(1));
        let mut options = draw_options(|bound| random.next_u64() % bound);
        if reports_early {
            options.acknowledge = Acknowledge::First;
        }
        let partitions = options.duplicates.expect("they were drawn").partitions;
        let disks = (reports_early || random.next_u64() % 2 == 0).then(|| vec![Disk::new(); partitions]);
        let mut world = Self {
            now,
            begun: now,
            quiet_until: now,
            busy_until: now + BUSY,
            step: 0,
            process: 0,
            faulty: true,
            cache: empty_cache(seed),
            machine: start(&options, now, seed),
            duplicates: options.duplicates.expect("they were drawn"),
            servers: (0..options.replicas).map(|_| Server::new()).collect(),
            links: BTreeMap::new(),
            were_read: BTreeMap::new(),
            options,
            random,
            earlier: (disks.clone(), BTreeMap::new()),
            disks,
            disk_faults: DiskFaults {
                slow_until: if reports_early { Instant::NEVER } else { Instant::ZERO },
                ..DiskFaults::default()
            },
            reports_early,
            kept: [0; KEYS],
            history: History::default(),
            numbers: BTreeMap::new(),
            clients: Vec::new(),
            reads: BTreeMap::new(),
            asked: 0,
            writes: BTreeMap::new(),
            calls: BTreeMap::new(),
            called: 0,
            events: BTreeMap::new(),
            planned: 0,
            seen: Seen::new(),
            seed,
            told,
        };
        world.keep_on_disk();
        world.tell(|| format!("{:?}, on disk: {}", world.options, world.disks.is_some()));
        world
    }

    /// Starts the next process.
    pub(crate) fn start(&mut self) {
        self.process += 1;
        // The clock of the machine may have been set back.
        self.duplicates.epoch = self.draw(4) + 1;
        self.options.duplicates = Some(self.duplicates);
        self.machine = start(&self.options, self.now, self.seed);
        self.cache = empty_cache(self.seed);
        self.keep_on_disk();
    }

    /// Has the logs kept on disk, if there is one.
    fn keep_on_disk(&mut self) {
        if let Some(recovered) = self.read_disks() {
            self.machine.keep_logs_on_disk(recovered);
        }
    }

    pub(crate) fn plan_inputs(&mut self) {
        self.add_clients();
        self.plan_faults();
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
            Event::GiveUp { seat, task } => self.give_up_task(seat, task),
            Event::Notice { seat, connection } => {
                if self.link(seat).opened == connection {
                    self.break_connection(seat);
                }
            }
            Event::Read(call) => self.read(call),
            Event::Answer(call) => self.answer(call),
            Event::Probe(replica) => {
                let server = &self.servers[replica.index()];
                let is_up = server.down_until.max(server.paused_until).max(server.cut_off_until) <= self.now;
                self.drive(|machine, now, cache| machine.handle_probe(now, cache, replica, is_up));
            }
            Event::Change => self.change_layout(),
            Event::Synced { partition, process } => self.end_store(partition, process),
            Event::Fail(fault) => self.fail(fault),
            Event::Heal => self.heal(),
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
            Action::Call { attempt, replica, keys, .. } => self.call(attempt, replica.index(), keys),
            Action::Cancel { attempt, .. } => self.give_up_call(attempt),
            Action::Probe { replica, .. } => self.plan(ms(1), Event::Probe(replica)),
            Action::Deliver { result, waiters, .. } => self.deliver(result, waiters),
            Action::Duplicate { partition, replica, step } => {
                self.take_step(Seat { server: replica.index(), partition }, step);
            }
            Action::StoreLog { partition, records, first } => self.take_store(partition, records, first),
            Action::EndWrite { write, outcome, session, .. } => self.end_write(write, outcome, session),
            Action::StartWrite(_) => unreachable!("writes go to the logs"),
            Action::Announce(_) => unreachable!("no other node caches the values"),
        }
    }

    /// Checks the servers that are read, the cache, and the bounds of what the machine holds.
    fn check(&mut self) {
        let logs = self.machine.logs().expect("it has logs");
        for one in &logs.duplicates {
            let seat = Seat { server: one.replica.index(), partition: one.partition };
            if one.state != DuplicateState::Current {
                self.were_read.remove(&seat);
                continue;
            }
            let server = &self.servers[seat.server];
            if server.is_down(self.now) {
                continue;
            }
            let has = self.places_at(seat);
            if let Some(before) = self.were_read.insert(seat, has) {
                let is_back = (0..KEYS).any(|key| has[key] < before[key]);
                assert!(!is_back, "{seat:?} has {has:?} after {before:?}");
            }
            self.check_cached(seat);
        }
        let partitions = self.duplicates.partitions;
        assert!(logs.entries <= partitions * self.duplicates.entries_max);
        assert!(logs.bytes <= partitions as u64 * self.duplicates.bytes_max);
        let (holdings, stats) = (self.machine.holdings(), self.machine.stats());
        assert_eq!((holdings.writes, holdings.pending_actions), (self.writes.len(), 0));
        assert!(holdings.writes <= self.options.writes_max as usize);
        let keys_max = self.options.writes_max + self.options.fenced_keys_max;
        assert!(holdings.written_or_fenced_keys <= keys_max as usize);
        assert!(
            stats.waiters <= self.options.dispatch.waiters_max && stats.waiters as usize <= self.reads.len()
        );
    }

    /// Returns the places of the writes that a server has of the keys of a partition.
    fn places_at(&self, seat: Seat) -> View {
        let data = &self.servers[seat.server].contents.data;
        std::array::from_fn(|number| {
            let is_in = self.duplicates.partition(&key(number)) == seat.partition;
            let write = data.get(&number).copied().filter(|_| is_in);
            self.history.place(write.unwrap_or(0))
        })
    }

    /// Checks that every cached value of a partition is that of a server which is read.
    fn check_cached(&self, seat: Seat) {
        let access = Access { flags: AccessFlags::SEE_ABSENT, ..Access::at(self.now) };
        for number in (0..KEYS).filter(|number| self.duplicates.partition(&key(*number)) == seat.partition) {
            let cached = self.cache.peek(PARTITION, &key(number), &access, content);
            let has = self.value_at(seat.server, key(number));
            assert!(
                cached.is_none_or(|cached| cached == has),
                "{cached:?} of key {number} is cached, and {seat:?} has {has:?}"
            );
        }
    }

    /// Asks for another layout.
    fn change_layout(&mut self) {
        let configured = Layout {
            partitions: self.duplicates.partitions as u16,
            duplicates: self.duplicates.duplicates as u8,
        };
        let possible = possible_layouts(configured);
        let layout = possible[self.draw(possible.len() as u64) as usize];
        self.tell(|| format!("the layout is to be {layout}"));
        self.count("layout changed");
        self.drive(|machine, now, cache| machine.set_layout(now, cache, layout)).expect("it is possible");
    }

    /// Lets time pass until no fence is left, and checks that all is well in the end.
    pub(crate) fn assert_at_rest(&mut self) {
        self.now += Duration::from_secs(120);
        self.drive(|machine, now, cache| machine.handle_timeout(now, cache));
        self.check();
        assert!(self.events.is_empty() && self.reads.is_empty() && self.writes.is_empty());
        let (holdings, stats) = (self.machine.holdings(), self.machine.stats());
        assert_eq!((holdings.written_or_fenced_keys, self.machine.next_timeout()), (0, None));
        assert_eq!((stats.waiters, stats.keys, stats.calls, stats.joinable_keys), (0, 0, 0, 0));
        let logs = self.machine.logs().expect("it has logs");
        let mut duplicates = logs.duplicates.iter();
        assert!(duplicates.all(|one| (one.state, one.lag) == (DuplicateState::Current, 0)), "{logs:?}");
        let layout = logs.layout.expect("it has one");
        assert!(logs.is_settled, "{logs:?}");
        let acknowledged = self.history.acknowledged();
        for partition in 0..self.duplicates.partitions {
            let holders = logs.duplicates.iter().filter(|one| one.partition == partition);
            let has: Vec<View> =
                holders.map(|one| self.places_at(Seat { server: one.replica.index(), partition })).collect();
            assert_eq!(has.len(), usize::from(layout.duplicates));
            assert!(has.iter().all(|other| *other == has[0]), "duplicates differ: {has:?}");
            for number in (0..KEYS).filter(|number| self.duplicates.partition(&key(*number)) == partition) {
                let (place, least) = (has[0][number], acknowledged[number]);
                assert!(place >= least, "key {number} has the write at place {place}, before {least}");
            }
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
    let interval_min = ms(5);
    let dispatch = Options {
        batch_keys_max: draw(3) as u32 + 1,
        in_flight_calls_max: draw(4) as u32 + 1,
        queued_calls_max: draw(6) as u32,
        waiters_max: draw(20) as u32 + 3,
        timeout: TIMEOUT,
        balance: if draw(3) == 0 {
            BalanceChoice::Tokens { lookups: 0, age: TIMEOUT }
        } else {
            BalanceChoice::PowerOfTwo
        },
        copies: match draw(3) {
            0 => CopiesChoice::Fixed { factor: draw(copies as u64) as u8 + 1 },
            1 => CopiesChoice::Hedge { percentile: Percent::MIN, min: ms(4) },
            _ => CopiesChoice::One,
        },
        retry: RetryOptions { per_call_max: 2, ratio: 0.2, burst: 5 },
        probe: ProbeOptions { failures_max: 4, interval_min, interval_max: ms(50) },
        ..Options::default()
    };
    BackendOptions {
        rules: Rules { negative_ttl: if draw(2) == 0 { ms(50) } else { ms(0) }, ..Rules::default() },
        acknowledge: [Acknowledge::First, Acknowledge::Majority, Acknowledge::All][draw(3) as usize],
        reads_as_written: draw(4) > 0,
        writes_max: draw(6) as u32 + 2,
        duplicates: Some(duplicates),
        ..BackendOptions::new(dispatch, partitions * copies, vec![PARTITION])
    }
}
