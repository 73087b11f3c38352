//! The state machine: its inputs and outputs, and the keys it holds. What happens to calls is in
//! `calls`.

mod calls;

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::mem;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sherwood_model::{Demand, Instant, ReplicaId, SeededState};

use crate::budget::RetryBudget;
use crate::draws::Draws;
use crate::probes::Probes;
use crate::ramp::{List, Ramp};
use crate::replica::Replica;
use crate::slab::{Id, Slab};
use crate::{
    Action, AttemptId, Bound, Counters, Failure, FetchError, Options, OptionsError, PowerOfTwo, ReplicaLoad,
    Reply, Route, Stats, Waiters,
};

/// Everything between the misses of one backend and its replicas.
///
/// # Life of a key
/// ```text
///  fetch ──▶ a bound is reached, the route refuses, all replicas are down ─▶ Deliver(Err)
///    │
///    ├──▶ in flight already: one more waiter ─┐
///    │                                        ▼
///    └──▶ queued ──(replica has room)──▶ in flight ──(Ok)──────────────────▶ Deliver(Ok), fill
///          │  ▲                           │  │  │
///          │  ├─(its replica went down:   │  │  └─(Failed)────────────────▶ Deliver(Err)
///          │  │  to another one)          │  └────(Failed, safe, affordable)─┐
///          │  └───────────────────────────│──────────────────────────────────┘
///          └─(deadline)─▶ Deliver(Err)    └────(deadline)─▶ Cancel, Deliver(Err)
/// ```
/// Each waiter is in exactly one [`Action::Deliver`], no later than the time-out after its key was
/// first asked for, so a waiter that joins shares the key's fate and its deadline. A key that is
/// invalidated keeps its waiters and its call, but its answer no longer fills, and who asks for it
/// from then on starts another call.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`handle_fetch`](Self::handle_fetch), [`handle_fetch_from`](Self::handle_fetch_from),
///   [`handle_reply`](Self::handle_reply), [`handle_probe`](Self::handle_probe),
///   [`handle_timeout`](Self::handle_timeout), [`invalidate`](Self::invalidate),
///   [`invalidate_where`](Self::invalidate_where) and [`restart_ramp`](Self::restart_ramp). They
///   may come in any order. Replies and probes may be late, repeated or missing.
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none. What is
///   not polled piles up: an input adds at most one action for each key it ends or is given, and
///   one for each call and replica.
/// - Wake-ups: call [`handle_timeout`](Self::handle_timeout) at
///   [`next_timeout`](Self::next_timeout), which may change with every input. Earlier does nothing;
///   later makes time-outs and probes late and nothing else.
///
/// `now` should not step back; where it does, time-outs come later by as much. A driver that shares
/// the machine among threads must poll and fill the cache before it lets go of the lock that
/// `invalidate` is called under, or a value could fill after its key was written.
///
/// # Complexity and memory
/// A key costs a constant number of hash operations, a call one operation on an ordered set of the
/// calls held, and every input a pass over the replicas. Memory is proportional to the most waiters
/// ever held at once, at most [`Options::waiters_max`].
///
/// ```
/// use sherwood_dispatch::{Action, Dispatch, Options, Reply, Waiters};
/// use sherwood_model::{Demand, Instant, SeededState};
///
/// let mut dispatch = Dispatch::new(Options::default(), 1, SeededState::new(7))?;
/// let now = Instant::from_millis(3);
/// let demand = Demand::default();
/// dispatch.handle_fetch(now, &demand, [("a", 1), ("b", 2)], 0x5eed);
/// dispatch.handle_fetch(now, &demand, [("a", 3)], 0x5eed);
/// let Some(Action::Call { attempt, keys, .. }) = dispatch.poll_action() else { panic!("one call") };
/// assert_eq!(keys, ["a", "b"]);
/// assert_eq!(dispatch.poll_action(), None);
///
/// dispatch.handle_reply(now, attempt, Reply::Ok(vec![Some(10), None]));
/// let mut waiters = Waiters::new(1);
/// waiters.push(3);
/// let a = Action::Deliver { key: "a", result: Ok(Some(10)), fill: true, waiters };
/// let b = Action::Deliver { key: "b", result: Ok(None), fill: true, waiters: Waiters::new(2) };
/// assert_eq!((dispatch.poll_action(), dispatch.poll_action()), (Some(a), Some(b)));
/// assert_eq!(dispatch.next_timeout(), None);
/// # Ok::<(), sherwood_dispatch::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dispatch<K, V, W, R = PowerOfTwo> {
    options: Options,
    route: R,
    replicas: Vec<Replica>,
    /// The keys a fetch joins; each is in `keys` and fresh.
    joinable: HashMap<K, Id, SeededState>,
    keys: Slab<Key<K, W>>,
    calls: Slab<Call>,
    /// Every call of `calls`, soonest deadline first.
    deadlines: BTreeSet<(Instant, Id)>,
    /// Sum of the waiters of `keys`.
    waiters: u32,
    budget: RetryBudget,
    ramp: Option<Ramp>,
    probes: Probes<K>,
    draws: Draws,
    /// The failure that took a replica down last.
    last_down: Arc<str>,
    actions: VecDeque<Action<K, V, W>>,
    counters: Counters,
    /// Scratch space of `choose`.
    usable: Vec<ReplicaLoad>,
}

