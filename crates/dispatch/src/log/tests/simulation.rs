//! A log over simulated stores whose connections, processes and data fail, drawn from a seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sherwood_model::SplitMix64;

use super::super::*;

/// Steps of a run, of a millisecond each. Faults end after the first part.
const STEPS: u64 = 2_200;
const FAULTY: u64 = 1_000;
const KEYS: u64 = 12;

fn options(draws: &mut SplitMix64) -> LogOptions {
    let acknowledge = [Acknowledge::First, Acknowledge::Majority, Acknowledge::All];
    LogOptions {
        partitions: 1,
        duplicates: 1 + below(draws, 3) as usize,
        acknowledge: acknowledge[below(draws, 3) as usize],
        entries_max: 8 << below(draws, 5),
        bytes_max: 2_000,
        lag_max: Duration::from_millis(50),
        landing: Duration::from_millis(20),
        retry: Duration::from_millis(30),
        start_max: Duration::from_millis(200),
    }
}

fn below(draws: &mut SplitMix64, bound: u64) -> u64 {
    draws.next_u64() % bound
}

/// True once in `of` draws, on average.
fn once_in(draws: &mut SplitMix64, of: u64) -> bool {
    below(draws, of) == 0
}

/// The contents of a store: for each key the number of the entry that was applied last, and its
/// marker.
#[derive(Clone, Default)]
struct Contents {
    data: BTreeMap<u64, (u64, bool)>,
    marker: Option<Marker>,
}

#[derive(Clone)]
enum Command {
    Mark(Marker),
    Change(u64, u64, bool),
    ReadMarker,
}

/// A connection as its server sees it.
struct Connection {
    commands: VecDeque<Command>,
    /// The step until which the server still carries out commands after the client has given the
    /// connection up, which is known once it has answered over another one; none before.
    ends: Option<u64>,
}

/// A store and the driver of its one connection.
struct Store {
    contents: Contents,
    snapshot: Contents,
    connections: Vec<Connection>,
    paused_until: u64,
    full_until: u64,
    /// Actions that the driver has still to carry out.
    tasks: VecDeque<LogAction<u64, bool>>,
    /// The batch in flight: last number made before a refusal, answers missing, and refusals.
    batch: Option<(u64, usize, Vec<u64>)>,
    is_inspected: bool,
    /// Keys that are still to be copied, and the source.
    copy: Option<(usize, u64)>,
    /// The number that reads rely on, while the store is read.
    read: Option<u64>,
}

impl Store {
    fn new() -> Self {
        Self {
            contents: Contents::default(),
            snapshot: Contents::default(),
            connections: Vec::new(),
            paused_until: 0,
            full_until: 0,
            tasks: VecDeque::new(),
            batch: None,
            is_inspected: false,
            copy: None,
            read: None,
        }
    }

    /// Gives up the connection, whose commands may still be carried out.
    fn orphan(&mut self) {
        for connection in &mut self.connections {
            connection.ends.get_or_insert(u64::MAX);
        }
        self.copy = None;
    }
}

struct World {
    seed: u64,
    step: u64,
    draws: SplitMix64,
    log: Log<u64, bool>,
    stores: Vec<Store>,
    /// The entries that take effect, by key, and the number of the last entry.
    entries: [Vec<u64>; KEYS as usize],
    last: u64,
    acknowledged: u64,
    /// Entries that were refused, and may take effect all the same.
    abandoned: BTreeSet<u64>,
    /// The last entry of each key that is settled.
    settled: [u64; KEYS as usize],
}

impl World {
    fn now(&self) -> Instant {
        Instant::from_millis(1_000 + self.step)
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.log.poll_action() {
            match action {
                LogAction::Apply { duplicate, .. } | LogAction::Inspect(duplicate) => {
                    self.stores[duplicate].tasks.push_back(action);
                }
                LogAction::Copy { to, .. } => self.stores[to].tasks.push_back(action),
                LogAction::Read { duplicate, applied } => self.stores[duplicate].read = applied,
                LogAction::Acknowledge(number, is_made) => self.acknowledge(number, is_made),
                LogAction::Abandon(number) => assert!(self.abandoned.insert(number), "seed {}", self.seed),
                LogAction::Settle(entry, true) => self.settled[entry.key as usize] = entry.number,
                LogAction::Settle(_, false) => {}
                LogAction::Close(_) | LogAction::Retire(_) | LogAction::Clear(_) => {
                    unreachable!("no duplicate leaves")
                }
                LogAction::Store { .. } => unreachable!("it is kept in memory"),
            }
        }
    }

