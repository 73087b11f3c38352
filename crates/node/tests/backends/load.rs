//! Readers and writers, and their results.

use std::array;
use std::net::SocketAddr;
use std::ops::Sub;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_model::SplitMix64;

use crate::client::Client;
use crate::fleet::{BACKENDS, KEEPS, NAMES};
use crate::ledger::{Due, Ledger};

pub(crate) const READERS: usize = 2;
/// Number of writers. Each writes one key of each group.
pub(crate) const WRITERS: usize = 2;
/// Groups of keys. Each phase has its own group, which gets every other operation, so that its keys
/// are often written, fetched and invalidated at the same time. The group changes with the phase,
/// because a key whose write had an unknown outcome is not cached for as long as a call may take.
const GROUPS: usize = 12;
/// Keys of each backend.
pub(crate) const KEYS: usize = GROUPS * WRITERS;
/// Keys of each backend in one request.
const KEYS_READ: usize = 2;
/// Upper bound of requests and writes in a phase, many times as many as a phase needs.
const ROUNDS_OF_A_PHASE: u64 = 4_000;
/// Longest wait for the end of a phase; reached only when a test fails.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Results of one backend's queries and writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    /// Values fetched from the server.
    pub(crate) misses: u64,
    pub(crate) failures: u64,
    pub(crate) writes: u64,
    pub(crate) failed_writes: u64,
}

pub(crate) type Tally = [Counts; BACKENDS];

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            failures: self.failures - before.failures,
            writes: self.writes - before.writes,
            failed_writes: self.failed_writes - before.failed_writes,
        }
    }
}

/// State shared by the readers, the writers and the test.
pub(crate) struct Load {
    node: SocketAddr,
    pub(crate) ledger: Ledger,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tally: Tally,
    phase: usize,
    /// Requests and writes left in the current phase.
    rounds: u64,
    ended: bool,
    /// Message of the first failed check.
    wrong: Option<String>,
}

