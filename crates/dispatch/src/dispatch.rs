//! The state machine: its inputs and outputs, and the keys it holds. `fetches` has the life of a
//! fetch, `attempts` that of its attempts, `tier` attempts that wait for any replica, `applied`
//! replicas that lag, `leases` the replica slots that clients hold, `connections` those of several
//! replicas together, `tenants` the rates of tenants.

mod applied;
mod attempts;
mod connections;
mod fetches;
mod leases;
mod retries;
mod tenants;
mod tier;

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sherwood_model::{AttemptTimes, Demand, Instant, ReplicaId, SeededState, TierWindow};

use self::tenants::TenantReads;
use crate::attempt_meter::AttemptMeter;
use crate::connections::Connections;
use crate::draws::{Draws, below};
use crate::expiries::Expiries;
use crate::extra_budget::ExtraBudget;
use crate::extra_load::ExtraLoad;
use crate::fetch::{Attempt, AttemptState, Fetch, Later};
use crate::probes::Probes;
use crate::ramp::{List, Ramp};
use crate::replica::Replica;
use crate::rules::names::{AnyAdmission, AnyBalancer, AnyReplication};
use crate::rules::{
    ATTEMPTS_MAX, Balancer as _, CallEnd, Completion, Figures, ReplicaLoad, Replication as _,
};
use crate::slab::{Id, Slab};
use crate::tier_meter::TierMeter;
use crate::tier_queue::TierQueue;
use crate::{
    Action, AttemptId, Bound, CopiesChoice, Counters, FailureKind, FetchError, Holders, Options,
    OptionsError, ProbeOptions, Reply, RetryOptions, Stats, Waiters,
};
use sherwood_model::Percent;