/// A key somebody waits for; it belongs to exactly one call, or to the batch being built.
#[derive(Clone, Debug)]
struct Key<K, W> {
    key: K,
    waiters: Waiters<W>,
    /// Not invalidated since it was asked for: it may be joined and may fill.
    fresh: bool,
}

/// Keys that travel together.
#[derive(Clone, Debug)]
struct Call {
    keys: Vec<Id>,
    demand: Demand,
    deadline: Instant,
    /// Calls made for these keys, this one included.
    attempt: u32,
    /// The one replica that may be asked; none for any.
    only: Option<ReplicaId>,
    /// Whose queue it is in or who works on it.
    replica: ReplicaId,
    /// When it left the queue.
    sent: Option<Instant>,
    /// How the attempt before this one failed, if there was one.
    failure: Option<Failure>,
}

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// A dispatcher for a backend of `replicas` replicas, all taken to be up, that chooses by
    /// [`PowerOfTwo`].
    ///
    /// # Errors
    /// When the options or the number of replicas cannot work.
    pub fn new(options: Options, replicas: usize, hash: SeededState) -> Result<Self, OptionsError> {
        Self::with_route(options, replicas, hash, PowerOfTwo)
    }
}

impl<K: Clone + Eq + Hash, V, W, R: Route> Dispatch<K, V, W, R> {
    /// A dispatcher for a backend of `replicas` replicas, all taken to be up, that chooses by
    /// `route`.
    ///
    /// # Errors
    /// When the options or the number of replicas cannot work.
    pub fn with_route(
        options: Options,
        replicas: usize,
        hash: SeededState,
        route: R,
    ) -> Result<Self, OptionsError> {
        options.validate()?;
        if !(1..=usize::from(u16::MAX)).contains(&replicas) {
            return Err(OptionsError::Replicas { replicas });
        }
        Ok(Self {
            options,
            route,
            replicas: (0..replicas).map(|index| Replica::new(ReplicaId::from_index(index))).collect(),
            joinable: HashMap::with_hasher(hash),
            keys: Slab::new(),
            calls: Slab::new(),
            deadlines: BTreeSet::new(),
            waiters: 0,
            budget: RetryBudget::new(&options.retry),
            ramp: options.ramp.map(|ramp| Ramp::new(ramp, options.timeout)),
            probes: Probes::new(replicas),
            draws: Draws::default(),
            last_down: Arc::from("none"),
            actions: VecDeque::new(),
            counters: Counters::default(),
            usable: Vec::new(),
        })
    }

    /// One request's misses at this backend: joins the keys that are in flight and sends the others
    /// as calls of at most [`Options::batch_keys_max`] keys. `entropy` is 64 fresh random bits,
    /// from which the draws of replicas and probe times follow.
    pub fn handle_fetch(
        &mut self,
        now: Instant,
        demand: &Demand,
        keys: impl IntoIterator<Item = (K, W)>,
        entropy: u64,
    ) {
        self.fetch(now, None, demand, keys, entropy);
    }