impl Load {
    /// Creates a load that is idle until the first phase.
    pub(crate) fn new(node: SocketAddr) -> Self {
        let ledger = Ledger::new(&KEEPS, KEYS);
        Self { node, ledger, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Writes every key for the first time.
    pub(crate) fn prepare(&self) {
        let mut client = Client::connect(self.node);
        for backend in 0..BACKENDS {
            for key in 0..KEYS {
                self.write(&mut client, backend, key, false);
            }
        }
        let wrong = self.state().wrong.clone();
        assert_eq!(wrong, None);
    }

    /// Sends requests until the load has ended or a check has failed.
    pub(crate) fn reader(&self, number: usize) {
        let (mut client, mut random) =
            (Client::connect(self.node), SplitMix64::new((WRITERS + number) as u64));
        while let Some(phase) = self.next_round() {
            let mut key = || group(&mut random, phase) * WRITERS + draw(&mut random, WRITERS);
            let keys: [[usize; KEYS_READ]; BACKENDS] = array::from_fn(|_| array::from_fn(|_| key()));
            // Without invalidations everything would be cached soon, and few keys would be fetched.
            let backend = draw(&mut random, BACKENDS);
            client.invalidate(NAMES[backend], &keys[backend].map(name));
            self.read(&mut client, &keys);
        }
    }

    /// Writes its keys until the load has ended or a check has failed.
    pub(crate) fn writer(&self, number: usize) {
        let (mut client, mut random) = (Client::connect(self.node), SplitMix64::new(number as u64));
        while let Some(phase) = self.next_round() {
            let key = group(&mut random, phase) * WRITERS + number;
            let (backend, removes) = (draw(&mut random, BACKENDS), draw(&mut random, 3) == 0);
            self.write(&mut client, backend, key, removes);
        }
    }

    /// Sends one request to all backends.
    fn read(&self, client: &mut Client, keys: &[[usize; KEYS_READ]; BACKENDS]) {
        let asked = || {
            keys.iter().enumerate().flat_map(|(backend, keys)| keys.iter().map(move |&key| (backend, key)))
        };
        let due: Vec<Due> = asked().map(|(backend, key)| self.ledger.due(backend, key)).collect();
        let queries = keys
            .iter()
            .zip(NAMES)
            .map(|(keys, backend)| (backend, keys.iter().map(|&key| name(key)).collect()));
        let results = client.read(queries);
        let mut came = Tally::default();
        for (((backend, key), due), result) in asked().zip(due).zip(results) {
            let counts = &mut came[backend];
            let status = result["status"].as_str().unwrap_or_default();
            let verdict = match status {
                "hit" | "miss" => {
                    *if status == "hit" { &mut counts.hits } else { &mut counts.misses } += 1;
                    let value = result["value"].as_str().unwrap_or_default();
                    number(backend, key, value)
                        .and_then(|number| self.ledger.judge(backend, key, due, Some(number)))
                }
                "not_found" => self.ledger.judge(backend, key, due, None),
                "error" | "rejected" => {
                    counts.failures += 1;
                    self.ledger.excuse(backend, due)
                }
                other => Err(format!("the status {other:?} is none that a read here may have")),
            };
            if let Err(wrong) = verdict {
                return self.is_wrong(format!("reading {key} of {}: {wrong}: {result}", NAMES[backend]));
            }
        }
        self.count(&came);
    }

    /// Writes or removes one key. Removals are needed to detect late fills: after a write, a late
    /// fill would find a newer value in the cache and be dropped.
    fn write(&self, client: &mut Client, backend: usize, key: usize, removes: bool) {
        let write = self.ledger.begin(backend, key, removes);
        let answer = match removes {
            true => client.remove(NAMES[backend], &name(key)),
            false => client.write(NAMES[backend], &name(key), &value(backend, key, write.number)),
        };
        let mut came = Tally::default();
        if answer.status == 204 {
            self.ledger.acknowledged(backend, key, write);
            came[backend].writes += 1;
        } else {
            let not_done = answer.json()["outcome"] == "not_done";
            if let Err(wrong) = self.ledger.failed(backend, key, write, not_done) {
                return self.is_wrong(format!("writing {key} of {}: {wrong}: {answer:?}", NAMES[backend]));
            }
            came[backend].failed_writes += 1;
        }
        self.count(&came);
    }

    /// Begins a phase, and waits until its results are `enough`.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, enough: impl Fn(&Tally) -> bool) {
        let mut state = self.state();
        let before = state.tally;
        state.rounds = ROUNDS_OF_A_PHASE;
        state.phase += 1;
        self.changed.notify_all();
        let so_far = |state: &State| array::from_fn(|backend| state.tally[backend] - before[backend]);
        let waits = |state: &mut State| state.wrong.is_none() && !enough(&so_far(state));
        let (state, waited) =
            self.changed.wait_timeout_while(state, TIMEOUT, waits).expect("no panics while held");
        let (wrong, came) = (state.wrong.clone(), so_far(&state));
        drop(state);
        assert_eq!(wrong, None, "{what}");
        assert!(!waited.timed_out(), "{what}: never came true of {came:#?}");
    }

    /// Ends the readers and writers.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next round of requests or writes and returns its phase; none when the load has
    /// ended.
    fn next_round(&self) -> Option<usize> {
        let over = |state: &State| state.ended || state.wrong.is_some();
        let waits = |state: &mut State| state.rounds == 0 && !over(state);
        let mut state = self.changed.wait_while(self.state(), waits).expect("no panics while held");
        state.rounds = state.rounds.saturating_sub(1);
        (!over(&state)).then_some(state.phase)
    }

    fn count(&self, came: &Tally) {
        let mut state = self.state();
        for (sum, came) in state.tally.iter_mut().zip(came) {
            sum.hits += came.hits;
            sum.misses += came.misses;
            sum.failures += came.failures;
            sum.writes += came.writes;
            sum.failed_writes += came.failed_writes;
        }
        self.changed.notify_all();
    }

    fn is_wrong(&self, what: String) {
        self.state().wrong.get_or_insert(what);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panics while held")
    }
}

fn draw(random: &mut SplitMix64, bound: usize) -> usize {
    (random.next_u64() % bound as u64) as usize
}

/// Draws the group of a key to read or write.
fn group(random: &mut SplitMix64, phase: usize) -> usize {
    if draw(random, 2) == 0 { phase % GROUPS } else { draw(random, GROUPS) }
}

fn name(key: usize) -> String {
    format!("k{key}")
}

fn value(backend: usize, key: usize, number: u64) -> String {
    format!("{}/{}#{number}", NAMES[backend], name(key))
}

/// Parses the number of a value, and checks that the value is of this key.
fn number(backend: usize, key: usize, value: &str) -> Result<u64, String> {
    let rest = value.strip_prefix(NAMES[backend]).and_then(|rest| rest.strip_prefix('/'));
    let rest = rest.and_then(|rest| rest.strip_prefix(&name(key)).and_then(|rest| rest.strip_prefix('#')));
    rest.and_then(|number| number.parse().ok()).ok_or_else(|| format!("{value:?} is no value of it"))
}