/// The dispatcher of one backend: turns missed keys into calls to replicas, and their replies into
/// one answer for each waiter.
///
/// Keys that are asked for together form a *fetch*. A fetch makes *attempts* at replicas: the first
/// one, retries, and copies where the replication rule plans any. Each attempt waits in the queue
/// of its replica and is then one *call*. The first answer of a key counts; a fetch fails when its
/// last live attempt has failed.
///
/// # Life of a key
/// ```text
///  asked for ─▶ a bound is reached, admission refuses, all replicas are down ─▶ Deliver(Err)
///    │
///    ├──▶ in flight already: one more waiter ─┐
///    │                                        ▼
///    └──▶ queued ──(replica has room)──▶ in flight ──(Ok)──────────────────▶ Deliver(Ok), fill
///          │  ▲                           │  │  │
///          │  ├─(its replica went down:   │  │  └─(Failed, the last)──────▶ Deliver(Err)
///          │  │  to another one)          │  └────(Failed, safe, affordable)─┐
///          │  └───────────────────────────│──────────────────────────────────┘
///          └─(timeout)──▶ Deliver(Err)    └────(timeout)──▶ Cancel, Deliver(Err)
/// ```
/// Each waiter is in exactly one [`Action::Deliver`], no later than the timeout after its key was
/// first asked for: a waiter that joins a key in flight shares its result and its timeout, and adds
/// its [`Demand`] to that of the fetch. A key that is invalidated keeps its waiters and its
/// attempts, but its answer no longer fills, and the next query for it starts another fetch.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`handle_fetch`](Self::handle_fetch), [`handle_fetch_from`](Self::handle_fetch_from),
///   [`handle_reply`](Self::handle_reply), [`handle_probe`](Self::handle_probe),
///   [`handle_timeout`](Self::handle_timeout), [`invalidate`](Self::invalidate),
///   [`begin_wait`](Self::begin_wait), [`handle_turn`](Self::handle_turn),
///   [`charge`](Self::charge), [`set_rates`](Self::set_rates),
///   [`set_applied`](Self::set_applied), [`connect`](Self::connect), [`ask`](Self::ask),
///   [`end_call`](Self::end_call), [`disconnect`](Self::disconnect),
///   [`invalidate_where`](Self::invalidate_where) and [`restart_ramp`](Self::restart_ramp). They
///   may come in any order. Replies and probes may be late, repeated or missing.
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none, and
///   [`poll_connection`](Self::poll_connection) where there are connections. Actions that are not
///   polled accumulate: an input adds at most one for each key that it ends or brings, and one for
///   each attempt and replica.
/// - Wake-ups: call [`handle_timeout`](Self::handle_timeout) at
///   [`next_timeout`](Self::next_timeout), which may change with every input. An earlier call does
///   nothing; a later one makes timeouts and probes late and nothing else.
///
/// `now` should not step back; where it does, timeouts come later by as much. A driver that shares
/// the machine among threads must fill the cache, from
/// [`each_new_delivery`](Self::each_new_delivery) or from the actions, before it releases the lock
/// that `invalidate` is called under, or a value could fill after its key was written.
///
/// # Complexity and memory
/// A key costs a constant number of hash operations, a fetch a constant number of steps on average
/// (one in many passes over the timeouts of all), one with attempts planned for later an operation
/// on an ordered set of such fetches, an attempt a constant number of steps, and every input a pass
/// over the replicas. Memory is proportional to the most waiters ever held at once, at most
/// [`Options::waiters_max`], times the attempts of a fetch, at most 8 at a time.
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
/// let asked_at = now;
/// let a = Action::Deliver { key: "a", result: Ok(Some(10)), is_current: true, demand, asked_at, waiters };
/// assert_eq!(dispatch.poll_action(), Some(a));
/// let waiters = Waiters::new(2);
/// let b = Action::Deliver { key: "b", result: Ok(None), is_current: true, demand, asked_at, waiters };
/// assert_eq!(dispatch.poll_action(), Some(b));
/// assert_eq!(dispatch.next_timeout(), None);
/// # Ok::<(), sherwood_dispatch::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dispatch<K, V, W> {
    options: Options,
    balancer: AnyBalancer,
    admission: AnyAdmission,
    replication: AnyReplication,
    replicas: Vec<Replica>,
    /// The queue of attempts that wait for any replica; none if each attempt waits for one replica.
    tier: Option<Box<TierQueue>>,
    /// The keys that a query which asks for them joins; each is in `keys` and fresh.
    joinable: HashMap<K, Id, SeededState>,
    keys: Slab<Key<K, W>>,
    fetches: Slab<Fetch>,
    /// The queued and started attempts of `fetches`.
    attempts: Slab<Attempt<K>>,
    /// Every fetch that waits for units or has made an attempt, in the order of their timeouts.
    expiries: Expiries,
    /// Fetches that are to make further attempts at a later time, by that time.
    later: BTreeSet<(Instant, Id)>,
    /// Number of waiters of all `keys`.
    waiters: u32,
    budget: ExtraBudget,
    extra_load: ExtraLoad,
    /// Measurements for a replicator; none if there is none.
    meter: Option<Box<TierMeter>>,
    /// Measurements for the manager of a replicated store; none if there is none.
    attempt_meter: Option<Box<AttemptMeter>>,
    ramp: Option<Ramp>,
    probes: Probes<K>,
    /// The rates of the tenants; none if tenants have none.
    tenant_reads: Option<Box<TenantReads>>,
    draws: Draws,
    /// Explanation of the failure that took a replica down last.
    last_down: Arc<str>,
    actions: VecDeque<Action<K, V, W>>,
    /// Number of leases that wait or hold a slot.
    leases: u32,
    connections: Connections,
    /// Number of actions, from the front, that [`Dispatch::each_new_delivery`] has shown.
    shown: usize,
    counters: Counters,
    /// Scratch space: the replicas that an attempt may go to.
    usable: Vec<ReplicaLoad>,
}

/// A delivery, as [`Dispatch::each_new_delivery`] shows it.
#[derive(Clone, Copy, Debug)]
pub struct NewDelivery<'a, K, V> {
    /// The key.
    pub key: &'a K,
    /// The value, none if the backend has none, or the reason for which it is unknown.
    pub result: &'a Result<Option<V>, FetchError>,
    /// True if the result may fill the cache.
    pub is_current: bool,
    /// The most urgent demand of the waiters for the keys that were fetched together.
    pub demand: &'a Demand,
    /// The time at which the key was asked for.
    pub asked_at: Instant,
    /// Number of waiters, of which all but the first joined the fetch.
    pub waiters: usize,
}

/// The origin of a call, as [`Dispatch::observe_call`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOrigin {
    /// The number of earlier attempts for the same keys: retries and copies follow the first.
    pub earlier: u32,
    /// The time at which the keys were asked for.
    pub asked_at: Instant,
}

/// Explanation of a panic: a fetch must be found by its id.
const STORED: &str = "a fetch is stored while it has open keys or live attempts";

