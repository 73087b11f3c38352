//! Drives one backend's dispatcher: carries its actions to the replicas and its answers to whoever
//! waits.
//!
//! The dispatcher decides under a short lock, entered on misses and writes only; fills happen under
//! it, so that none comes after a write that it began before, calls and deliveries outside it. A
//! task per backend wakes the dispatcher up when a time-out or a probe is due.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sherwood_cache::{Access, Cache, Value};
use sherwood_dispatch::{
    Action, AttemptId, Dispatch, Failure, FailureKind, Options, OptionsError, Reply, Stats,
};
use sherwood_model::{BackendId, Demand, Instant, PartitionId, ReplicaId, SeededState};
use sherwood_path::{Fetched, Refreshes, Rules, Settled, WriteId, Writes};
use sherwood_store::{Fault, Found, KeyAnswer, Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::config::{self, WriteTo};
use crate::entropy::Entropy;
use crate::errors::Errors;
use crate::recording::Recording;
use crate::shadow::Shadow;
use crate::waiter::Waiter;
use crate::write::{self, Written};

/// What is fetched: a key of a backend, for one tenant's partition. Tenants do not share fetches,
/// as they do not share cache space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchKey {
    pub(crate) partition: PartitionId,
    pub(crate) key: Bytes,
}

impl AsRef<[u8]> for FetchKey {
    fn as_ref(&self) -> &[u8] {
        &self.key
    }
}

type Machine = Dispatch<FetchKey, Found, Waiter>;

/// The replica that is written to where the others copy from it.
pub(crate) const WRITTEN_TO: ReplicaId = ReplicaId(0);

/// Keys of a backend that are not made fresh again for a while since it failed at them; with keys
/// and tables some 3 MiB at most.
const RESTING_KEYS_MAX: u32 = 8_192;

/// What the backend's lock is for.
pub(crate) struct State {
    machine: Machine,
    pub(crate) writes: Writes<Bytes>,
    /// Whom to tell that it is their turn to write: of those that wait, each once.
    pub(crate) turns: HashMap<WriteId, oneshot::Sender<()>>,
    /// Stale values that are not made fresh again yet.
    refreshes: Refreshes<FetchKey>,
    /// Flushes of the cache that are still to come; no more than there are partitions.
    flushes: BTreeMap<PartitionId, Instant>,
    /// Where the backend's values may be cached.
    pub(crate) partitions: Vec<PartitionId>,
}

impl State {
    /// Carries out the flushes that are due by `now`, and ends the holds of keys that have been
    /// written: nothing that is in flight may fill any more.
    pub(crate) fn settle(&mut self, now: Instant) {
        let to_come = self.flushes.len();
        self.flushes.retain(|_, at| *at > now);
        if self.flushes.len() < to_come {
            self.doubt_where(now, |_| true);
            self.machine.restart_ramp();
        }
        while let Some(settled) = self.writes.poll_settled(now) {
            match settled {
                Settled::Key(key) => self.invalidate(&key),
                Settled::All => self.machine.invalidate_where(|_| true),
            }
        }
        while let Some(next) = self.writes.poll_turn(now) {
            self.tell_turn(next);
        }
    }

    /// Tells a write that it is its turn. One that has stopped waiting ends by itself, and then it
    /// is the next one's.
    pub(crate) fn tell_turn(&mut self, write: WriteId) {
        if let Some(turn) = self.turns.remove(&write) {
            let _ = turn.send(());
        }
    }

    /// When something is due that no input brings.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.machine.next_timeout().into_iter().chain(self.writes.next_turn()).min()
    }

    /// These keys may have been changed otherwise: nothing of them that was fetched or written
    /// before is kept.
    fn doubt_where(&mut self, now: Instant, which: impl Fn(&[u8]) -> bool) {
        self.machine.invalidate_where(|key| which(&key.key));
        self.writes.doubt_where(now, |key| which(key));
    }

    /// Takes the right to fill from every tenant's fetch of `key`.
    pub(crate) fn invalidate(&mut self, key: &Bytes) {
        for &partition in &self.partitions {
            self.machine.invalidate(&FetchKey { partition, key: key.clone() });
        }
    }
}