    /// As [`handle_fetch`](Self::handle_fetch), but nobody except `replica` is asked, and where it
    /// fails they fail: for keys of which the others may not have the latest value yet. Who joins a
    /// fetch gets what that one brings, whoever was asked, so [`invalidate`](Self::invalidate) a
    /// key when this begins to matter. A replica that does not exist is as one that is down.
    pub fn handle_fetch_from(
        &mut self,
        now: Instant,
        replica: ReplicaId,
        demand: &Demand,
        keys: impl IntoIterator<Item = (K, W)>,
        entropy: u64,
    ) {
        self.fetch(now, Some(replica), demand, keys, entropy);
    }

    fn fetch(
        &mut self,
        now: Instant,
        only: Option<ReplicaId>,
        demand: &Demand,
        keys: impl IntoIterator<Item = (K, W)>,
        entropy: u64,
    ) {
        self.draws.stir(entropy);
        self.advance(now);
        let keys = keys.into_iter();
        let mut batch = Vec::with_capacity(keys.size_hint().0.min(self.options.batch_keys_max as usize));
        let mut list = List::default();
        for (key, waiter) in keys {
            batch.extend(self.admit(now, key, waiter, &mut list));
            if batch.len() == self.options.batch_keys_max as usize {
                self.submit(now, mem::take(&mut batch), only, demand);
            }
        }
        if !batch.is_empty() {
            self.submit(now, batch, only, demand);
        }
    }

    /// A call ended. A reply at or after the call's deadline, to a call that has ended or that
    /// never was, is counted and ignored.
    pub fn handle_reply(&mut self, now: Instant, attempt: AttemptId, reply: Reply<V>) {
        self.advance(now);
        let Some(call) = self.take_in_flight(attempt.0) else {
            self.counters.late_replies += 1;
            return;
        };
        match reply {
            Reply::Ok(values) => self.answer(now, call, values.into_iter().map(Ok)),
            Reply::Each(answers) => self.answer(now, call, answers.into_iter()),
            Reply::Failed(failure) => self.fail(now, call, failure),
        }
        self.settle(now);
    }

    /// A probe ended. Ignored when none is awaited from that replica.
    pub fn handle_probe(&mut self, now: Instant, replica: ReplicaId, ok: bool) {
        self.advance(now);
        if let Some(replica) = self.replicas.get_mut(replica.index()) {
            replica.health.note_probe(now, ok, &self.options.probe, &mut self.draws);
        }
    }

    /// Ends what is due: calls at their deadline, probes to be sent or given up.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The key was written or deleted: an answer under way no longer fills, and no fetch joins it
    /// any more.
    pub fn invalidate(&mut self, key: &K) {
        if let Some(key) = self.joinable.remove(key).and_then(|id| self.keys.get_mut(id)) {
            key.fresh = false;
        }
    }

    /// The keys for which `which` holds may have been written or deleted: as
    /// [`invalidate`](Self::invalidate) for each of them, linear in the keys in flight.
    pub fn invalidate_where(&mut self, mut which: impl FnMut(&K) -> bool) {
        let Self { joinable, keys, .. } = self;
        joinable.retain(|key, id| {
            let is_meant = which(key);
            if is_meant && let Some(key) = keys.get_mut(*id) {
                key.fresh = false;
            }
            !is_meant
        });
    }

    /// The cache was emptied, or most of it: the [ramp](Options::ramp), if there is one, begins
    /// anew.
    pub fn restart_ramp(&mut self) {
        self.ramp.iter_mut().for_each(Ramp::restart);
    }

    /// Whether a fetch of this key would join one that is under way: for who wants the value
    /// fetched and waits for nothing. A waiter more would bring nothing, and counts against
    /// [`Options::waiters_max`].
    #[must_use]
    pub fn is_joinable(&self, key: &K) -> bool {
        self.joinable.contains_key(key)
    }