/// A key with waiters; it belongs to exactly one fetch.
#[derive(Clone, Debug)]
struct Key<K, W> {
    key: K,
    fetch: Id,
    waiters: Waiters<W>,
    /// True until the key is invalidated: queries may join it and its answer may fill the cache.
    fresh: bool,
}

impl<K: Clone + Eq + Hash, V, W> Dispatch<K, V, W> {
    /// Returns a dispatcher for a backend of `replicas` replicas, all taken to be up.
    ///
    /// # Errors
    /// If the options or the number of replicas cannot work.
    pub fn new(options: Options, replicas: usize, hash: SeededState) -> Result<Self, OptionsError> {
        options.validate_for(replicas)?;
        let replica = |index| Replica::new(ReplicaId::from_index(index), &options);
        let workers = u64::from(options.in_flight_calls_max) * replicas as u64;
        Ok(Self {
            options,
            balancer: options.balance.into(),
            admission: AnyAdmission::new(options.admit, workers),
            replication: options.copies.into(),
            replicas: (0..replicas).map(replica).collect(),
            tier: options.has_tokens().then(|| Box::new(TierQueue::new(&options, replicas, hash))),
            joinable: HashMap::with_hasher(hash),
            keys: Slab::new(),
            fetches: Slab::new(),
            attempts: Slab::new(),
            expiries: Expiries::default(),
            later: BTreeSet::new(),
            waiters: 0,
            budget: ExtraBudget::new(&options.retry),
            extra_load: ExtraLoad::default(),
            meter: options.cores.map(|cores| Box::new(TierMeter::new(cores, replicas))),
            attempt_meter: None,
            ramp: options.ramp.map(|ramp| Ramp::new(ramp, options.timeout)),
            probes: Probes::new(replicas),
            tenant_reads: options
                .tenants
                .map(|tenants| Box::new(TenantReads::new(tenants, options.waiters_max))),
            draws: Draws::default(),
            last_down: Arc::from("none"),
            actions: VecDeque::new(),
            leases: 0,
            connections: Connections::default(),
            shown: 0,
            counters: Counters::default(),
            usable: Vec::new(),
        })
    }

    /// Asks for the keys that one query misses at this backend: joins those that are in flight and
    /// fetches the others, at most [`Options::batch_keys_max`] of them together. `entropy` is 64
    /// fresh random bits, from which the draws of replicas and probe times follow.
    pub fn handle_fetch(
        &mut self,
        now: Instant,
        demand: &Demand,
        keys: impl IntoIterator<Item = (K, W)>,
        entropy: u64,
    ) {
        self.handle_fetch_since(now, now, Holders::All, demand, keys, entropy);
    }

    /// Asks for keys as [`handle_fetch`](Self::handle_fetch) does, but only from the replicas that
    /// hold them, and if those fail the keys fail: for keys that the other replicas do not have, or
    /// may not have the latest value of yet. A query that joins keys in flight gets their result
    /// from whichever replica was asked, so [`invalidate`](Self::invalidate) a key when this begins
    /// to matter. A replica that does not exist is treated as one that is down.
    pub fn handle_fetch_from(
        &mut self,
        now: Instant,
        holders: Holders,
        demand: &Demand,
        keys: impl IntoIterator<Item = (K, W)>,
        entropy: u64,
    ) {
        self.handle_fetch_since(now, now, holders, demand, keys, entropy);
    }

    /// Asks for keys as [`handle_fetch_from`](Self::handle_fetch_from) does, which have waited
    /// elsewhere since `asked_at`: their timeout began then.
    pub fn handle_fetch_since(
        &mut self,
        now: Instant,
        asked_at: Instant,
        holders: Holders,
        demand: &Demand,
        keys: impl IntoIterator<Item = (K, W)>,
        entropy: u64,
    ) {
        self.draws.stir(entropy);
        self.advance(now);
        let expires_at = asked_at + self.options.timeout;
        let keys_max = self.options.batch_keys_max as usize;
        let mut keys = keys.into_iter().peekable();
        let mut list = List::default();
        while keys.peek().is_some() {
            let id = self.fetches.insert(Fetch::new(asked_at, expires_at, holders, demand));
            let mut batch = Vec::with_capacity(keys.size_hint().0.min(keys_max));
            while batch.len() < keys_max
                && let Some((key, waiter)) = keys.next()
            {
                batch.extend(self.admit(now, id, demand, key, waiter, &mut list));
            }
            if batch.is_empty() {
                self.fetches.remove(id);
            } else {
                self.submit(now, id, batch);
            }
        }
    }