    fn acknowledge(&mut self, number: u64, is_made: bool) {
        let key = self.entries.iter().position(|numbers| numbers.contains(&number)).expect("it was appended");
        if !is_made {
            return self.entries[key].retain(|of_key| *of_key != number);
        }
        assert!(number > self.acknowledged, "seed {}: {number} in order and once", self.seed);
        self.acknowledged = number;
        let key = key as u64;
        let have = |store: &&Store| store.contents.data.get(&key).is_some_and(|(has, _)| *has >= number);
        assert!(self.stores.iter().any(|store| have(&store)), "seed {}: {number} is nowhere", self.seed);
    }

    /// Starts what the driver of a store has to do next.
    fn begin_task(&mut self, index: usize) {
        let store = &mut self.stores[index];
        if matches!(store.tasks.back(), Some(LogAction::Inspect(_))) {
            // A new connection ends all that was to be done over the one before.
            let inspection = store.tasks.pop_back();
            store.tasks.clear();
            store.orphan();
            (store.batch, store.is_inspected) = (None, true);
            let commands = VecDeque::from([Command::ReadMarker]);
            store.connections.push(Connection { commands, ends: None });
            drop(inspection);
        }
        if store.batch.is_some() || store.is_inspected || store.copy.is_some() {
            return;
        }
        let open = store.connections.iter_mut().find(|connection| connection.ends.is_none());
        match store.tasks.pop_front() {
            Some(LogAction::Apply { marker, entries, .. }) => {
                let Some(open) = open else {
                    return self.log.handle_applied(self.now(), index, BatchEnd::Broken(0));
                };
                open.commands.push_back(Command::Mark(marker));
                let changes =
                    entries.iter().map(|entry| Command::Change(entry.number, entry.key, entry.change));
                open.commands.extend(changes);
                store.batch = Some((0, 1 + entries.len(), Vec::new()));
            }
            Some(LogAction::Copy { from, .. }) => {
                store.contents.marker = None;
                store.copy = Some((from, 0));
            }
            _ => {}
        }
    }

    /// Lets a server carry out some commands.
    fn serve(&mut self, index: usize) {
        let (now, step) = (self.now(), self.step);
        let store = &mut self.stores[index];
        if store.paused_until > step {
            return;
        }
        store.connections.retain(|connection| connection.ends.is_none_or(|ends| ends > step));
        for _ in 0..below(&mut self.draws, 4) {
            if store.connections.is_empty() {
                return;
            }
            let chosen = below(&mut self.draws, store.connections.len() as u64) as usize;
            let connection = &mut store.connections[chosen];
            let is_heard = connection.ends.is_none();
            let Some(command) = connection.commands.pop_front() else { continue };
            let batch = store.batch.as_mut().filter(|_| is_heard);
            match (command, batch) {
                (Command::Mark(marker), _) => store.contents.marker = Some(marker),
                (Command::Change(number, _, true), batch)
                    if store.full_until > step || number.is_multiple_of(40) =>
                {
                    batch.into_iter().for_each(|(.., refused)| refused.push(number));
                }
                (Command::Change(number, key, is_put), batch) => {
                    store.contents.data.insert(key, (number, is_put));
                    if let Some((made, ..)) = batch.filter(|(.., refused)| refused.is_empty()) {
                        *made = number;
                    }
                }
                (Command::ReadMarker, _) if is_heard && store.is_inspected => {
                    store.is_inspected = false;
                    for connection in &mut store.connections {
                        // Less than the time for which the log waits.
                        connection.ends = connection.ends.map(|ends| ends.min(step + 18));
                    }
                    self.log.handle_inspected(now, index, Ok(store.contents.marker));
                }
                (Command::ReadMarker, _) => {}
            }
            if let (true, Some((_, missing, _))) = (is_heard, &mut store.batch) {
                *missing -= 1;
            }
            if let Some((.., refused)) = store.batch.take_if(|(_, missing, _)| *missing == 0) {
                self.log.handle_applied(now, index, BatchEnd::Answered(&refused));
            }
        }
    }

    /// Copies one more key.
    fn copy(&mut self, index: usize) {
        let Some((from, key)) = self.stores[index].copy else { return };
        if self.stores[index].paused_until > self.step || self.stores[from].paused_until > self.step {
            return;
        }
        let value = self.stores[from].contents.data.get(&key).copied();
        let data = &mut self.stores[index].contents.data;
        match value {
            Some(value) => data.insert(key, value),
            None => data.remove(&key),
        };
        let is_done = key + 1 == KEYS;
        self.stores[index].copy = (!is_done).then_some((from, key + 1));
        if is_done {
            self.log.handle_copied(self.now(), index, true);
        }
    }

    /// Ends the connection of a store, which the driver notices.
    fn break_connection(&mut self, index: usize) {
        let (now, store) = (self.now(), &mut self.stores[index]);
        if store.is_inspected || store.connections.iter().all(|one| one.ends.is_some()) {
            return;
        }
        store.orphan();
        store.tasks.clear();
        match store.batch.take() {
            Some((made, ..)) => self.log.handle_applied(now, index, BatchEnd::Broken(made)),
            None => self.log.handle_broken(now, index),
        }
        self.carry_out();
    }

