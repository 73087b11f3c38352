//! Transactions of several threads on one cache: nothing comes between the commands of one.
//!
//! Each thread increments two counters in a transaction and reads them. A read that does not return
//! the thread's own sum shows that another command came between. The same commands sent without
//! `MULTI` show that the check finds it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::*;
use crate::memcached::Memcached;
use crate::protocols::Protocol;

const COUNTERS: u64 = 4;
const THREADS: u64 = 4;
const PARTITIONS: u16 = 3;

/// Counters of several partitions and shards, and what the threads have found.
struct Counters {
    listener: Listener,
    /// The sum of all increments that were acknowledged.
    added: AtomicU64,
    /// Transactions between whose commands another one came.
    mixed: AtomicU64,
    found: AtomicBool,
}

impl Counters {
    fn new() -> Self {
        let route = |partition: u16| (format!("{partition}/"), target(partition, false));
        let routing = Routing::by_prefix(TenantId(0), (0..PARTITIONS).map(route)).unwrap();
        let listener = Listener::new(cache(PARTITIONS), routing, None);
        Self { listener, added: AtomicU64::new(0), mixed: AtomicU64::new(0), found: AtomicBool::new(false) }
    }

    fn name(number: u64) -> String {
        format!("{}/n{number}", number % u64::from(PARTITIONS))
    }

    /// Sends the commands one after the other and returns the numbers of the last answers.
    fn numbers(&self, client: &mut InMemoryClient, commands: &[String]) -> Vec<u64> {
        let mut answers = Vec::new();
        for command in commands {
            answers.extend(self.listener.ask(client, command).split(' ').map(str::to_owned));
            std::thread::yield_now();
        }
        let is_number = |word: &String| !word.starts_with(['$', '*']);
        answers
            .iter()
            .filter(|word| is_number(word))
            .filter_map(|word| word.trim_start_matches(':').parse().ok())
            .collect()
    }

    /// Increments two counters and reads both, in a transaction or without.
    fn transfer(&self, client: &mut InMemoryClient, draws: &mut sherwood_model::SplitMix64, in_multi: bool) {
        let (first, by) = (draws.next_u64() % COUNTERS, 1 + draws.next_u64() % 9);
        let second = (first + 1 + draws.next_u64() % (COUNTERS - 1)) % COUNTERS;
        let (first, second) = (Self::name(first), Self::name(second));
        let mut commands = vec![
            format!("INCRBY {first} {by}"),
            format!("INCRBY {second} {by}"),
            format!("MGET {second} {first}"),
        ];
        if in_multi {
            commands.insert(0, "MULTI".to_owned());
            commands.push("EXEC".to_owned());
        }
        let numbers = self.numbers(client, &commands);
        let &[one, two, read_two, read_one] = &numbers[..] else { panic!("{numbers:?}") };
        self.added.fetch_add(2 * by, Relaxed);
        if (one, two) != (read_one, read_two) {
            self.mixed.fetch_add(1, Relaxed);
            self.found.store(true, Relaxed);
        }
    }

    /// Increments a counter if it has not changed since it was read; retries until it has not.
    fn swap(&self, client: &mut InMemoryClient, draws: &mut sherwood_model::SplitMix64) {
        let name = Self::name(draws.next_u64() % COUNTERS);
        loop {
            self.listener.ask(client, &format!("WATCH {name}"));
            let read = self.numbers(client, &[format!("GET {name}")]);
            let next = read.first().copied().unwrap_or(0) + 1;
            for command in ["MULTI".to_owned(), format!("SET {name} {next}")] {
                self.listener.ask(client, &command);
            }
            match &*self.listener.ask(client, "EXEC") {
                "*1 +OK" => break,
                answer => assert_eq!(answer, "*-1"),
            }
        }
        self.added.fetch_add(1, Relaxed);
    }

    fn sum(&self) -> u64 {
        let client = &mut self.listener.client();
        let names: Vec<String> = (0..COUNTERS).map(Self::name).collect();
        self.numbers(client, &[format!("MGET {}", names.join(" "))]).iter().sum()
    }

    /// Increments single counters by a memcached client until `done`.
    fn increment_by_memcached(&self, done: &AtomicBool) {
        let bytes_max = Protocol::Memcached.connection_bytes_max(&self.listener.shared.options);
        let mut client = InMemoryClient::open(&Memcached, Arc::clone(&self.listener.shared), bytes_max);
        let mut number = 0;
        while !done.load(Relaxed) {
            number += 1;
            let command = format!("incr {} 1\r\n", Self::name(number % COUNTERS));
            let answer = self.listener.send(&mut client, command.as_bytes());
            self.added.fetch_add(u64::from(answer != b"NOT_FOUND\r\n"), Relaxed);
            std::thread::yield_now();
        }
    }

    /// Runs `work` in several threads at once, while a memcached client changes the counters too.
    fn run(&self, work: impl Fn(&mut InMemoryClient, &mut sherwood_model::SplitMix64) + Sync) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let work = &work;
                    scope.spawn(move || {
                        work(&mut self.listener.client(), &mut sherwood_model::SplitMix64::new(thread));
                    })
                })
                .collect();
            scope.spawn(|| self.increment_by_memcached(&done));
            let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            done.store(true, Relaxed);
            results.into_iter().for_each(|result| result.expect("no worker panics"));
        });
    }
}

#[test]
fn no_command_comes_between_those_of_a_transaction() {
    let counters = Counters::new();
    counters.run(|client, draws| {
        for _ in 0..500 {
            counters.transfer(client, draws, true);
            counters.swap(client, draws);
        }
    });
    assert_eq!(counters.mixed.load(Relaxed), 0);
    assert_eq!(counters.sum(), counters.added.load(Relaxed));
}

#[test]
fn commands_without_multi_are_found_mixed_with_others() {
    let counters = Counters::new();
    counters.run(|client, draws| {
        while !counters.found.load(Relaxed) {
            counters.transfer(client, draws, false);
        }
    });
    assert!(counters.mixed.load(Relaxed) > 0);
    assert_eq!(counters.sum(), counters.added.load(Relaxed), "each command alone is atomic");
}