    /// Takes in the outcome of a call. A reply that comes at or after the timeout of its fetch, or
    /// for an attempt that has ended or never was, is counted and ignored.
    pub fn handle_reply(&mut self, now: Instant, attempt: AttemptId, reply: Reply<V>) {
        self.advance(now);
        let is_answer = match &reply {
            Reply::Ok(_) | Reply::Each(_) => true,
            Reply::Failed(failure) => failure.kind == FailureKind::Rejected,
            Reply::NotAdmitted { .. } => false,
        };
        let Some(attempt) = self.take_started(now, attempt.0, is_answer) else {
            self.counters.late_replies += 1;
            return;
        };
        match reply {
            Reply::Ok(values) => self.answer(now, attempt, values.into_iter().map(Ok)),
            Reply::Each(answers) => self.answer(now, attempt, answers.into_iter()),
            Reply::Failed(failure) => self.fail(now, attempt, failure),
            Reply::NotAdmitted { expected } => self.turn_away(now, attempt, expected),
        }
        // Units of throttled keys may pay for other fetches.
        self.start_paid(now);
        self.settle(now);
    }

    /// Notes that a started call is to wait for a turn that a scheduler elsewhere gives. Returns
    /// another replica that it may go to instead, drawn at random; none if there is none. The time
    /// of the call at the replica begins with [`handle_turn`](Self::handle_turn).
    pub fn begin_wait(&mut self, attempt: AttemptId) -> Option<ReplicaId> {
        let waiting = self.attempts.get_mut(attempt.0)?;
        let AttemptState::Started(at) = &mut waiting.state else { return None };
        *at = Instant::NEVER;
        let fetch = waiting.fetch;
        self.offer(fetch, None).ok()?;
        let place = below(self.draws.next(), self.usable.len() as u64) as usize;
        self.usable.get(place).map(|load| load.replica)
    }

    /// Takes in that a call which [waited](Self::begin_wait) begins now, at `replica`. Ignored if
    /// the attempt has ended, or there is no such replica.
    pub fn handle_turn(&mut self, now: Instant, attempt: AttemptId, replica: ReplicaId) {
        self.advance(now);
        if replica.index() >= self.replicas.len() {
            return;
        }
        let Some(waiting) = self.attempts.get_mut(attempt.0) else { return };
        let AttemptState::Started(at) = &mut waiting.state else { return };
        *at = now;
        waiting.progress_at = now;
        let Some(from) = waiting.replica.replace(replica) else { return };
        let fetch = self.fetches.get(waiting.fetch).expect(STORED);
        let keys = waiting.asked.as_ref().unwrap_or(&fetch.keys).len();
        let kind = fetch.demand.kind;
        if let Some(meter) = &mut self.meter {
            meter.note_end(now, from);
            meter.note_start(now, replica);
        }
        self.replicas[from.index()].queue.complete(attempt, None);
        self.replicas[replica.index()].queue.adopt(now, attempt, kind, keys as u32);
        self.pump(now, from);
        self.pump_tier(now);
    }

    /// Takes in the outcome of a probe. Ignored if no probe of that replica is in flight.
    pub fn handle_probe(&mut self, now: Instant, replica: ReplicaId, ok: bool) {
        self.advance(now);
        if let Some(replica) = self.replicas.get_mut(replica.index()) {
            replica.health.note_probe(now, ok, &self.options.probe, &mut self.draws);
        }
        self.pump_tier(now);
    }

    /// Does what is due: ends fetches whose timeout is over, starts those whose tenant's rate pays
    /// for them, adds attempts that were planned for now, sends and gives up probes.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Invalidates a key that was written or deleted: an answer in flight no longer fills, and
    /// later queries do not join it.
    pub fn invalidate(&mut self, key: &K) {
        if let Some(key) = self.joinable.remove(key).and_then(|id| self.keys.get_mut(id)) {
            key.fresh = false;
        }
    }

    /// Invalidates all keys for which `which` holds, as [`invalidate`](Self::invalidate) does one.
    /// Linear in the keys in flight.
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

    /// Begins the [ramp](Options::ramp), which limits the misses of a cold cache, again (if there
    /// is one) after most of the cache was emptied.
    pub fn restart_ramp(&mut self) {
        self.ramp.iter_mut().for_each(Ramp::restart);
    }