/// One backend: its dispatcher, its replicas, and what its values live by.
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) timeout: Duration,
    /// What its values are kept by.
    pub(crate) rules: Rules,
    /// A fetch that has taken so long is late, where a query takes a stale value then.
    pub(crate) late_after: Duration,
    /// Keys that were answered with values no longer fresh.
    pub(crate) stale_answers: AtomicU64,
    pub(crate) replicas: Vec<Arc<dyn Store>>,
    /// Which of them are written to.
    pub(crate) write_to: WriteTo,
    /// How many writes ended how.
    pub(crate) written: Written,
    /// How its stores failed.
    pub(crate) errors: Errors,
    /// Calls that all replicas work on at a time at most.
    pub(crate) calls_at_once_max: u64,
    id: BackendId,
    recording: Arc<Recording>,
    state: Mutex<State>,
    calls: Mutex<HashMap<AttemptId, AbortHandle>>,
    rearm: Notify,
    pub(crate) cache: Arc<Cache>,
    shadow: Arc<Shadow>,
    pub(crate) clock: Clock,
    entropy: Arc<Entropy>,
    pub(crate) runtime: Handle,
}

/// What a [`Backend`] is made of.
pub(crate) struct BackendParts {
    pub(crate) id: BackendId,
    pub(crate) name: String,
    pub(crate) options: Options,
    /// What its values are kept by.
    pub(crate) rules: Rules,
    /// A fetch that has taken so long is late, where a query takes a stale value then.
    pub(crate) late_after: Duration,
    pub(crate) writes: config::Writes,
    /// The partitions of its values, every tenant's.
    pub(crate) partitions: Vec<PartitionId>,
    pub(crate) replicas: Vec<Arc<dyn Store>>,
    pub(crate) recording: Arc<Recording>,
}

impl Backend {
    /// A backend whose calls run on `runtime`, with its wake-up task started there.
    pub(crate) fn start(
        parts: BackendParts,
        cache: Arc<Cache>,
        shadow: Arc<Shadow>,
        clock: Clock,
        entropy: Arc<Entropy>,
        runtime: Handle,
    ) -> Result<Arc<Self>, OptionsError> {
        let BackendParts { id, name, options, rules, late_after, writes, partitions, replicas, recording } =
            parts;
        let machine = Dispatch::new(options, replicas.len(), SeededState::new(entropy.draw()))?;
        let write_options = write::rules(&options, &writes, replicas.len());
        let mut held = Writes::new(write_options, SeededState::new(entropy.draw()));
        // A node that was here before may have written just now.
        let now = clock.now();
        held.hold_all(now, now);
        let state = State {
            machine,
            writes: held,
            turns: HashMap::new(),
            refreshes: Refreshes::new(options.timeout, RESTING_KEYS_MAX, SeededState::new(entropy.draw())),
            flushes: BTreeMap::new(),
            partitions,
        };
        let backend = Arc::new(Self {
            name,
            timeout: options.timeout,
            rules,
            late_after,
            stale_answers: AtomicU64::new(0),
            calls_at_once_max: u64::from(options.in_flight_calls_max) * replicas.len() as u64,
            replicas,
            write_to: writes.to,
            written: Written::default(),
            errors: Errors::default(),
            id,
            recording,
            state: Mutex::new(state),
            calls: Mutex::default(),
            rearm: Notify::new(),
            cache,
            shadow,
            clock,
            entropy,
            runtime,
        });
        backend.runtime.spawn(Arc::clone(&backend).wake_up());
        Ok(backend)
    }

    /// Asks for keys; each waiter hears of its key once, at the latest when the backend's time-out
    /// has passed.
    pub(crate) fn fetch(self: &Arc<Self>, demand: &Demand, keys: impl Iterator<Item = (FetchKey, Waiter)>) {
        self.drive(|state, now| self.ask(state, now, demand, keys));
    }

    /// Asks for keys that nobody waits for, those left out that are being fetched already or that
    /// the backend has just failed at: whatever they are asked for how often, one fetch of each is
    /// under way.
    pub(crate) fn refresh(self: &Arc<Self>, demand: &Demand, keys: impl Iterator<Item = FetchKey>) {
        self.drive(|state, now| {
            let State { machine, refreshes, .. } = state;
            let keys = keys.filter(|key| !machine.is_joinable(key) && refreshes.may_begin(now, key));
            let keys: Vec<_> = keys.map(|key| (key, Waiter::NOBODY)).collect();
            self.ask(state, now, demand, keys.into_iter());
        });
    }

    /// Has keys fetched: from any replica, but from the one that is written to where others copy
    /// from it and may not have done so yet.
    fn ask(
        &self,
        state: &mut State,
        now: Instant,
        demand: &Demand,
        keys: impl Iterator<Item = (FetchKey, Waiter)>,
    ) {
        let State { machine, writes, .. } = state;
        if self.write_to == WriteTo::All || self.replicas.len() == 1 {
            return machine.handle_fetch(now, demand, keys, self.entropy.draw());
        }
        let (settled, other): (Vec<_>, Vec<_>) = keys.partition(|(key, _)| writes.may_fill(&key.key));
        machine.handle_fetch(now, demand, settled, self.entropy.draw());
        machine.handle_fetch_from(now, WRITTEN_TO, demand, other, self.entropy.draw());
    }