    /// The next thing for the driver to do, or none until the next input.
    pub fn poll_action(&mut self) -> Option<Action<K, V, W>> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); none while nothing is waited for.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let probes = self.replicas.iter().filter_map(|replica| replica.health.next_timeout());
        probes.chain(deadline).min()
    }

    /// What it did and holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            counters: self.counters,
            waiters: self.waiters,
            keys: self.keys.len(),
            joinable_keys: self.joinable.len(),
            ramp: self.ramp.as_ref().map(Ramp::standing),
            calls: self.calls.len(),
            replicas: self.replicas.iter().map(Replica::stats).collect(),
        }
    }

    /// Takes a waiter in, if there is room; returns the key when it needs a call.
    fn admit(&mut self, now: Instant, key: K, waiter: W, list: &mut List) -> Option<Id> {
        self.counters.asked += 1;
        let limit = self.options.waiters_max;
        if self.waiters == limit {
            self.refuse(key, waiter, Bound::Waiters, limit);
            return None;
        }
        // Who joins a fetch costs the backend nothing.
        if let Some(ramp) = &mut self.ramp
            && !self.joinable.contains_key(&key)
            && !ramp.admits(now, list)
        {
            let limit = ramp.keys();
            self.counters.ramped += 1;
            self.refuse(key, waiter, Bound::Ramp, limit);
            return None;
        }
        self.waiters += 1;
        match self.joinable.entry(key) {
            Entry::Occupied(open) => {
                self.counters.joined += 1;
                let open = self.keys.get_mut(*open.get()).expect("a key that is joined is stored");
                open.waiters.push(waiter);
                None
            }
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                let id = self.keys.insert(Key { key, waiters: Waiters::new(waiter), fresh: true });
                vacant.insert(id);
                Some(id)
            }
        }
    }

    /// Tells a waiter that was not taken in.
    fn refuse(&mut self, key: K, waiter: W, bound: Bound, limit: u32) {
        self.counters.refused += 1;
        let result = Err(FetchError::Overloaded { bound, limit });
        let waiters = Waiters::new(waiter);
        self.actions.push_back(Action::Deliver { key, result, fill: false, waiters });
    }

    /// Tells the ramp how a call ended, and these many of its keys with it: the others are asked
    /// for once more.
    fn note_call(&mut self, now: Instant, call: &Call, keys: usize, answered: bool) {
        if let Some(ramp) = &mut self.ramp {
            ramp.note(now, call.deadline - self.options.timeout, keys, answered);
        }
    }

    fn deliver(&mut self, id: Id, result: Result<Option<V>, FetchError>) {
        let Key { key, waiters, fresh } = self.keys.remove(id).expect("a key is stored until its call ends");
        if result.is_err() {
            self.probes.note_failed(&key);
        }
        if fresh {
            self.joinable.remove(&key);
        }
        self.waiters -= waiters.len() as u32;
        self.ramp.iter_mut().for_each(Ramp::note_end);
        let ended = match &result {
            Ok(_) => &mut self.counters.answered,
            Err(FetchError::Timeout { .. }) => &mut self.counters.timed_out,
            Err(FetchError::Failed { .. }) => &mut self.counters.failed,
            Err(
                FetchError::Overloaded { .. }
                | FetchError::NotAdmitted { .. }
                | FetchError::Unavailable { .. },
            ) => &mut self.counters.refused,
        };
        *ended += waiters.len() as u64;
        let fill = fresh && result.is_ok();
        self.actions.push_back(Action::Deliver { key, result, fill, waiters });
    }

    /// Does what time alone brings, before an input is looked at.
    fn advance(&mut self, now: Instant) {
        let Options { timeout, probe, .. } = self.options;
        let mut expired = false;
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.expire(now, id);
            expired = true;
        }
        for replica in &mut self.replicas {
            if replica.health.wake(now, timeout, &probe, &mut self.draws) {
                self.counters.probes += 1;
                let key = self.probes.next_key(replica.id);
                self.actions.push_back(Action::Probe { replica: replica.id, key, timeout });
            }
        }
        if expired {
            self.settle(now);
        }
    }
}

#[cfg(test)]
mod tests;