    /// Sets the timeout of further fetches (and of what is due by the timeout from now on), and how
    /// calls are retried and replicas probed. The options are valid. The budget of retries starts
    /// full.
    pub fn set_times(&mut self, timeout: Duration, retry: RetryOptions, probe: ProbeOptions) {
        if self.options.retry != retry {
            self.budget = ExtraBudget::new(&retry);
        }
        self.options = Options { timeout, retry, probe, ..self.options };
    }

    /// Makes estimates take another percentile of the replicas' latencies
    /// ([`Options::beta`]): a greater one rejects more fetches and misses fewer deadlines.
    pub fn set_beta(&mut self, beta: Percent) {
        self.options.beta = beta;
        self.replicas.iter_mut().for_each(|replica| replica.queue.set_beta(beta));
        self.tier.iter_mut().for_each(|tier| tier.queue.set_beta(beta));
    }

    /// Sets the number of attempts that a fetch has at once with
    /// [`CopiesChoice::Fixed`](crate::CopiesChoice), at most 8 and one for each replica.
    pub fn set_copies(&mut self, factor: u8) {
        let most = self.replicas.len().min(ATTEMPTS_MAX) as u8;
        self.replication.set_factor(factor.clamp(1, most));
    }

    /// Replaces the rule for the number of attempts of further fetches. A rule that learns begins
    /// anew. The place of copies in the queues stays as set up.
    ///
    /// # Errors
    /// If the backend cannot have so many attempts, or not by that rule.
    pub fn replace_copies(&mut self, copies: CopiesChoice) -> Result<(), OptionsError> {
        Options { copies, ..self.options }.validate_for(self.replicas.len())?;
        self.replication = copies.into();
        Ok(())
    }

    /// Returns the calls since `since`, the start of a measuring window; none if nothing is
    /// measured ([`Options::cores`]). A start other than the one before begins a window there.
    pub fn tier_window(&mut self, now: Instant, since: Instant) -> Option<TierWindow> {
        let tokens = if self.tier.is_some() { self.options.in_flight_calls_max } else { 0 };
        self.meter.as_mut().map(|meter| meter.window(now, since, tokens))
    }

    /// Returns the accesses since the call before, with their attempts, and counts the next ones
    /// with this bound, within which an access is to be answered, and the time from which on an
    /// attempt is slow. The first call begins the measurement.
    pub fn take_attempts(&mut self, bound: Duration, slow_from: Duration) -> AttemptTimes {
        let replicas = self.replicas.len();
        let meter = self.attempt_meter.get_or_insert_with(|| Box::new(AttemptMeter::new(replicas)));
        meter.take(bound, slow_from)
    }

    /// Takes in that a call has made progress: that a copy of a request has asked the next tier.
    /// Copies that are planned for later then wait for missing progress instead of the end of the
    /// call, and balancers learn from the time since the report before. Ignored if the call has
    /// ended.
    pub fn handle_progress(&mut self, now: Instant, attempt: AttemptId) {
        self.advance(now);
        let Some(attempt) = self.attempts.get_mut(attempt.0) else { return };
        let AttemptState::Started(at) = attempt.state else { return };
        let gap = now - std::mem::replace(&mut attempt.progress_at, now);
        attempt.longest_gap = attempt.longest_gap.max(gap);
        let (id, replica) = (attempt.fetch, attempt.server());
        let progress = Completion { gap, ..Completion::of(now, now - at, CallEnd::Answered) };
        self.balancer.completed(replica, &progress);
        let delay = self.replication.progressed();
        let planned = self.fetches.get(id).expect(STORED).later;
        if let (Some(delay), Some((_, Later::Copies(count)))) = (delay, planned) {
            self.plan(id, now + delay, Later::Copies(count));
        }
    }

    /// Takes in what a server says about itself, for balancers that use it (`c3`, `prequal`).
    pub fn handle_figures(&mut self, now: Instant, replica: ReplicaId, figures: &Figures) {
        if replica.index() < self.replicas.len() {
            self.balancer.said(now, replica, figures);
        }
    }

    /// Returns true if a query for this key would join one in flight. A caller that wants a value
    /// fetched but does not wait for it need not ask then; it would only count against
    /// [`Options::waiters_max`].
    #[must_use]
    pub fn is_joinable(&self, key: &K) -> bool {
        self.joinable.contains_key(key)
    }