    /// Makes `change`, which stores or removes `key` in the cache, so that nothing fetched before
    /// fills the cache afterwards: fetches under way lose the right to fill, under the lock that
    /// fills are made under. Nor does what is fetched from a replica that may lag behind: who
    /// changes the cache may have changed the store.
    pub(crate) fn write<R>(&self, partition: PartitionId, key: &[u8], change: impl FnOnce() -> R) -> R {
        let key = FetchKey { partition, key: Bytes::copy_from_slice(key) };
        let (mut state, now) = self.state();
        state.machine.invalidate(&key);
        state.writes.doubt(now, &key.key);
        change()
    }

    /// Makes `change`, which flushes `partition` of the cache from the time `at` on, so that
    /// nothing fetched before `at` fills the cache afterwards. A flush replaces one that was still
    /// to come, as in the cache.
    ///
    /// Fetches for other tenants lose the right to fill, too: flushes are rare, and a value that
    /// was not kept is only fetched again.
    pub(crate) fn flush<R>(&self, partition: PartitionId, at: Instant, change: impl FnOnce() -> R) -> R {
        let mut state = lock(&self.state);
        state.flushes.insert(partition, at);
        state.settle(self.clock.now());
        change()
    }

    /// These keys may have been changed otherwise: nothing of them that is fetched or written just
    /// now is kept.
    pub(crate) fn doubt_where(&self, which: impl Fn(&[u8]) -> bool) {
        let (mut state, now) = self.state();
        state.doubt_where(now, which);
    }

    /// Until when a write may land that has ended or is given up now, if there is one.
    pub(crate) fn unsettled(&self) -> Option<Instant> {
        let (state, now) = self.state();
        state.writes.unsettled(now)
    }

    /// A write of the node that was here before may land until `unsettled`.
    pub(crate) fn hold_all(&self, unsettled: Instant) {
        let (mut state, now) = self.state();
        state.writes.hold_all(now, unsettled);
    }

    /// Most of what the cache had of the backend is gone.
    pub(crate) fn note_cold(&self) {
        lock(&self.state).machine.restart_ramp();
    }

    /// What the lock is for, of which the time is given back with it: read under the lock, so that
    /// it never steps back.
    pub(crate) fn state(&self) -> (MutexGuard<'_, State>, Instant) {
        let mut state = lock(&self.state);
        let now = self.clock.now();
        state.settle(now);
        (state, now)
    }

    /// Counters and replica states.
    pub(crate) fn stats(&self) -> Stats {
        lock(&self.state).machine.stats()
    }

    /// Gives the dispatcher an input, then carries out what it asks for.
    fn drive(self: &Arc<Self>, input: impl FnOnce(&mut State, Instant)) {
        let mut actions = Vec::new();
        {
            // A fill is before a flush or after it.
            let (mut state, now) = self.state();
            let before = state.next_timeout();
            input(&mut state, now);
            let State { machine, writes, refreshes, .. } = &mut *state;
            while let Some(action) = machine.poll_action() {
                // Filling under the lock that `invalidate` takes: a value can not fill after its
                // key was written.
                if let Action::Deliver { key, result: Ok(found), fill: true, .. } = &action
                    && writes.may_fill(&key.key)
                {
                    self.fill(key, found.as_ref(), now);
                }
                if let Action::Deliver { key, result, .. } = &action
                    && self.refreshes_stale()
                {
                    refreshes.note(now, key, result.is_err());
                }
                actions.push(action);
            }
            self.rearm_since(before, &state);
        }
        for action in actions {
            self.carry_out(action);
        }
    }

