//! The state machine of one backend.

mod action;
mod change;
mod connections;
mod duplicates;
mod fill;
mod key;
mod options;
mod placed;
mod rates;
mod running;
mod tenants;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use sherwood_cache::Access;
use sherwood_dispatch::{
    AttemptId, CallOrigin, CopiesChoice, Dispatch, Figures, Holders, Layout, NewDelivery, OptionsError,
    ProbeOptions, Reply, RetryOptions, Stats,
};
use sherwood_model::{
    AttemptTimes, BackendPlan, Demand, DemandCounts, Instant, PartitionId, ReplicaId, SeededState,
    StoreLayout, TierWindow,
};

pub use action::{Action, Invalidation, Write, WriteOptions, WriteOrder};
pub use change::Change;
pub use duplicates::{
    Consistency, DUPLICATES_MAX, DuplicateEvent, DuplicateOptions, DuplicateStanding, DuplicateStep,
    LayoutError, Logged, LogsStanding, Session, SessionError, partition_of, possible_layouts,
};
pub use fill::{AnswerCache, FillCounts};
pub use key::FetchKey;
pub use options::{BackendOptions, Placement, WriteTo};
pub use rates::{BackendUse, CallCost, Units};

use crate::fences::{Fences, Lifted};
use crate::revalidation::FailedKeys;
use crate::{Rules, WriteId};
use duplicates::Duplicates;
use fill::{fill, filling, note_missed};
use rates::TenantWrites;
use running::RunningWrite;

/// The replica that writes go to if the others copy from it.
const PRIMARY: ReplicaId = ReplicaId(0);