    /// Returns the next action for the driver to carry out, or none until the next input.
    pub fn poll_action(&mut self) -> Option<Action<K, V, W>> {
        self.shown = self.shown.saturating_sub(1);
        let action = self.actions.pop_front();
        if self.actions.is_empty() {
            // The ring begins again at its start, whose memory is in the processor's cache.
            self.actions.clear();
        }
        action
    }

    /// Shows `see` each [`Action::Deliver`] added since the last call that has not been polled. So
    /// a cache can be filled by the input itself, before another input invalidates a key.
    pub fn each_new_delivery(&mut self, mut see: impl FnMut(NewDelivery<'_, K, V>)) {
        for action in self.actions.range(self.shown..) {
            if let Action::Deliver { key, result, is_current, demand, asked_at, waiters } = action {
                let (is_current, asked_at, waiters) = (*is_current, *asked_at, waiters.len());
                see(NewDelivery { key, result, is_current, demand, asked_at, waiters });
            }
        }
        self.shown = self.actions.len();
    }

    /// Shows `see` the waiters for the keys of a call in flight, and returns the origin of the
    /// call; none once it has ended. Nothing changes. O(waiters of the keys).
    pub fn observe_call(&self, attempt: AttemptId, mut see: impl FnMut(&W)) -> Option<CallOrigin> {
        let Attempt { fetch, number, asked, .. } = self.attempts.get(attempt.0)?;
        let fetch = self.fetches.get(*fetch)?;
        let keys = asked.as_ref().unwrap_or(&fetch.keys).iter().filter_map(|key| self.keys.get(*key));
        keys.flat_map(|key| key.waiters.iter()).for_each(&mut see);
        Some(CallOrigin { earlier: *number, asked_at: fetch.asked_at })
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout) at; none while nothing is
    /// pending.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let fetches = self.expiries.first().into_iter().chain(self.later.first().copied());
        let probes = self.replicas.iter().filter_map(|replica| replica.health.next_timeout());
        let paid = self.tenant_reads.as_ref().and_then(|reads| reads.next_timeout());
        let requests = self.tier.as_ref().and_then(|tier| tier.next_timeout());
        probes.chain(fetches.map(|(at, _)| at)).chain(paid).chain(requests).min()
    }

