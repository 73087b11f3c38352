//! The simulated world around one listener: its clients, its backends, and their time.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_cache::{Cache, Options as CacheOptions, Partition};
use sherwood_dispatch::Charged;
use sherwood_listener::{
    Backends, Clock, ConnectionLimit, Event, InMemoryClient, ListenerOptions, ManualClock, Passwords,
    Routing, Service, SingleThread, Target, UserRoutes,
};
use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

use crate::Seen;
use crate::backends::{self, PendingFetch, START, SimulatedBackends};
use crate::batches::CountedRequests;
use crate::client::{Client, Fate};
use crate::draw::Draw;
use crate::network::{Link, SimulatedSignal, SimulatedSockets};
use crate::rates::SimulatedRates;
use crate::script::{NAME, Options, PASSWORD, Protocol, Script, client_of};

/// Simulated time within which every client has been served or cut off.
const ALL_DONE: Duration = Duration::from_secs(300);
/// Simulated time within which the listener has noticed that the last client has gone.
const AT_REST: Duration = Duration::from_secs(60);
/// Simulated time for which a client that sends or reads nothing stays connected.
const STAYS: Duration = Duration::from_secs(60);
/// Most bytes that the buffers of a thread without connections hold: its read buffer, and the
/// memory of the largest answers.
const THREAD_BYTES_MAX: u64 = 256 * 1024;

/// A scheduled event of the simulation, by the number of the client or connection.
enum Act {
    Connect(usize),
    Write(usize),
    Read(usize),
    Reset(usize),
    Leave(usize),
    Answer(PendingFetch),
    Stop,
}

/// Everything in the simulation but the listener.
pub(crate) struct World {
    pub(crate) draw: Draw,
    pub(crate) links: Vec<Link>,
    /// Connections that are not accepted yet.
    pub(crate) backlog: VecDeque<usize>,
    /// True if there is a connection in `backlog` that was not reported to the listener.
    pub(crate) incoming: bool,
    pub(crate) signal: Arc<SimulatedSignal>,
    /// True if the listener serves several connections in one call.
    pub(crate) rounds: bool,
    now: Instant,
    clock: Arc<ManualClock>,
    acts: BTreeMap<(Instant, u64), Act>,
    acts_begun: u64,
    clients: Vec<Client>,
    backends: Arc<SimulatedBackends>,
    buffers: Arc<AtomicU64>,
    /// The error for connections over the limit; none if the clients cannot reach the limit.
    too_many: Option<&'static [u8]>,
    stop: Arc<dyn Fn()>,
    stopping: bool,
    /// True if the listener stops before its clients are done.
    ends_early: bool,
    seen: Seen,
    told: bool,
}