/// The state machine of one backend: its fetches, its writes, and what of them the cache keeps.
///
/// It composes the dispatcher, the fences of keys that are written or invalidated, revalidations,
/// the rates of tenants and future flushes. The daemon and the simulators drive it without rules of
/// their own.
///
/// `K` is a key as the backend knows it, `V` a value, `W` a waiter for a fetched key.
///
/// # What it guarantees
/// - No value that was fetched before a key was written, invalidated or flushed fills the cache
///   afterwards. Each input fills the cache itself, so that a driver cannot do it too late.
/// - The cache keeps a written value if the write was acknowledged and no other write of the key
///   can have followed it. If not, it drops the key, before the driver learns of the end.
/// - Each waiter is in exactly one [`Action::Deliver`], and each accepted write in exactly one
///   [`Action::EndWrite`], both within the backend's timeout.
/// - A driver that carries an action out late, twice or never changes neither of these, and nothing
///   is held for longer than the timeout because of it.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: the `handle_` functions, in any order. Replies and probes may be late, repeated or
///   missing. `now` should not step back.
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none.
/// - Wake-ups: [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout),
///   which may change with every input. Later makes timeouts late and has no other effect.
///
/// A driver that shares the machine among threads keeps it behind a lock, and makes a change of the
/// cache that it has announced by [`handle_invalidate`](Self::handle_invalidate) or
/// [`handle_flush`](Self::handle_flush) before it releases the lock.
///
/// # Complexity and memory
/// As the dispatcher's: a constant number of hash operations for each key. A fence ends in time
/// linear in the keys in flight if it is over all keys. At most `writes_max` writes, each with its
/// value, and `writes_max + fenced_keys_max + failed_keys_max` keys are held beside the
/// dispatcher's.
///
/// ```
/// use sherwood_cache::{Access, Cache, Options, Partition, Value};
/// use sherwood_dispatch::{Options as DispatchOptions, Reply};
/// use sherwood_model::{BackendId, Demand, Instant, PartitionId, SeededState, Tags, TenantId};
/// use sherwood_path::{
///     Action, AnswerCache, Backend, BackendOptions, Change, FetchKey, Fetched, Write, WriteOptions,
///     WriteOutcome,
/// };
///
/// struct Bytes<'a>(&'a Cache);
///
/// impl AnswerCache<Vec<u8>> for Bytes<'_> {
///     fn cache(&self) -> &Cache {
///         self.0
///     }
///
///     fn fetched<'a>(&self, value: &'a Vec<u8>) -> Fetched<'a> {
///         Fetched { value: Value::Bytes(value), flags: 0, good_for: None, tags: Tags::NONE }
///     }
/// }
///
/// let partition = PartitionId(0);
/// let partitions = [Partition::new(TenantId(0), BackendId(0), 1 << 20)];
/// let cache = Cache::new(Options::default(), &partitions, SeededState::new(1))?;
/// let cached = Bytes(&cache);
/// let options = BackendOptions::new(DispatchOptions::default(), 1, vec![partition]);
/// let now = Instant::from_millis(3);
/// let mut backend = Backend::<&str, Vec<u8>, u32>::new(options, now, SeededState::new(7))?;
///
/// // Waiter 5 asks for a key, and while the call is in flight the key is written.
/// let key = FetchKey { partition, key: "p:1" };
/// backend.handle_fetch(now, &cached, &Demand::default(), [(key, 5)], 0x5eed);
/// let Some(Action::Call { attempt, .. }) = backend.poll_action() else { panic!("one call") };
/// let change = Change::Put(b"new".to_vec());
/// let options = WriteOptions::default();
/// let write = Write { key: "p:1", change, partition: Some(partition), options };
/// let id = backend.handle_write(now, &cached, write)?;
/// assert_eq!(backend.poll_action(), Some(Action::StartWrite(id)));
/// let order = backend.take_write(now, id).expect("its turn has come");
/// backend.handle_write_reply(now, &cached, id, order.replicas[0], WriteOutcome::Acknowledged);
/// assert!(matches!(backend.poll_action(), Some(Action::EndWrite { .. })));
///
/// // The waiter gets what the call read; the cache keeps what was written.
/// backend.handle_reply(now, &cached, attempt, Reply::Ok(vec![Some(b"old".to_vec())]));
/// assert!(matches!(backend.poll_action(), Some(Action::Deliver { result: Ok(Some(_)), .. })));
/// let value = cache.get(partition, b"p:1", &Access::at(now), |item| item.value == Value::Bytes(b"new"));
/// assert_eq!(value, Some(true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Backend<K, V, W> {
    options: BackendOptions,
    dispatch: Dispatch<FetchKey<K>, V, W>,
    fences: Fences<K>,
    failed_keys: FailedKeys<FetchKey<K>>,
    /// Flushes of the cache to come, at most one for each partition.
    flushes: BTreeMap<PartitionId, Instant>,
    /// The writes that have begun and not ended, by their ids.
    writes: BTreeMap<WriteId, RunningWrite<K, V>>,
    /// Times at which writes end even if answers are missing, one for each of `writes`.
    writes_due: BTreeSet<(Instant, WriteId)>,
    /// Keys with a write that is acknowledged but still in flight, and the replica that
    /// acknowledged it last.
    acknowledged: HashMap<K, ReplicaId, SeededState>,
    /// Writes that were acknowledged before they ended, and were not polled yet.
    acknowledged_writes: VecDeque<WriteId>,
    /// The logs of a replicated store; none if it is none.
    duplicates: Option<Box<Duplicates<K, V, W>>>,
    /// The rates of the tenants' writes; none if tenants have none.
    tenant_writes: Option<TenantWrites>,
    /// Reads and writes of each tenant but for hits of the cache; empty without tenants.
    demand: Vec<DemandCounts>,
    /// A time before which no flush, fence, turn or write is due, so that most inputs look at none
    /// of them. Zero after one was added, until the next input.
    due: Instant,
    /// Actions for the driver, beside those that the dispatcher holds.
    actions: VecDeque<Action<K, V, W>>,
    fills: FillCounts,
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Creates a backend at its start. Writes of the previous process may still settle, so all keys
    /// are fenced for that time.
    ///
    /// # Errors
    /// When the options of the dispatcher or the number of replicas cannot work.
    pub fn new(options: BackendOptions, now: Instant, hash: SeededState) -> Result<Self, OptionsError> {
        let mut fences = Fences::new(options.fences(), hash);
        fences.fence_all(now, now);
        let tenants = options.dispatch.tenants.map_or(0, |tenants| tenants.tenants);
        let duplicates = options.duplicates.map(|duplicates| {
            let timeout = options.dispatch.timeout;
            Box::new(Duplicates::new(duplicates, options.acknowledge, timeout, now, hash))
        });
        let mut backend = Self {
            duplicates,
            demand: vec![DemandCounts::default(); tenants.into()],
            dispatch: Dispatch::new(options.dispatch_options(), options.replicas, hash)?,
            fences,
            failed_keys: FailedKeys::new(options.dispatch.timeout, options.failed_keys_max, hash),
            flushes: BTreeMap::new(),
            writes: BTreeMap::new(),
            writes_due: BTreeSet::new(),
            acknowledged: HashMap::with_hasher(hash),
            acknowledged_writes: VecDeque::new(),
            tenant_writes: options
                .dispatch
                .tenants
                .map(|tenants| TenantWrites::new(tenants, options.writes_max)),
            due: Instant::ZERO,
            actions: VecDeque::new(),
            fills: FillCounts::default(),
            options,
        };
        backend.wait_for_logs(now);
        Ok(backend)
    }

    /// Fetches a query's misses for their waiters. Keys in flight are joined. `entropy` is 64 fresh
    /// random bits.
    pub fn handle_fetch(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        demand: &Demand,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) {
        self.advance(now, cache);
        self.fetch(now, demand, keys, entropy);
        self.keep_answers(now, cache);
    }

    /// Fetches stale keys whose waiters have been answered already. Leaves out those that are in
    /// flight, and those whose fetch has failed less than a timeout ago. Returns how many fetches
    /// began.
    pub fn handle_revalidate(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        demand: &Demand,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) -> usize {
        self.advance(now, cache);
        let Self { dispatch, failed_keys, .. } = self;
        let mut may_begin = |key: &FetchKey<K>| !dispatch.is_joinable(key) && failed_keys.may_begin(now, key);
        let keys: Vec<_> = keys.into_iter().filter(|(key, _)| may_begin(key)).collect();
        let begun = keys.len();
        self.fetch(now, demand, keys, entropy);
        self.keep_answers(now, cache);
        begun
    }

    /// Takes the reply to a call. A reply that is late, repeated or was never asked for is counted
    /// and ignored.
    pub fn handle_reply(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        attempt: AttemptId,
        reply: Reply<V>,
    ) {
        self.take_reply(now, cache, attempt, reply, None);
    }

    /// As [`handle_reply`](Self::handle_reply), with the cost of the call: its tenant pays the
    /// units that the store reported in place of those that follow from the size of the answer, and
    /// pays for an answer that is late as well. To be called once for each answer.
    pub fn handle_costed_reply(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        attempt: AttemptId,
        reply: Reply<V>,
        cost: CallCost,
    ) {
        self.take_reply(now, cache, attempt, reply, Some(cost));
    }

    fn take_reply(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        attempt: AttemptId,
        reply: Reply<V>,
        cost: Option<CallCost>,
    ) {
        self.advance(now, cache);
        self.charge_answer(now, cache, attempt, &reply, cost);
        self.dispatch.handle_reply(now, attempt, reply);
        self.keep_answers(now, cache);
    }

    /// Notes that a started call is to wait for a turn that a scheduler elsewhere gives. Returns
    /// another replica that it may go to instead; none if there is none.
    pub fn begin_wait(&mut self, attempt: AttemptId) -> Option<ReplicaId> {
        self.dispatch.begin_wait(attempt)
    }

    /// Shows `see` the waiters for the keys of a call in flight, and returns the origin of the
    /// call; none once it has ended. Nothing changes.
    pub fn observe_call(&self, attempt: AttemptId, see: impl FnMut(&W)) -> Option<CallOrigin> {
        self.dispatch.observe_call(attempt, see)
    }

    /// Takes in that a call which [waited](Self::begin_wait) begins now, at `replica`.
    pub fn handle_turn(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        attempt: AttemptId,
        replica: ReplicaId,
    ) {
        self.advance(now, cache);
        self.dispatch.handle_turn(now, attempt, replica);
        self.keep_answers(now, cache);
    }

    /// Takes in that a call has made progress; see [`Dispatch::handle_progress`].
    pub fn handle_progress(&mut self, now: Instant, cache: &impl AnswerCache<V>, attempt: AttemptId) {
        self.advance(now, cache);
        self.dispatch.handle_progress(now, attempt);
        self.keep_answers(now, cache);
    }

    /// Takes in what a server says about itself; see [`Dispatch::handle_figures`].
    pub fn handle_figures(&mut self, now: Instant, replica: ReplicaId, figures: &Figures) {
        self.dispatch.handle_figures(now, replica, figures);
    }

    /// Takes the outcome of a probe; ignored when none is in flight to that replica.
    pub fn handle_probe(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        replica: ReplicaId,
        is_up: bool,
    ) {
        self.advance(now, cache);
        self.dispatch.handle_probe(now, replica, is_up);
        self.keep_answers(now, cache);
    }

    /// Invalidates keys: nothing of them that was fetched or written before is cached from now on.
    /// The driver removes from the cache, or stores there, before it releases the lock if that is
    /// one key, and afterwards if it has to look for the keys.
    pub fn handle_invalidate(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        which: Invalidation<'_, K>,
    ) {
        self.advance(now, cache);
        self.invalidate(now, which);
    }

    /// Takes in that another node has changed a key of the store, or may still change it: the cache
    /// drops the key, and nothing fetched or written before is cached.
    pub fn handle_peer_change(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        key: &K,
        is_unsettled: bool,
    ) {
        self.advance(now, cache);
        self.check_due_next();
        let landing = if is_unsettled { self.options.dispatch.timeout } else { Duration::ZERO };
        self.fences.fence_unsettled(now, key, now + landing);
        self.fence_fetches(key);
        for &partition in &self.options.partitions {
            cache.cache().remove(partition, key.as_ref(), &Access::at(now));
        }
    }

    /// Flushes a partition from the time `at` on, which may be now or later: nothing fetched before
    /// `at` fills it afterwards. A flush replaces one to come, as in the cache.
    ///
    /// With [tenants], fetches of other partitions fill theirs. Without, they may not fill either:
    /// flushes are rare then, and a value that was not cached is only fetched again.
    ///
    /// [tenants]: sherwood_dispatch::Options::tenants
    pub fn handle_flush(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        partition: PartitionId,
        at: Instant,
    ) {
        self.flushes.insert(partition, at);
        self.check_due_next();
        self.advance(now, cache);
    }

    /// Fences all keys (no fetched value is cached), because a write of the previous process may be
    /// applied until `unsettled`, which its [`handle_shutdown`](Self::handle_shutdown) returned.
    pub fn handle_restart(&mut self, now: Instant, unsettled: Instant) {
        self.fences.fence_all(now, unsettled);
        self.check_due_next();
    }

    /// Begins the ramp, which limits the misses of a cold cache, anew, since most of the backend's
    /// values are gone.
    pub fn handle_cold_cache(&mut self) {
        self.dispatch.restart_ramp();
    }

    /// Sets the timeout of further queries and of duplicates, and how calls are retried and
    /// replicas probed: see [`Dispatch::set_times`].
    pub fn set_times(&mut self, timeout: Duration, retry: RetryOptions, probe: ProbeOptions) {
        self.dispatch.set_times(timeout, retry, probe);
        self.duplicates.iter_mut().for_each(|duplicates| duplicates.set_timeout(timeout));
    }

    /// Takes over the [lifetimes](Rules::take_lifetimes) of other rules, for values that are stored
    /// from now on.
    pub fn take_lifetimes(&mut self, of: &Rules) {
        self.options.rules.take_lifetimes(of);
    }

    /// Applies the backend's part of a plan. A layout that a replicated store cannot have leaves
    /// its partitions and duplicates as they are; the way to another begins with the next wake-up.
    pub fn apply(&mut self, plan: &BackendPlan) {
        if let Some(beta) = plan.beta {
            self.dispatch.set_beta(beta);
        }
        if let Some(copies) = plan.copies {
            self.dispatch.set_copies(copies.factor);
        }
        if let (Some(layout), Some(duplicates)) = (&plan.layout, &mut self.duplicates) {
            let wanted = Layout { partitions: layout.partitions, duplicates: layout.duplicates };
            let reached = duplicates.aim_at(wanted).map_or_else(|_| duplicates.layout(), |()| wanted);
            self.due = Instant::ZERO;
            let asked = layout.asked.clamp(1, reached.duplicates);
            let copies = CopiesChoice::from(&StoreLayout { asked, ..*layout });
            self.dispatch.replace_copies(copies).expect("each duplicate is another replica");
        }
    }

    /// Replaces the rule for the number of attempts of a fetch; see [`Dispatch::replace_copies`].
    ///
    /// # Errors
    /// If the backend cannot have so many attempts, or not by that rule.
    pub fn replace_copies(&mut self, copies: CopiesChoice) -> Result<(), OptionsError> {
        self.dispatch.replace_copies(copies)
    }

    /// Returns the calls of a measuring window; see [`Dispatch::tier_window`].
    pub fn tier_window(&mut self, now: Instant, since: Instant) -> Option<TierWindow> {
        self.dispatch.tier_window(now, since)
    }

    /// Returns the layout of a replicated store, and the way in which its duplicates are asked at
    /// present; none if the store is none.
    #[must_use]
    pub fn layout(&self) -> Option<StoreLayout> {
        let Layout { partitions, duplicates } = self.duplicates.as_ref()?.layout();
        let Stats { factor, hedge, .. } = self.dispatch.stats();
        Some(StoreLayout { partitions, duplicates, asked: factor.min(duplicates), hedge })
    }

    /// Returns the accesses since the call before; see [`Dispatch::take_attempts`].
    pub fn take_attempts(&mut self, bound: Duration, slow_from: Duration) -> AttemptTimes {
        self.dispatch.take_attempts(bound, slow_from)
    }

    /// Carries out what is due by `now`: timeouts, probes, flushes, ends of fences and waiting
    /// writes.
    pub fn handle_timeout(&mut self, now: Instant, cache: &impl AnswerCache<V>) {
        self.advance(now, cache);
        self.dispatch.handle_timeout(now);
        self.keep_answers(now, cache);
    }

    /// Returns the next action for the driver; none until the next input.
    pub fn poll_action(&mut self) -> Option<Action<K, V, W>> {
        use sherwood_dispatch::Action as Fetching;
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        Some(match self.dispatch.poll_action()? {
            Fetching::Call { attempt, replica, keys, demand, since, timeout } => {
                Action::Call { attempt, replica, keys, demand, since, timeout }
            }
            Fetching::Cancel { attempt, replica, reason } => Action::Cancel { attempt, replica, reason },
            Fetching::Probe { replica, key, timeout } => Action::Probe { replica, key, timeout },
            Fetching::Deliver { key, result, is_current: _, demand: _, asked_at: _, waiters } => {
                Action::Deliver { key, result, waiters }
            }
        })
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout); none while nothing will
    /// be due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.due == Instant::NEVER {
            return self.dispatch.next_timeout();
        }
        let write = self.writes_due.first().map(|(due, _)| *due);
        let paid = self.tenant_writes.as_ref().and_then(TenantWrites::next_timeout);
        let logs = self.duplicates.as_ref().and_then(|duplicates| duplicates.next_due());
        let writes = self.fences.next_turn().into_iter().chain(write).chain(paid).chain(logs);
        self.dispatch.next_timeout().into_iter().chain(writes).min()
    }

    /// Returns the dispatcher's counters and replicas.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.dispatch.stats()
    }

    /// Returns the counts of fills since the start.
    #[must_use]
    pub fn fills(&self) -> FillCounts {
        self.fills
    }

    /// Returns the sizes of what the backend holds beside its dispatcher.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            writes: self.writes.len(),
            pending_actions: self.actions.len(),
            written_or_fenced_keys: self.fences.keys(),
            failed_keys: self.failed_keys.keys(),
            flushes: self.flushes.len(),
        }
    }

    /// Returns true if a fetch of this key may return an old value of the store.
    #[must_use]
    pub fn is_fenced(&self, key: &K) -> bool {
        self.fences.is_fenced(key)
    }

    /// Has the next input look for what is due, because a flush, fence, turn or write was added.
    fn check_due_next(&mut self) {
        self.due = Instant::ZERO;
    }

    /// Carries out the flushes, ends of fences, starts of waiting writes and timeouts of writes
    /// that are due. All of it precedes an input of the same time.
    #[inline]
    fn advance(&mut self, now: Instant, cache: &impl AnswerCache<V>) {
        if self.due <= now {
            self.carry_out_due(now, cache);
        }
    }

    fn carry_out_due(&mut self, now: Instant, cache: &impl AnswerCache<V>) {
        self.carry_out_flushes(now);
        while let Some(lifted) = self.fences.poll_lifted(now) {
            match lifted {
                Lifted::Key(key) => self.fence_fetches(&key),
                Lifted::All => self.dispatch.invalidate_where(|_| true),
            }
        }
        while let Some(write) = self.fences.poll_turn(now) {
            self.note_turn(now, cache, write);
        }
        self.start_paid_writes(now, cache);
        self.carry_out_due_logs(now, cache);
        while let Some(&(due, write)) = self.writes_due.first()
            && due <= now
        {
            self.end_write(now, cache, write);
        }
        let flush = self.flushes.values().min().copied();
        let write = self.writes_due.first().map(|(due, _)| *due);
        let paid = self.tenant_writes.as_ref().and_then(TenantWrites::next_timeout);
        let logs = self.duplicates.as_ref().and_then(|duplicates| duplicates.next_due());
        let due = flush.into_iter().chain(self.fences.next_due()).chain(write).chain(paid).chain(logs);
        self.due = due.min().unwrap_or(Instant::NEVER);
    }

    /// Fills the cache with the answers that the dispatcher has just received, and notes which keys
    /// failed.
    fn keep_answers(&mut self, now: Instant, cache: &impl AnswerCache<V>) {
        let Self { dispatch, duplicates, fences, failed_keys, options, fills, demand: counts, .. } = self;
        let is_unsettled = |key: &K| duplicates.as_ref().is_some_and(|logs| logs.is_unsettled(key));
        let revalidates = !options.rules.stale_while_revalidate.is_zero();
        dispatch.each_new_delivery(|NewDelivery { key, result, is_current, demand, asked_at, waiters }| {
            let access = filling(now, demand);
            if let Ok(value) = result {
                if let Some(counts) = counts.get_mut(demand.tenant.index()) {
                    let value_bytes = value.as_ref().map_or(0, |value| cache.fetched(value).value.len());
                    counts.count_fetched(options.units.reads, key.as_ref().len() + value_bytes, waiters);
                }
                // The only place that decides whether an answer fills. Neither the fetch nor the
                // key may have been fenced: a value read before a write could overwrite it.
                if is_current && !fences.is_fenced(&key.key) && !is_unsettled(&key.key) {
                    fills.allowed += 1;
                    let shared = options.shared_since(asked_at);
                    fill(&options.rules, shared, &access, cache, key, value.as_ref());
                } else {
                    fills.withheld += 1;
                    note_missed(cache, key, &access);
                }
            } else {
                note_missed(cache, key, &access);
            }
            if revalidates {
                failed_keys.note(now, key, result.is_err());
            }
        });
    }

    /// Fetches keys from the replicas that may be asked for them. If replicas copy from a primary,
    /// a fenced key is fetched only from the primary. After an early acknowledgement of a write,
    /// its key is fetched only from a replica that has made the write.
    fn fetch(
        &mut self,
        now: Instant,
        demand: &Demand,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) {
        if self.duplicates.is_some() {
            return self.fetch_in_session(now, demand, Session::default(), keys, entropy);
        }
        if self.options.places_keys() || !self.acknowledged.is_empty() {
            return self.fetch_where_placed(now, demand, keys, entropy);
        }
        let Self { options, dispatch, fences, .. } = self;
        if !options.replicas_may_lag() {
            return dispatch.handle_fetch_from(now, Holders::All, demand, keys, entropy);
        }
        let (fenced, settled): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|(key, _)| fences.is_fenced(&key.key));
        dispatch.handle_fetch_from(now, Holders::All, demand, settled, entropy);
        dispatch.handle_fetch_from(now, Holders::One(PRIMARY), demand, fenced, entropy);
    }

    /// Carries out the flushes that are due by `now`.
    fn carry_out_flushes(&mut self, now: Instant) {
        let is_due = |at: &Instant| *at <= now;
        let due: Vec<PartitionId> =
            self.flushes.iter().filter(|(_, at)| is_due(at)).map(|(partition, _)| *partition).collect();
        if due.is_empty() {
            return;
        }
        self.flushes.retain(|_, at| !is_due(at));
        if self.options.dispatch.tenants.is_none() {
            return self.invalidate(now, Invalidation::All);
        }
        // A tenant that flushes must neither keep the values of others out of the cache nor limit
        // their misses by the ramp.
        self.check_due_next();
        let is_flushed = |partition: &PartitionId| due.binary_search(partition).is_ok();
        let Self { dispatch, fences, writes, .. } = self;
        dispatch.invalidate_where(|key| is_flushed(&key.partition));
        let written = writes.values().map(|running| &running.write);
        let written = written.filter(|write| write.partition.as_ref().is_some_and(is_flushed));
        written.for_each(|write| fences.contend(&write.key));
        fences.fence_all(now, now);
    }

    fn invalidate(&mut self, now: Instant, which: Invalidation<'_, K>) {
        self.check_due_next();
        let Self { dispatch, fences, .. } = self;
        match which {
            Invalidation::Key(key) => {
                dispatch.invalidate(key);
                fences.fence(now, &key.key);
            }
            Invalidation::Prefix(prefix) => {
                dispatch.invalidate_where(|key| key.as_ref().starts_with(prefix));
                fences.fence_where(now, |key| key.as_ref().starts_with(prefix));
            }
            Invalidation::Tag | Invalidation::All => {
                dispatch.invalidate_where(|_| true);
                fences.fence_where(now, |_| true);
            }
        }
        if which == Invalidation::All {
            dispatch.restart_ramp();
        }
    }

    /// Forbids the fetches of `key` that are in flight, of every tenant, to fill the cache.
    fn fence_fetches(&mut self, key: &K) {
        for &partition in &self.options.partitions {
            self.dispatch.invalidate(&FetchKey { partition, key: key.clone() });
        }
    }
}

/// Sizes of what a [`Backend`] holds beside its dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Writes in flight, at most [`BackendOptions::writes_max`].
    pub writes: usize,
    /// Actions about writes that were not polled yet: at most one for each of `writes`, and one for
    /// each write that has ended since the last poll.
    pub pending_actions: usize,
    /// Keys that are being written or fenced (their fetched values are not cached), at most
    /// `writes_max + fenced_keys_max`.
    pub written_or_fenced_keys: usize,
    /// Keys whose fetch has failed, at most [`BackendOptions::failed_keys_max`].
    pub failed_keys: usize,
    /// Flushes to come, at most one for each partition.
    pub flushes: usize,
}