    /// Returns the counters and the present state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            counters: self.counters,
            waiters: self.waiters,
            keys: self.keys.len(),
            joinable_keys: self.joinable.len(),
            beta: self.options.beta,
            ramp: self.ramp.as_ref().map(Ramp::standing),
            calls: self.attempts.len(),
            calls_for_any_replica: self.tier.as_ref().map_or(0, |tier| tier.queue.queued()),
            leases: self.leases,
            factor: self.replication.factor(),
            hedge: self.replication.progressed(),
            extra_load_ratio: self.extra_load.ratio(),
            replicas: self.replicas.iter().map(Replica::stats).collect(),
        }
    }

    /// Takes a waiter in, if there is room; returns the key if `fetch` has to fetch it.
    fn admit(
        &mut self,
        now: Instant,
        fetch: Id,
        demand: &Demand,
        key: K,
        waiter: W,
        list: &mut List,
    ) -> Option<Id> {
        self.counters.asked += 1;
        let limit = self.options.waiters_max;
        if self.waiters == limit {
            self.refuse(key, demand, waiter, FetchError::Overloaded { bound: Bound::Waiters, limit });
            return None;
        }
        if let Some(reads) = &mut self.tenant_reads
            && let Err(refusal) = reads.check(now, demand.tenant)
        {
            self.refuse(key, demand, waiter, refusal);
            return None;
        }
        if demand.after > 0 {
            self.invalidate_before(&key, demand.after);
        }
        // A waiter that joins costs the backend nothing.
        if let Some(ramp) = &mut self.ramp
            && !self.joinable.contains_key(&key)
            && !ramp.admits(now, list)
        {
            let limit = ramp.keys();
            self.counters.ramped += 1;
            self.refuse(key, demand, waiter, FetchError::Overloaded { bound: Bound::Ramp, limit });
            return None;
        }
        self.waiters += 1;
        match self.joinable.entry(key) {
            Entry::Occupied(open) => {
                self.counters.joined += 1;
                let open = self.keys.get_mut(*open.get()).expect("a key that is joined is stored");
                open.waiters.push(waiter);
                let fetch = open.fetch;
                self.join(now, fetch, demand);
                self.note_waiter(fetch);
                None
            }
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                let id = self.keys.insert(Key { key, fetch, waiters: Waiters::new(waiter), fresh: true });
                vacant.insert(id);
                self.note_waiter(fetch);
                Some(id)
            }
        }
    }

    /// Invalidates a key in flight whose answer may be older than the write with this sequence
    /// number.
    fn invalidate_before(&mut self, key: &K, after: u64) {
        let open = self.joinable.get(key).and_then(|id| self.keys.get(*id));
        let fetch = open.and_then(|open| self.fetches.get(open.fetch));
        if fetch.is_some_and(|fetch| fetch.demand.after < after) {
            self.invalidate(key);
        }
    }

    /// Delivers a refusal to a waiter that was not taken in.
    fn refuse(&mut self, key: K, demand: &Demand, waiter: W, error: FetchError) {
        self.counters.refused += 1;
        self.counters.over_rate += u64::from(matches!(error, FetchError::OverRate(_)));
        let result = Err(error);
        let (demand, asked_at, waiters) = (*demand, Instant::ZERO, Waiters::new(waiter));
        self.actions.push_back(Action::Deliver { key, result, is_current: false, demand, asked_at, waiters });
    }

    /// Reports to the ramp a call for keys that were asked for at `asked_at`, and the number of its
    /// keys that ended with it. The others are asked for again.
    fn note_call(&mut self, now: Instant, asked_at: Instant, keys: usize, answered: bool) {
        if let Some(ramp) = &mut self.ramp {
            ramp.note(now, asked_at, keys, answered);
        }
    }

    /// Delivers the result of a key to its waiters, and returns true; false if the key has ended
    /// already.
    fn deliver(&mut self, id: Id, result: Result<Option<V>, FetchError>) -> bool {
        let Some(Key { key, fetch, waiters, fresh }) = self.keys.remove(id) else { return false };
        let fetch = self.fetches.get(fetch).expect(STORED);
        let (demand, asked_at) = (fetch.demand, fetch.asked_at);
        // Another replica did not have it, and no answer says otherwise.
        let result = if result.is_err() && fetch.missed.contains(&id) { Ok(None) } else { result };
        if result.is_err() {
            self.probes.note_failed(&key);
        }
        if fresh {
            self.joinable.remove(&key);
        }
        self.waiters -= waiters.len() as u32;
        if let Some(reads) = &mut self.tenant_reads {
            reads.note_end(demand.tenant, waiters.len() as u32, result.as_ref().err());
        }
        self.ramp.iter_mut().for_each(Ramp::note_end);
        let ended = match &result {
            Ok(_) => &mut self.counters.answered,
            Err(FetchError::Timeout { .. }) => &mut self.counters.timed_out,
            Err(FetchError::Failed { .. }) => &mut self.counters.failed,
            Err(
                FetchError::Overloaded { .. }
                | FetchError::Rejected { .. }
                | FetchError::OverRate(_)
                | FetchError::NotAdmitted { .. }
                | FetchError::Unavailable { .. },
            ) => &mut self.counters.refused,
        };
        *ended += waiters.len() as u64;
        if let Err(FetchError::OverRate(_)) = result {
            self.counters.over_rate += waiters.len() as u64;
        }
        if let Err(FetchError::Rejected { .. }) = result {
            self.counters.rejected += waiters.len() as u64;
            if demand.deadline.is_some() {
                self.counters.rejected_with_deadline += waiters.len() as u64;
            }
        }
        let is_current = fresh && result.is_ok();
        self.actions.push_back(Action::Deliver { key, result, is_current, demand, asked_at, waiters });
        true
    }

    /// Does what is due at `now`, before an input is looked at.
    fn advance(&mut self, now: Instant) {
        let Options { timeout, probe, .. } = self.options;
        if !self.replication.is_one() {
            self.extra_load.roll(now);
        }
        let mut expired = false;
        while let Some((expires_at, id)) = self.expiries.first()
            && expires_at <= now
        {
            self.expire(now, id);
            expired = true;
        }
        while let Some(&(at, id)) = self.later.first()
            && at <= now
        {
            self.add_later(now, id);
        }
        self.start_paid(now);
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
        self.expire_requests(now);
    }
}

#[cfg(test)]
mod tests;