/// Runs the simulation of one seed from its beginning to its end.
pub(crate) fn live(seed: u64, told: bool) -> Seen {
    let mut draw = Draw::new(seed);
    let protocol = draw.one_of(&[
        Protocol::Memcached,
        Protocol::Memcached,
        Protocol::MemcachedBinary,
        Protocol::Redis,
        Protocol::Redis,
    ]);
    let item_size_max = draw.one_of(&[500, 500, 500, 500, 500, 20_000, 20_000, 150_000]);
    let options = Options { protocol, passwords: draw.chance(20), value_bytes_max: item_size_max };
    let read_through = draw.chance(50);
    let write_through = read_through && draw.chance(40);
    let has_rates = draw.chance(30);
    let clients = draw.up_to(10);
    let connections_max = if draw.chance(15) { draw.up_to(clients) } else { clients };
    let clock = Arc::new(ManualClock::new(START, Duration::from_secs(1_000_000_000)));
    let listener_options = ListenerOptions {
        threads: 1,
        item_size_max: item_size_max as u32,
        output_bytes_max: draw.one_of(&[60, 500, 4096, 65_536]),
        idle_timeout: draw.one_of(&[None, Some(Duration::from_secs(5))]),
        write_timeout: Duration::from_secs(1),
        login_timeout: Duration::from_secs(10),
        drain_timeout: Duration::from_secs(3),
        ..ListenerOptions::default()
    };
    let buffers = Arc::new(AtomicU64::new(0));
    let service = |cache: Arc<Cache>, backends: &Arc<SimulatedBackends>| Service {
        cache,
        routing: Routing::single(Target {
            partition: PartitionId(0),
            tenant: TenantId(0),
            read_through,
            write_through,
            shared: false,
        }),
        backends: Some(Arc::clone(backends) as Arc<dyn Backends>),
        connection_limit: Arc::new(ConnectionLimit::new(connections_max)),
        buffers: Arc::clone(&buffers) as _,
        background: None,
        passwords: options.passwords.then(|| Arc::new(OnePassword) as Arc<dyn Passwords>),
        users: UserRoutes::default(),
        network: None,
        standings: None,
        times: Arc::default(),
        batches: None,
        hot_keys: None,
    };
    let cache = cache();
    let backends = backends::late(Arc::clone(&cache));
    let (signal, waits) = (SimulatedSignal::new(), Arc::clone(&clock) as Arc<dyn Clock>);
    let mut world = World {
        links: Vec::new(),
        backlog: VecDeque::new(),
        incoming: false,
        signal: Arc::clone(&signal),
        rounds: draw.chance(60),
        now: START,
        acts: BTreeMap::new(),
        acts_begun: 0,
        clients: Vec::new(),
        backends: Arc::clone(&backends),
        buffers: Arc::clone(&buffers),
        too_many: (connections_max < clients).then_some(match protocol {
            Protocol::Memcached | Protocol::MemcachedBinary => b"ERROR Too many open connections\r\n",
            Protocol::Redis => b"-ERR max number of clients reached\r\n",
        }),
        stop: Arc::new(|| {}),
        stopping: false,
        ends_early: draw.chance(20),
        seen: Seen::new(),
        told,
        clock,
        draw,
    };
    world.note(if read_through { "world: read-through" } else { "world: look-aside" }, 0);
    let speaks = match protocol {
        Protocol::Memcached => "world: memcached",
        Protocol::MemcachedBinary => "world: memcached binary",
        Protocol::Redis => "world: redis",
    };
    world.note(speaks, 0);
    for (what, is_so) in [
        ("world: passwords", options.passwords),
        ("world: write-through", write_through),
        ("world: rates", has_rates),
    ] {
        if is_so {
            world.note(what, 0);
        }
    }
    let alone = self::cache();
    for number in 0..clients {
        let service = service(Arc::clone(&alone), &backends::prompt(Arc::clone(&alone)));
        let clock = Arc::clone(&waits);
        let mut reference = match protocol {
            Protocol::Memcached | Protocol::MemcachedBinary => {
                InMemoryClient::memcached(listener_options.clone(), service, clock)
            }
            Protocol::Redis => InMemoryClient::redis(listener_options.clone(), service, clock, seed),
        };
        let script = Script::draw(&mut world.draw, options, number, &mut reference, waits.moment());
        world.add_client(script);
    }
    if world.ends_early {
        let after = world.draw.below(20_000) as u64;
        world.plan(Duration::from_micros(after), Act::Stop);
    }
    let world = Rc::new(RefCell::new(world));
    let network = has_rates.then(|| Arc::new(SimulatedRates::new(seed)) as Arc<dyn Charged>);
    let (requests, counting) = CountedRequests::counting(&world.borrow().clock);
    let service = Service { network, batches: Some(counting.clone()), ..service(cache, &backends) };
    let sockets = SimulatedSockets(Rc::clone(&world));
    let listener = match protocol {
        Protocol::Memcached | Protocol::MemcachedBinary => {
            SingleThread::memcached(listener_options, service, waits, sockets, signal)
        }
        Protocol::Redis => SingleThread::redis(listener_options, service, waits, seed, sockets, signal),
    };
    world.borrow_mut().stop = listener.stop();
    listener.run().expect("simulated sockets can be waited for");
    let mut world = world.borrow_mut();
    world.read_the_rest();
    requests.check(&counting, read_through, &mut world.seen);
    std::mem::take(&mut world.seen)
}

fn cache() -> Arc<Cache> {
    let partition = Partition::new(TenantId(0), BackendId(0), 32 << 20);
    Arc::new(Cache::new(CacheOptions::default(), &[partition], SeededState::new(1)).expect("valid options"))
}

struct OnePassword;

impl Passwords for OnePassword {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        ((user, password) == (NAME.as_bytes(), PASSWORD.as_bytes())).then_some(TenantId(0))
    }
}

impl World {
    fn add_client(&mut self, script: Script) {
        let number = self.clients.len();
        self.links.push(Link {
            inbound_max: self.draw.one_of(&[100, 5_000, 100_000]),
            outbound_max: self.draw.one_of(&[100, 3_000, 200_000]),
            ..Link::default()
        });
        self.clients.push(Client::draw(&mut self.draw, script, number));
        let after = self.draw.below(10_000) as u64;
        self.plan(Duration::from_micros(after), Act::Connect(number));
    }

    /// Counts an event, and prints it if the seed is replayed.
    pub(crate) fn note(&mut self, what: &'static str, link: usize) {
        *self.seen.entry(what).or_default() += 1;
        if self.told {
            println!("{:>12} ns, connection {link}: {what}", self.now.since(START).as_nanos());
        }
    }

    fn plan(&mut self, after: Duration, act: Act) {
        self.acts_begun += 1;
        self.acts.insert((self.now + after, self.acts_begun), act);
    }