    /// Has the wake-up task look again if what is due comes sooner than it did `before`.
    pub(crate) fn rearm_since(&self, before: Option<Instant>, state: &State) {
        if state.next_timeout().is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.rearm.notify_one();
        }
    }

    /// Whether stale values are served while others are fetched that nobody waits for.
    fn refreshes_stale(&self) -> bool {
        !self.rules.stale_while_revalidate.is_zero()
    }

    fn carry_out(self: &Arc<Self>, action: Action<FetchKey, Found, Waiter>) {
        match action {
            Action::Call { attempt, replica, keys, timeout, .. } => {
                self.call(attempt, replica, keys, timeout)
            }
            Action::Cancel { attempt, .. } => {
                self.errors.late(self);
                if let Some(task) = lock(&self.calls).remove(&attempt) {
                    task.abort();
                }
            }
            Action::Deliver { result, waiters, .. } => {
                waiters.into_iter().for_each(|waiter| waiter.tell(result.clone()));
            }
            Action::Probe { replica, key, timeout } => self.probe(replica, key, timeout),
        }
    }

    fn call(
        self: &Arc<Self>,
        attempt: AttemptId,
        replica: ReplicaId,
        keys: Vec<FetchKey>,
        timeout: Duration,
    ) {
        let (backend, store) = (Arc::clone(self), Arc::clone(&self.replicas[replica.index()]));
        // The table is locked until the task is in it, so that a call that ends at once finds
        // itself there to remove.
        let mut calls = lock(&self.calls);
        let task = self.runtime.spawn(async move {
            let asked = keys.iter().map(|key| key.key.clone()).collect();
            let (count, sent) = (keys.len(), backend.clock.now());
            let answer = tokio::time::timeout(timeout, store.get_each(asked)).await;
            lock(&backend.calls).remove(&attempt);
            let reply = match answer {
                Ok(Ok(values)) => {
                    let now = backend.clock.now();
                    backend.recording.call(now, backend.id, now - sent, count);
                    backend.reply(values)
                }
                Ok(Err(error)) => {
                    backend.errors.failed(&backend, &error);
                    Reply::Failed(failure(&error))
                }
                // The dispatcher has given the call up by itself. Its `Cancel` ends the task as a
                // rule; but one that was carried out before the task was in the table has ended
                // nothing.
                Err(_) => return,
            };
            backend.drive(|state, now| state.machine.handle_reply(now, attempt, reply));
        });
        calls.insert(attempt, task.abort_handle());
    }

    /// What a store's answers mean to the dispatcher.
    fn reply(&self, answers: Vec<KeyAnswer>) -> Reply<Found> {
        let heard = |answer: KeyAnswer| {
            answer.map_err(|error| {
                self.errors.failed(self, &error);
                failure(&error)
            })
        };
        Reply::Each(answers.into_iter().map(heard).collect())
    }

    fn fill(&self, key: &FetchKey, found: Option<&Found>, now: Instant) {
        if let Some(found) = found {
            self.shadow.access(now, key.partition, &key.key, found.value.len());
        }
        let fetched = found.map(|&Found { ref value, flags, good_for, tags }| Fetched {
            value: Value::Bytes(value),
            flags,
            good_for,
            tags,
        });
        let FetchKey { partition, key } = key;
        if let Err(refused) = self.rules.fill(&self.cache, *partition, key, fetched, &Access::at(now)) {
            tracing::debug!(backend = self.name, "an answer was not cached: {refused}");
        }
    }

    fn probe(self: &Arc<Self>, replica: ReplicaId, key: Option<FetchKey>, timeout: Duration) {
        let (backend, store) = (Arc::clone(self), Arc::clone(&self.replicas[replica.index()]));
        let keys = key.into_iter().map(|key| key.key).collect();
        self.runtime.spawn(async move {
            // As a call is made, and judged as one: it is back when it answers, though it declines
            // the key.
            let ok = match tokio::time::timeout(timeout, store.get_each(keys)).await {
                Ok(Ok(answers)) => {
                    let failures = answers.iter().filter_map(|answer| answer.as_ref().err());
                    failures.for_each(|error| backend.errors.failed(&backend, error));
                    true
                }
                Ok(Err(error)) => {
                    backend.errors.failed(&backend, &error);
                    error.fault() == Fault::Rejected
                }
                Err(_) => false,
            };
            backend.drive(|state, now| state.machine.handle_probe(now, replica, ok));
        });
    }

    /// Sleeps until something is due that no input brings and tells the dispatcher, as long as the
    /// runtime lives.
    async fn wake_up(self: Arc<Self>) {
        loop {
            let due = lock(&self.state).next_timeout();
            let Some(due) = due else {
                self.rearm.notified().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep(due.since(self.clock.now())) => {
                    self.drive(|state, now| state.machine.handle_timeout(now));
                }
                () = self.rearm.notified() => {}
            }
        }
    }
}

/// What a store's error means to the dispatcher, whose calls only read.
fn failure(error: &StoreError) -> Failure {
    let kind = match error.fault() {
        Fault::Unreachable => FailureKind::Unreachable,
        Fault::Overloaded => FailureKind::Overloaded,
        Fault::Rejected => FailureKind::Rejected,
        Fault::Broken => FailureKind::Reset,
    };
    Failure::new(kind, format!("{}: {error}", error.cause().label()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panics while held")
}