    fn fail(&mut self) {
        for index in 0..self.stores.len() {
            if once_in(&mut self.draws, 300) {
                self.break_connection(index);
            }
            let (step, draws) = (self.step, &mut self.draws);
            if once_in(draws, 300) {
                self.stores[index].paused_until = step + below(draws, 150);
            }
            if once_in(draws, 300) {
                self.stores[index].full_until = step + below(draws, 150);
            }
            if once_in(draws, 100) {
                self.stores[index].snapshot = self.stores[index].contents.clone();
            }
            if once_in(draws, 500) {
                self.kill(index);
            }
        }
    }

    /// Ends a server's process. It comes back with its data, or, if others are read, too, with what
    /// it had some time ago, or without any.
    fn kill(&mut self, index: usize) {
        let others =
            self.stores.iter().enumerate().filter(|(other, store)| *other != index && store.read.is_some());
        let may_lose = others.count() > 0;
        let was_inspected = self.stores[index].is_inspected;
        self.break_connection(index);
        let store = &mut self.stores[index];
        store.connections.clear();
        match below(&mut self.draws, 3) {
            0 if may_lose => store.contents = Contents::default(),
            1 if may_lose => store.contents = store.snapshot.clone(),
            _ => {}
        }
        if std::mem::take(&mut store.is_inspected) && was_inspected {
            self.log.handle_inspected(self.now(), index, Err(()));
        }
    }

    /// Checks what clients could read now.
    fn check(&self) {
        for (index, store) in self.stores.iter().enumerate() {
            let Some(applied) = store.read else { continue };
            for key in 0..KEYS {
                let of_key = &self.entries[key as usize];
                let takes_effect = |number: &&u64| **number <= applied && !self.abandoned.contains(*number);
                let least = of_key.iter().rev().find(takes_effect).copied().unwrap_or(0);
                let least = least.max(self.settled[key as usize]);
                let has = store.contents.data.get(&key).map_or(0, |(number, _)| *number);
                if has < least || (has > 0 && of_key.binary_search(&has).is_err()) {
                    let place = format!("seed {}, step {}, store {index}", self.seed, self.step);
                    panic!("{place} has {has} of key {key}, of {of_key:?} up to {applied}");
                }
            }
        }
    }
}

fn run(seed: u64) -> LogCounts {
    let mut draws = SplitMix64::new(seed);
    let options = options(&mut draws);
    let log = Log::new(options, 1, Instant::from_millis(1_000), SeededState::new(seed));
    let stores = (0..options.duplicates).map(|_| Store::new()).collect();
    let mut world = World {
        seed,
        step: 0,
        draws,
        log,
        stores,
        entries: Default::default(),
        last: 0,
        acknowledged: 0,
        abandoned: BTreeSet::new(),
        settled: Default::default(),
    };
    for step in 0..STEPS {
        world.step = step;
        let now = world.now();
        if step < FAULTY {
            world.fail();
        }
        if step < FAULTY + 300 && once_in(&mut world.draws, 3) {
            let (key, is_put) = (below(&mut world.draws, KEYS), !once_in(&mut world.draws, 5));
            let bytes = 1 + below(&mut world.draws, 40);
            if let Ok(number) = world.log.append(now, key, is_put, bytes) {
                assert_eq!(number, world.last + 1);
                world.last = number;
                world.entries[key as usize].push(number);
            }
        }
        if world.log.next_timeout().is_some_and(|due| due <= now) {
            world.log.handle_timeout(now);
            assert!(world.log.next_timeout().is_none_or(|due| due > now), "seed {seed}: due again at once");
        }
        for index in 0..world.stores.len() {
            world.carry_out();
            world.begin_task(index);
            world.serve(index);
            world.copy(index);
        }
        world.carry_out();
        world.check();
    }
    let all: Vec<_> = world.log.standing().collect();
    assert!(all.iter().all(|one| *one == (DuplicateState::Current, 0)), "seed {seed}: {all:?}");
    assert!(world.acknowledged > 0, "seed {seed}");
    for pair in world.stores.windows(2) {
        assert!(pair[0].contents.data == pair[1].contents.data, "seed {seed}: duplicates differ");
    }
    world.log.counts()
}

fn seeds() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "the number of seeds may be given")]
    let given = std::env::var("SEEDS");
    given.map_or(400, |seeds| seeds.parse().expect("SEEDS is a number"))
}

#[test]
fn duplicates_that_are_read_have_all_entries_in_order_whatever_fails() {
    let counts: Vec<_> = (0..seeds()).map(run).collect();
    let total = |count: fn(&LogCounts) -> u64| counts.iter().map(count).sum::<u64>();
    assert!(total(|one| one.refused) > 0 && total(|one| one.differs) > 0 && total(|one| one.repaired) > 0);
}