    /// Lets simulated time pass until there are events for the listener or `timeout` is over.
    pub(crate) fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) {
        let end = timeout.map(|timeout| self.now + timeout);
        // The thread's work took some time.
        let took = Duration::from_nanos(self.draw.below(20_000) as u64);
        self.pass_to(self.now + took);
        loop {
            self.report(events);
            if !events.is_empty() || end.is_some_and(|end| end <= self.now) {
                return;
            }
            let next = self.acts.first_key_value().map(|(&(at, _), _)| at);
            let until = match (next, end) {
                (Some(next), Some(end)) => next.min(end),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => panic!("the listener waits for ever: {}", self.describe()),
            };
            self.pass_to(until);
        }
    }

    /// Carries out all scheduled events that are due by `until`.
    fn pass_to(&mut self, until: Instant) {
        self.plan_answers();
        while let Some(first) = self.acts.first_entry().filter(|first| first.key().0 <= until) {
            let ((at, _), act) = first.remove_entry();
            self.now = self.now.max(at);
            self.act(act);
            self.plan_answers();
        }
        self.now = self.now.max(until);
        self.clock.set(self.now);
        let late = self.now.since(START) > ALL_DONE && !self.stopping;
        assert!(!late, "clients are not served: {}", self.describe());
    }

    /// Sometimes carries out the next scheduled event during a call of the listener.
    pub(crate) fn meanwhile(&mut self) {
        let soon = self.now + Duration::from_micros(50);
        if self.draw.chance(12)
            && let Some(first) = self.acts.first_entry().filter(|first| first.key().0 <= soon)
        {
            let act = first.remove();
            self.act(act);
        }
    }

    fn plan_answers(&mut self) {
        for fetch in self.backends.take_pending() {
            let micros = match self.draw.below(10) {
                0 => self.draw.below(3_000_000),
                1..=3 => 0,
                _ => self.draw.below(2_000),
            };
            self.plan(Duration::from_micros(micros as u64), Act::Answer(fetch));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Connect(number) => {
                if self.stopping {
                    self.finish(number);
                    return;
                }
                self.backlog.push_back(self.clients[number].link);
                self.incoming = true;
                self.plan_write(number);
            }
            Act::Write(number) => self.write(number),
            Act::Read(number) => self.read(number),
            Act::Reset(number) => {
                if !self.clients[number].done {
                    self.note("client: reset", number);
                    let lose_inbound = self.draw.chance(50);
                    self.links[number].break_off(lose_inbound);
                    self.finish(number);
                }
            }
            Act::Leave(number) => {
                if !self.clients[number].done {
                    self.close(number);
                }
            }
            Act::Answer(fetch) => {
                let left = fetch.keys.first().and_then(|key| client_of(key));
                let left = left.is_some_and(|number| self.clients[number].done);
                self.note(
                    match (left, fetch.is_write()) {
                        (true, _) => "answer after its client left",
                        (false, false) => "answer late",
                        (false, true) => "answer to a write late",
                    },
                    0,
                );
                let backends = Arc::clone(&self.backends);
                backends.answer(fetch, self.now);
            }
            Act::Stop => {
                if !self.ends_early {
                    self.assert_at_rest();
                } else if self.clients.iter().any(|client| !client.done) {
                    self.note("listener: ended amid work", 0);
                }
                self.stopping = true;
                let stop = Arc::clone(&self.stop);
                stop();
            }
        }
    }

    fn plan_write(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if !std::mem::replace(&mut client.writes_scheduled, true) {
            let delay = client.delay(&mut self.draw);
            self.plan(delay, Act::Write(number));
        }
    }

    /// Lets the client of a connection send more, because there is room or an answer has arrived.
    pub(crate) fn wake_writer(&mut self, link: usize) {
        if !self.clients[link].done && !self.clients[link].has_sent_all() {
            self.plan_write(link);
        }
    }

    /// Lets the client of a connection read.
    pub(crate) fn wake_reader(&mut self, link: usize) {
        let client = &mut self.clients[link];
        let due = !client.done && (client.reads() || self.links[link].closed);
        if due && !std::mem::replace(&mut client.reads_scheduled, true) {
            let delay = client.delay(&mut self.draw);
            self.plan(delay, Act::Read(link));
        }
    }

    fn write(&mut self, number: usize) {
        let (client, link) = (&mut self.clients[number], &mut self.links[number]);
        client.writes_scheduled = false;
        if client.done || link.closed || link.broken.is_some() {
            return;
        }
        let room = link.inbound_max.saturating_sub(link.inbound.len());
        let bytes = client.next_bytes(&mut self.draw, room);
        if !bytes.is_empty() {
            link.inbound.extend(&bytes);
            link.changed = true;
        }
        if !client.has_sent_all() {
            // If not, it continues when there is room or an answer arrives.
            if !bytes.is_empty() {
                self.plan_write(number);
            }
            return;
        }
        match client.fate {
            Fate::Leaves => self.leave_if_answered(number),
            Fate::HalfCloses => {
                (link.inbound_end, link.changed) = (true, true);
                self.note("client: half-closed", number);
            }
            Fate::Closes(_) => self.close(number),
            Fate::Resets(_) => {
                let micros = self.draw.below(200) as u64;
                self.plan(Duration::from_micros(micros), Act::Reset(number));
            }
            Fate::NeverReads => {
                self.note("client: never read", number);
                self.plan(STAYS, Act::Leave(number));
            }
            Fate::IsSilent(_) => {
                self.note("client: silent", number);
                self.plan(STAYS, Act::Leave(number));
            }
        }
    }

    fn leave_if_answered(&mut self, number: usize) {
        let client = &self.clients[number];
        // If the listener is to close the connection, the client waits for that.
        let leaves = client.fate == Fate::Leaves && client.has_sent_all() && client.is_answered();
        if leaves && !client.script.closes && !client.done {
            self.note("client: all answers received", number);
            self.close(number);
        }
    }

    fn read(&mut self, number: usize) {
        let (client, link) = (&mut self.clients[number], &mut self.links[number]);
        client.reads_scheduled = false;
        if client.done {
            return;
        }
        let bytes = client.read_size(&mut self.draw).min(link.outbound.len());
        let read: Vec<u8> = link.outbound.drain(..bytes).collect();
        client.take(&read, self.too_many);
        if link.full && link.outbound.len() <= link.outbound_max * 2 / 3 {
            (link.full, link.changed) = (false, true);
        }
        if !link.outbound.is_empty() {
            self.wake_reader(number);
        } else if link.outbound_end {
            self.end_of_answers(number);
            return;
        }
        self.wake_writer(number);
        self.leave_if_answered(number);
    }

    /// Handles the end of a client's input: the listener has closed, or will send nothing more.
    fn end_of_answers(&mut self, number: usize) {
        let client = &self.clients[number];
        let link = &self.links[number];
        let broken = link.broken.is_some();
        let script_closes = client.script.closes;
        let turned_away = self.too_many.is_some_and(|too_many| too_many.starts_with(&client.received));
        let reads_on = matches!(client.fate, Fate::Leaves | Fate::HalfCloses);
        if client.turned_away {
            self.note("client: turned away", number);
        } else if client.is_answered() && client.has_sent_all() {
            self.note("client: all answers received", number);
        } else if !script_closes && (!broken || link.cut_off) && !turned_away && !self.stopping {
            assert!(!reads_on, "client {number} did not get all answers: {}", self.describe());
            self.note("client: closed by timeout", number);
        } else if reads_on && !broken && !turned_away && !self.stopping {
            assert!(self.clients[number].is_answered(), "answers are missing: {}", self.describe());
        }
        self.close(number);
    }

    /// Closes the client's side of its connection. If there are answers that the client has not
    /// read, the connection is reset.
    fn close(&mut self, number: usize) {
        let link = &mut self.links[number];
        if link.outbound.is_empty() {
            (link.inbound_end, link.client_gone, link.changed) = (true, true, true);
        } else {
            let lose_inbound = self.draw.chance(50);
            link.break_off(lose_inbound);
        }
        self.note("client: closed", number);
        self.finish(number);
    }

    fn finish(&mut self, number: usize) {
        self.clients[number].done = true;
        if self.clients.iter().all(|client| client.done) && !self.ends_early {
            self.plan(AT_REST, Act::Stop);
        }
    }

    fn assert_at_rest(&self) {
        let open: Vec<_> = (0..self.links.len()).filter(|&number| !self.links[number].closed).collect();
        assert!(open.is_empty(), "connections {open:?} of clients that left are open");
        let bytes = self.buffers.load(Relaxed);
        assert!(bytes <= THREAD_BYTES_MAX, "{bytes} bytes are held for no client");
    }

    /// Lets every client read the bytes that were sent before the listener ended.
    fn read_the_rest(&mut self) {
        for (client, link) in self.clients.iter_mut().zip(&mut self.links) {
            if !client.done {
                let rest: Vec<u8> = link.outbound.drain(..).collect();
                client.take(&rest, self.too_many);
            }
        }
    }

    fn describe(&self) -> String {
        let client = |client: &Client| {
            format!(
                "{:?}: sent {} of {} bytes, received {} of {}",
                client.fate,
                client.sent,
                client.script.bytes.len(),
                client.matched,
                client.script.expected.len()
            )
        };
        let waiting: Vec<_> = self.clients.iter().filter(|client| !client.done).map(client).collect();
        waiting.join("; ")
    }
}
