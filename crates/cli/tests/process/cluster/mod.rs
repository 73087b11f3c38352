//! Three nodes in front of one store, while the bus between them is stopped, killed and cut.

mod namespace;
mod world;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::TIMEOUT;
use world::{NODES, Node, World};

const STALE: Duration = Duration::from_secs(2);
const KEYS: usize = 300;
/// The time during which the bus fails, and the least number of reads and writes meanwhile.
const TIME: Duration = Duration::from_secs(120);
const READS: u64 = 100_000;
const WRITES: u64 = 10_000;
/// Readers of each node. A writer of each node writes keys of its own.
const READERS: usize = 3;
/// Pauses between two reads, and two writes, of a client, so that others can use the processor.
const READ_PAUSE: Duration = Duration::from_millis(9);
const WRITE_PAUSE: Duration = Duration::from_millis(30);

/// A client of a node, by Redis's protocol.
struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), line: String::new() }
    }

    fn ask(&mut self, command: &str) -> &str {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.read_line()
    }

    fn read_line(&mut self) -> &str {
        self.line.clear();
        self.stream.read_line(&mut self.line).unwrap();
        self.line.trim_end()
    }

    /// Returns the number that a key has; 0 if it has none.
    fn get(&mut self, key: usize) -> u64 {
        match self.ask(&format!("GET k:{key}")) {
            "$-1" => 0,
            length if length.starts_with('$') => self.read_line().parse().unwrap(),
            other => panic!("k:{key}: {other}"),
        }
    }

    /// Writes a number to a key; returns false if this was not acknowledged.
    fn set(&mut self, key: usize, number: u64) -> bool {
        self.ask(&format!("SET k:{key} {number}")) == "+OK"
    }
}

/// Acknowledged writes of each key, with their times. The numbers of a key rise.
struct Journal(Vec<Mutex<Vec<(Instant, u64)>>>);

impl Journal {
    fn note(&self, key: usize, number: u64) {
        self.0[key].lock().unwrap().push((Instant::now(), number));
    }

    /// Returns the least number that a read of a key may return which begins now.
    fn least(&self, key: usize, now: Instant) -> u64 {
        let writes = self.0[key].lock().unwrap();
        let due = writes.iter().rev().find(|(at, _)| *at + STALE <= now);
        due.map_or(0, |&(_, number)| number)
    }

    fn last(&self, key: usize) -> u64 {
        self.0[key].lock().unwrap().last().map_or(0, |&(_, number)| number)
    }
}

/// State that the clients share.
struct Shared {
    journal: Journal,
    reads: AtomicU64,
    writes: AtomicU64,
    refused: AtomicU64,
    writes_ended: AtomicBool,
    reads_ended: AtomicBool,
}

/// Reads keys of one node in a changing order.
fn read(address: &str, seed: usize, shared: &Shared) {
    let mut client = Client::connect(address);
    let mut key = seed;
    while !shared.reads_ended.load(Relaxed) {
        // Steps of a number without a common factor reach all keys.
        key = (key + 77 + seed * 2 % 3) % KEYS;
        let begin = Instant::now();
        let least = shared.journal.least(key, begin);
        let found = client.get(key);
        assert!(found >= least, "k:{key} is {found} at {address}, {least} was acknowledged 2 s before");
        shared.reads.fetch_add(1, Relaxed);
        thread::park_timeout(READ_PAUSE);
    }
}

/// Writes every third key through one node.
fn write(address: &str, first: usize, shared: &Shared) {
    let mut client = Client::connect(address);
    let mut number = 0;
    while !shared.writes_ended.load(Relaxed) {
        for key in (first..KEYS).step_by(NODES.len()) {
            number += 1;
            if client.set(key, number) {
                shared.journal.note(key, number);
                shared.writes.fetch_add(1, Relaxed);
            } else {
                shared.refused.fetch_add(1, Relaxed);
            }
            thread::park_timeout(WRITE_PAUSE);
            if shared.writes_ended.load(Relaxed) {
                break;
            }
        }
    }
}

