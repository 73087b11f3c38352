//! Simulated backends: values depend only on the key, and the simulation chooses the time of each
//! answer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sherwood_cache::{Access, Cache, NewItem};
use sherwood_listener::{FetchFailure, FetchResult, StoreChange, StoreFailure};
use sherwood_model::{Instant, PartitionId};
use tokio::sync::oneshot;

use crate::fake::{self, FakeBackends, Fetched, now};

type Results = Vec<FetchResult>;
type Stored = Result<(), StoreFailure>;

/// Simulated backends that fill a cache with the values they return.
pub(crate) type SimulatedBackends = FakeBackends<State>;

/// The state of simulated backends.
pub(crate) struct State {
    cache: Arc<Cache>,
    /// Number of fetches of which one is answered at once; 1 if all of them are.
    at_once_of: u64,
    fetches: AtomicU64,
    pending: Mutex<Vec<PendingFetch>>,
}

/// A fetch or a write that the simulated backends have not answered yet.
pub(crate) struct PendingFetch {
    pub(crate) keys: Vec<Bytes>,
    answer: Answer,
}

enum Answer {
    Fetched(oneshot::Sender<Results>),
    Stored(StoreChange, oneshot::Sender<Stored>),
}

impl PendingFetch {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.answer, Answer::Stored(..))
    }
}

/// Creates backends that answer every fetch at once.
pub(crate) fn prompt(cache: Arc<Cache>) -> Arc<SimulatedBackends> {
    simulated(cache, 1)
}

/// Creates backends that answer one in five fetches at once, and leave the others to
/// [`take_pending`](State::take_pending).
pub(crate) fn late(cache: Arc<Cache>) -> Arc<SimulatedBackends> {
    simulated(cache, 5)
}

fn simulated(cache: Arc<Cache>, at_once_of: u64) -> Arc<SimulatedBackends> {
    let state = State { cache, at_once_of, fetches: AtomicU64::new(0), pending: Mutex::default() };
    FakeBackends::new(state, fetched).storing(stored).shared()
}

impl State {
    /// Counts a fetch; returns true if it is answered at once.
    fn is_prompt(&self) -> bool {
        self.fetches.fetch_add(1, Relaxed).is_multiple_of(self.at_once_of)
    }

    fn add(&self, pending: PendingFetch) {
        self.pending.lock().expect("no panics while held").push(pending);
    }

    /// Takes the unanswered fetches that began since the last call.
    pub(crate) fn take_pending(&self) -> Vec<PendingFetch> {
        std::mem::take(&mut self.pending.lock().expect("no panics while held"))
    }

    /// Answers a fetch: fills the cache and wakes the client that waits.
    pub(crate) fn answer(&self, fetch: PendingFetch, now: Instant) {
        // The listener may have dropped it with its client.
        match fetch.answer {
            Answer::Fetched(answer) => drop(answer.send(self.results(&fetch.keys, now))),
            Answer::Stored(change, answer) => drop(answer.send(self.stored(&fetch.keys[0], change, now))),
        }
    }

    /// Makes a change in the cache, as for one at the store, which fails for some keys.
    fn stored(&self, key: &[u8], change: StoreChange, now: Instant) -> Stored {
        let access = Access::at(now);
        let fails = key.last().is_some_and(|byte| byte.is_multiple_of(5));
        match change {
            StoreChange::Put { value, expires } if !fails => {
                let item = NewItem { expires, ..NewItem::bytes(&value) };
                let set = self.cache.set(PartitionId(0), key, item, &access);
                set.map_err(|refused| StoreFailure::Failed(refused.to_string()))?;
            }
            StoreChange::Put { .. } | StoreChange::Delete => {
                self.cache.remove(PartitionId(0), key, &access);
            }
        }
        if fails { Err(StoreFailure::Failed("down".to_owned())) } else { Ok(()) }
    }

    fn results(&self, keys: &[Bytes], now: Instant) -> Results {
        let found = |key: &Bytes| {
            let result = value(key);
            if let Ok(Some(value)) = &result {
                let item = NewItem::bytes(value);
                self.cache.set(PartitionId(0), key, item, &Access::at(now)).expect("room in the cache");
            }
            result.map(|value| value.map(|value| Bytes::from(value).into()))
        };
        keys.iter().map(found).collect()
    }
}

/// Returns the simulated backends' value of a key, or their failure.
fn value(key: &[u8]) -> Result<Option<Vec<u8>>, FetchFailure> {
    let sum: usize = key.iter().map(|&byte| usize::from(byte)).sum();
    match sum % 5 {
        0 => Ok(None),
        1 => Err(FetchFailure::Failed("down".to_owned())),
        size => Ok(Some([b"fetched ", key, &b"f".repeat(60 * size)].concat())),
    }
}

fn fetched(state: &State, _: PartitionId, keys: Vec<Bytes>, _: Option<Duration>) -> Fetched {
    if state.is_prompt() {
        return now(state.results(&keys, START));
    }
    let (answer, answered) = oneshot::channel();
    state.add(PendingFetch { keys, answer: Answer::Fetched(answer) });
    Box::pin(async move { answered.await.expect("the world answers every fetch") })
}

fn stored(state: &State, _: PartitionId, key: Bytes, change: StoreChange) -> fake::Stored {
    if state.is_prompt() {
        return now(state.stored(&key, change, START));
    }
    let (answer, answered) = oneshot::channel();
    state.add(PendingFetch { keys: vec![key], answer: Answer::Stored(change, answer) });
    Box::pin(async move { answered.await.expect("the world answers every write") })
}

/// The simulated time at which each seed begins.
pub(crate) const START: Instant = Instant::from_millis(1_000_000);