/// Starts the clients of a node on its machine.
fn start_clients(node: &Node, number: usize, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let (address, shared) = (node.redis.clone(), Arc::clone(shared));
    node.run(move || {
        let clone = || (address.clone(), Arc::clone(&shared));
        let reader = |index| {
            let (address, shared) = clone();
            thread::spawn(move || read(&address, number * READERS + index, &shared))
        };
        let (address, shared) = clone();
        let writer = thread::spawn(move || write(&address, number, &shared));
        (0..READERS).map(reader).chain([writer]).collect()
    })
}

/// Waits for a time in which the clients work.
fn work_for(time: Duration) {
    thread::park_timeout(time);
}

/// Has the bus fail in one way after the other, each for some seconds with some seconds between.
fn break_bus(world: &mut World, shared: &Shared) {
    let start = Instant::now();
    let (fails, works) = (Duration::from_secs(6), Duration::from_secs(4));
    while start.elapsed() < TIME || shared.reads.load(Relaxed) < READS || shared.writes.load(Relaxed) < WRITES
    {
        world.stop_bus();
        work_for(fails);
        world.continue_bus();
        work_for(works);
        world.kill_bus();
        work_for(fails);
        world.restart_bus();
        work_for(works);
        for machine in ["bus", "b"] {
            world.cut(machine);
            work_for(fails);
            world.mend(machine);
            work_for(works);
        }
    }
}

fn admin(node: &Node, path: &str) -> String {
    let (address, path) = (node.admin.clone(), path.to_owned());
    node.run(move || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

/// Look-ups of all nodes that the cache answered, and all.
fn lookups(world: &World) -> (f64, f64) {
    let value = |text: &str, name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.split(' ').nth(1)?.parse().ok());
        line.unwrap_or_else(|| panic!("no {name}"))
    };
    world.nodes.iter().map(|node| admin(node, "/metrics")).fold((0.0, 0.0), |(hits, all), text| {
        let found = value(&text, "sherwood_partition_hits_total{");
        (hits + found, all + found + value(&text, "sherwood_partition_misses_total{"))
    })
}

/// Returns the part of look-ups in half a second that the cache answered.
fn hit_ratio(world: &World) -> f64 {
    let (hits, all) = lookups(world);
    work_for(Duration::from_millis(500));
    let (more_hits, more) = lookups(world);
    assert!(more > all, "the clients read");
    (more_hits - hits) / (more - all)
}

/// Waits until nearly all look-ups are hits; returns how long that takes.
fn until_hits(world: &World, ratio: f64) -> Duration {
    let start = Instant::now();
    while hit_ratio(world) < ratio {
        assert!(start.elapsed() < TIMEOUT, "the hit ratio does not return");
    }
    start.elapsed()
}

#[test]
fn no_node_answers_with_old_values_while_the_bus_fails_and_hits_return_afterwards() {
    let mut world = World::start("timeout = \"1s\"\nshared = { stale = \"2s\" }");
    let journal = Journal((0..KEYS).map(|_| Mutex::default()).collect());
    let shared = Arc::new(Shared {
        journal,
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        writes_ended: AtomicBool::new(false),
        reads_ended: AtomicBool::new(false),
    });
    let clients: Vec<_> = world
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(number, node)| start_clients(node, number, &shared))
        .collect();
    break_bus(&mut world, &shared);
    shared.writes_ended.store(true, Relaxed);

    until_hits(&world, 0.99);
    world.cut("bus");
    work_for(Duration::from_secs(10));
    assert!(hit_ratio(&world) < 0.9, "values are not trusted without the bus");
    world.mend("bus");
    let returned = until_hits(&world, 0.95);
    println!("hits returned {returned:?} after the cut");

    shared.reads_ended.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let counts = [&shared.reads, &shared.writes, &shared.refused].map(|count| count.load(Relaxed));
    println!("{counts:?} reads, writes, and writes that were refused");
    for node in &world.nodes {
        let (address, shared) = (node.redis.clone(), Arc::clone(&shared));
        node.run(move || {
            let mut client = Client::connect(&address);
            (0..KEYS).for_each(|key| assert_eq!(client.get(key), shared.journal.last(key), "k:{key}"));
        });
    }
}
